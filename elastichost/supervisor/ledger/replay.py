"""Rebuilds the ledger of a run whose supervisor died from the record of its committed batches. Pure.

Rules:

1. A position is trained (or skipped within its batch) if and only if a committed batch holds it.
2. All other positions of the epoch in progress are pending, leased ones included: no worker of the dead supervisor
   lives any more.
3. In an epoch before it, a position that no batch holds and that is not quarantined was skipped. Such positions are bad
   rows at the end of a lease, which only the worker's report contained.
4. Two batches never hold the same position, and no batch is outside the data; otherwise ProtocolError is raised.

Theory of operation. The dense owner appends one record for each commit (`wire.applied`), so the record is complete up
to the moment of a kill. Older records are folded into ranges (`AppliedFold`). This module joins both with the
quarantined ranges of the journal, checks them, and computes the positions that are left. Bad rows at the end of a lease
of the epoch in progress are read, and skipped, once more.
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
    """The ledger after exactly the batches of `fold` and `records`.

    records: dtype APPLIED_RECORD, in any order. fold: the sum of the batches before them. epoch: the newest epoch that
    the journal has as begun, from 0; a record of a later epoch counts too. next_lease_id: a lease id that was never
    granted. stopped_early: positions that are not trained are dropped.
    Raises ProtocolError when a record is outside this data, or two records hold the same position.
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
    """All positions accounted for: int64 [n, 4], rows (epoch, unit, start, stop), sorted. Epochs before that of the
    fold are left out, because they are done."""
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
    """Whether a folded range contains this entry."""
    epochs, units, starts, stops = spans.T
    found = (epochs == entry.epoch) & (units == entry.unit) & (starts <= entry.start) & (stops >= entry.stop)
    return bool(found.any())


def _holds(batches: Int64, skipped: npt.NDArray[np.uint32], entry: Quarantined) -> bool:
    """Whether a batch counts this entry among its skipped positions, as a sync step does for a left-out micro-batch."""
    epochs, units, starts, stops = batches.T
    inside = (epochs == entry.epoch) & (units == entry.unit) & (starts <= entry.start) & (stops >= entry.stop)
    return bool((inside & (skipped >= entry.stop - entry.start)).any())


def _check(settings: LedgerSettings, taken: Int64) -> None:
    """Raises ProtocolError for a range outside the data, and for positions that were committed twice."""
    epochs, units, starts, stops = taken.T
    sizes = np.array([*settings.units, 0], np.int64)  # one more entry, which bad ranges index below
    bad = (epochs < 0) | (epochs >= settings.epochs) | (units < 0) | (units >= len(settings.units))
    bad |= (starts < 0) | (stops <= starts) | (stops > sizes[np.where(bad, -1, units)])
    if bad.any():
        epoch, unit, start, stop = taken[int(np.argmax(bad))].tolist()
        raise ProtocolError(
            f"a committed batch has positions {start} to {stop} of unit {unit} in epoch {epoch}, which the data lacks"
        )
    twice = (epochs[1:] == epochs[:-1]) & (units[1:] == units[:-1]) & (starts[1:] < stops[:-1])
    if twice.any():
        epoch, unit, start, _ = taken[int(np.argmax(twice)) + 1].tolist()
        raise ProtocolError(f"position {start} of unit {unit} in epoch {epoch} was committed twice")


def _rests(settings: LedgerSettings, present: Int64, unit: int) -> list[Span]:
    """The ranges of a unit that are not accounted for."""
    first, last = np.searchsorted(present[:, 1], (unit, unit + 1))
    of_unit = present[first:last]
    starts = [0, *of_unit[:, 3].tolist()]
    stops = [*of_unit[:, 2].tolist(), settings.units[unit]]
    return [Span(unit, start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
