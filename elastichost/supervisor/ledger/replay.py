"""The ledger of a run whose supervisor died, rebuilt from the record of its committed batches. Pure.

What is committed is trained; everything else of the epoch in progress is pending, also what was leased. An epoch
before that one is done, so what no batch of it accounts for and is not quarantined was skipped: bad rows at a lease's
end, which only a worker's report told of. Such rows of the epoch in progress are read, and skipped, once more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import LedgerSettings, LedgerState, Span, epoch_order
from elastichost.wire.applied import AppliedFold, AppliedRecords
from elastichost.wire.applied_fold import accounted_ranges

__all__ = ["ledger_of_applied"]

Int64 = npt.NDArray[np.int64]


def ledger_of_applied(
    settings: LedgerSettings,
    records: AppliedRecords,
    quarantined: tuple[Quarantined, ...] = (),
    *,
    fold: AppliedFold | None = None,
    epoch: int = 0,
    next_lease_id: int = 1,
    stopped_early: bool = False,
) -> Ledger:
    """The ledger after exactly the batches of `records` (dtype APPLIED_RECORD, in any order), and of those before them.

    fold: what those before them come to. epoch: the newest one that is known to have begun, from 0; a record of a later
    one counts as well. next_lease_id: no lease up to it was ever granted. stopped_early: what is not trained is
    dropped.
    Raises ProtocolError when the records cannot be of this data, or two of them hold the same position.
    """
    taken = _taken(records, quarantined, fold)
    _check(settings, taken)
    newest = max(epoch, int(taken[:, 0].max(initial=0)))
    present = taken[taken[:, 0] == newest]
    order = epoch_order(settings, newest)
    touched = set(present[:, 1].tolist())
    next_unit = 1 + max((place for place, unit in enumerate(order) if unit in touched), default=-1)
    pending = tuple(rest for unit in order[:next_unit] for rest in _rests(settings, present, unit))
    accounted = settings.samples * newest + sum(end - start for start, end in present[:, 2:].tolist())
    trained = int(records["samples"].sum()) + (fold.samples if fold is not None else 0)
    given_up = sum(entry.stop - entry.start for entry in quarantined)
    state = LedgerState(
        samples=settings.samples,
        units=len(settings.units),
        epoch=newest,
        next_unit=len(order) if stopped_early else next_unit,
        next_lease_id=max(next_lease_id, int(records["lease_id"].max(initial=fold.lease_id if fold else 0)) + 1),
        pending=() if stopped_early else pending,
        dropped=settings.samples * settings.epochs - accounted if stopped_early else 0,
        trained=trained,
        skipped=accounted - trained - given_up,
        quarantined=quarantined,
    )
    return Ledger.from_state(settings, state)


def _taken(records: AppliedRecords, quarantined: Iterable[Quarantined], fold: AppliedFold | None) -> Int64:
    """int64 [n, 4]: (epoch, unit, start, stop) of everything accounted for, sorted. Of epochs before that of the fold
    nothing: they are done."""
    batches, skipped = accounted_ranges(records), records["skipped"]
    spans = np.zeros((0, 4), np.int64)
    if fold is not None:
        spans = fold.spans_array()
        quarantined = [
            one for one in quarantined if one.epoch >= spans[:, 0].max(initial=0) and not _within(spans, one)
        ]
        batches = np.concatenate([spans, batches])
        skipped = np.concatenate([np.zeros(len(spans), np.uint32), skipped])
    outside = [entry for entry in quarantined if not _holds(batches, skipped, entry)]
    given_up = [(entry.epoch, entry.unit, entry.start, entry.stop) for entry in outside]
    taken = np.concatenate([batches, np.array(given_up, np.int64).reshape(-1, 4)])
    ordered: Int64 = taken[np.lexsort((taken[:, 2], taken[:, 1], taken[:, 0]))]
    return ordered


def _within(spans: Int64, entry: Quarantined) -> bool:
    """Whether what was folded accounts for this entry."""
    epochs, units, starts, stops = spans.T
    found = (epochs == entry.epoch) & (units == entry.unit) & (starts <= entry.start) & (stops >= entry.stop)
    return bool(found.any())


def _holds(batches: Int64, skipped: npt.NDArray[np.uint32], entry: Quarantined) -> bool:
    """Whether a batch accounts for this entry among what it skipped, as a step of sync mode does for a micro-batch."""
    epochs, units, starts, stops = batches.T
    inside = (epochs == entry.epoch) & (units == entry.unit) & (starts <= entry.start) & (stops >= entry.stop)
    return bool((inside & (skipped >= entry.stop - entry.start)).any())


def _check(settings: LedgerSettings, taken: Int64) -> None:
    """Raises ProtocolError."""
    epochs, units, starts, stops = taken.T
    sizes = np.array([*settings.units, 0], np.int64)  # one more, so that there is one to look at
    bad = (epochs < 0) | (epochs >= settings.epochs) | (units < 0) | (units >= len(settings.units))
    bad |= (starts < 0) | (stops <= starts) | (stops > sizes[np.where(bad, -1, units)])
    if bad.any():
        epoch, unit, start, stop = taken[int(np.argmax(bad))].tolist()
        raise ProtocolError(
            f"a batch of positions {start} to {stop} of unit {unit} in epoch {epoch} is not of this data"
        )
    twice = (epochs[1:] == epochs[:-1]) & (units[1:] == units[:-1]) & (starts[1:] < stops[:-1])
    if twice.any():
        epoch, unit, start, _ = taken[int(np.argmax(twice)) + 1].tolist()
        raise ProtocolError(f"position {start} of unit {unit} in epoch {epoch} was committed twice")


def _rests(settings: LedgerSettings, present: Int64, unit: int) -> list[Span]:
    """What no one accounts for in a unit."""
    first, last = np.searchsorted(present[:, 1], (unit, unit + 1))
    of_unit = present[first:last]
    starts = [0, *of_unit[:, 3].tolist()]
    stops = [*of_unit[:, 2].tolist(), settings.units[unit]]
    return [Span(unit, start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
