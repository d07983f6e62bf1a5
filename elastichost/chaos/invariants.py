"""The promises of a run, checked from facts that its files give. Pure.

L from two records that do not know of each other: the leases of the supervisor's journal, and the committed batches of
the dense owner's log; and both against the ledger of the last checkpoint.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.chaos.facts import RunFacts
from elastichost.chaos.verdicts import Verdict
from elastichost.runs.events import AnyEvent, LeaseGranted, LeasesSettled, RolledBack, RunStarted
from elastichost.supervisor.ledger.state import LedgerSettings, LedgerState, epoch_order
from elastichost.worker.channels.exchange import WINDOW

__all__ = [
    "Leftovers",
    "accounted_positions",
    "check_applied",
    "check_leftovers",
    "check_recovery",
    "check_samples",
    "percentile",
]

# Batches of an incarnation that died with its supervisor: what it had released, and the one it computed.
MAX_TORN = WINDOW + 1


# --- L ----------------------------------------------------------------------------------------------------------------


def check_samples(facts: RunFacts) -> Verdict:
    """Promise L. Not applicable without a checkpoint: there is no ledger to compare with."""
    if facts.record is None:
        return Verdict.none("L", "the run left no checkpoint")
    state, applied = facts.record.ledger, facts.applied
    problems = [*_overlaps(applied), *_outside_leases(applied, facts.events), *_leased_twice(facts.events)]
    trained, skipped = int(applied["samples"].sum()), int(applied["skipped"].sum())
    if trained != state.trained:
        problems.append(f"the log of applied batches holds {trained} samples, the ledger {state.trained}")
    if skipped > state.skipped:
        problems.append(f"the log of applied batches holds {skipped} skipped rows, the ledger {state.skipped}")
    if not state.dropped:
        problems += _gaps(facts.settings, state, applied)
    figures = (
        f"{state.trained} samples in {len(applied)} batches, {state.epoch} whole epochs and a part; "
        f"{len(state.quarantined)} quarantined, {state.skipped} skipped"
    )
    return Verdict.of("L", figures, problems)


def _overlaps(applied: npt.NDArray[np.void]) -> list[str]:
    """Positions that were committed twice in an epoch."""
    ordered = applied[np.lexsort((applied["start"], applied["unit"], applied["epoch"]))]
    same = (ordered["epoch"][1:] == ordered["epoch"][:-1]) & (ordered["unit"][1:] == ordered["unit"][:-1])
    twice = np.flatnonzero(same & (ordered["start"][1:] < ordered["stop"][:-1]))
    return [
        f"epoch {one['epoch']}, unit {one['unit']}: positions {one['start']} to {one['stop']} (worker {one['worker']}."
        f"{one['incarnation']}) and {two['start']} to {two['stop']} (worker {two['worker']}.{two['incarnation']}) "
        "were both committed"
        for one, two in ((ordered[place], ordered[place + 1]) for place in twice.tolist())
    ]


def _outside_leases(applied: npt.NDArray[np.void], events: Sequence[AnyEvent]) -> list[str]:
    """Batches that no lease of the journal allowed to that incarnation. A lease number may come again after a
    resume."""
    known: dict[tuple[int, int, int], list[LeaseGranted]] = {}
    for event in events:
        if isinstance(event, LeaseGranted):
            known.setdefault((event.lease, event.process.index, event.process.incarnation), []).append(event)
    fields = ("lease_id", "worker", "incarnation", "epoch", "unit", "start", "stop")
    problems = []
    for number, worker, incarnation, epoch, unit, start, stop in zip(
        *(applied[name].tolist() for name in fields), strict=True
    ):
        candidates = known.get((number, worker, incarnation), [])
        if not any((c.epoch, c.unit) == (epoch, unit) and c.start <= start and stop <= c.stop for c in candidates):
            problems.append(
                f"worker {worker}.{incarnation} committed positions {start} to {stop} of unit {unit}, epoch {epoch}, "
                f"under lease {number}, which the journal does not have so"
            )
    return problems


def _leased_twice(events: Sequence[AnyEvent]) -> list[str]:
    """Ranges that were leased while another incarnation still held them: neither settled nor drained. What a holder has
    trained of its lease is not leased again in its epoch, so two leases may only meet over what came back."""
    held: dict[tuple[int, int], list[LeaseGranted]] = {}
    problems = []
    for event in events:
        match event:
            case RunStarted() | RolledBack():
                held.clear()  # it begins from the ledger of a checkpoint, or of the arena: no worker holds anything
            case LeasesSettled(process=process):
                for key, leases in held.items():
                    held[key] = [one for one in leases if one.process != process]
            case LeaseGranted() as new:
                others = held.setdefault((new.epoch, new.unit), [])
                problems += [
                    f"lease {new.lease} gives positions {new.start} to {new.stop} of unit {new.unit}, epoch "
                    f"{new.epoch}, which lease {one.lease} of {one.process} still held"
                    for one in others
                    if new.start < one.stop and one.start < new.stop
                ]
                others.append(new)
    return problems


def accounted_positions(settings: LedgerSettings, state: LedgerState) -> dict[tuple[int, int], int]:
    """(epoch, unit) -> how many of its positions the ledger has accounted for; for whole epochs all of them."""
    found = {(epoch, unit): n for epoch in range(state.epoch) for unit, n in enumerate(settings.units) if n}
    for unit in epoch_order(settings, state.epoch)[: state.next_unit]:
        found[state.epoch, unit] = settings.units[unit]
    for span in state.pending:
        found[state.epoch, span.unit] -= span.samples
    return found


def _gaps(settings: LedgerSettings, state: LedgerState, applied: npt.NDArray[np.void]) -> list[str]:
    """Per epoch and unit: what the ledger counts as done must be in the log, in quarantine, or skipped; and nothing
    that it calls pending may be in the log."""
    expected = accounted_positions(settings, state)
    covered: Counter[tuple[int, int]] = Counter()
    samples = (applied["stop"] - applied["start"]).astype(np.int64)
    for epoch, unit, positions in zip(
        applied["epoch"].tolist(), applied["unit"].tolist(), samples.tolist(), strict=True
    ):
        covered[epoch, unit] += positions
    for entry in state.quarantined:
        covered[entry.epoch, entry.unit] += entry.stop - entry.start
    problems = [
        f"epoch {key[0]}, unit {key[1]}: {covered[key]} positions were committed, the ledger accounts for "
        f"{expected.get(key, 0)}"
        for key in sorted(covered)
        if covered[key] > expected.get(key, 0)
    ]
    missing = {key: count - covered[key] for key, count in expected.items() if count > covered[key]}
    # rows skipped at the end of a lease, or in batches that were not committed, are in no record of a batch
    allowed = state.skipped - int(samples.sum() - applied["samples"].astype(np.int64).sum())
    if sum(missing.values()) != allowed:
        key = next(iter(sorted(missing)), None)
        where = f", first in epoch {key[0]}, unit {key[1]}" if key is not None else ""
        problems.append(
            f"{sum(missing.values())} positions that the ledger accounts for were never committed{where}; "
            f"{allowed} are skipped rows"
        )
    return [*problems, *_pending_committed(state, applied)]


def _pending_committed(state: LedgerState, applied: npt.NDArray[np.void]) -> list[str]:
    of_epoch = applied[applied["epoch"] == state.epoch]
    problems = []
    for span in state.pending:
        of_unit = of_epoch[of_epoch["unit"] == span.unit]
        meets = of_unit[(of_unit["start"] < span.stop) & (of_unit["stop"] > span.start)]
        if len(meets):
            problems.append(
                f"epoch {state.epoch}, unit {span.unit}: positions {span.start} to {span.stop} are pending in the "
                f"ledger, and {len(meets)} batches of them are committed"
            )
    return problems


# --- A ----------------------------------------------------------------------------------------------------------------


def check_applied(facts: RunFacts) -> Verdict:
    """Promise A: the dense vector's own count equals log and ledger; torn batches at most one a lost worker incarnation
    (those released as well when the supervisor died with it), with served access none."""
    if facts.record is None:
        return Verdict.none("A", "the run left no checkpoint")
    problems = []
    counted, logged = facts.record.samples_applied, int(facts.applied["samples"].sum())
    if not counted == logged == facts.record.ledger.trained:
        problems.append(
            f"samples: {counted} in the dense vector, {logged} in the log, {facts.record.ledger.trained} in the ledger"
        )
    torn, with_supervisor = facts.torn, facts.torn_with_supervisor
    problems += [f"{incarnation} left {n} torn batches" for incarnation, n in sorted(torn.items()) if n > 1]
    problems += [
        f"{incarnation} left {n} torn batches" for incarnation, n in sorted(with_supervisor.items()) if n > MAX_TORN
    ]
    torn = torn + with_supervisor
    if torn and facts.access == "served":
        problems.append(f"served access left torn batches: {', '.join(map(str, sorted(torn)))}")
    kind = "none allowed" if facts.access == "served" else "at most one a killed worker"
    figures = f"{counted} samples in the dense vector; {torn.total()} torn batches ({facts.access}: {kind})"
    return Verdict.of("A", figures, problems)


# --- O ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was there when the time for going was over. `after_s`: when it was looked at, or all was gone."""

    processes: tuple[str, ...]
    directories: tuple[str, ...]
    sockets: tuple[str, ...]
    after_s: float


def check_leftovers(left: Leftovers) -> Verdict:
    """Promise O."""
    kinds = (("process", left.processes), ("directory", left.directories), ("socket", left.sockets))
    problems = [f"{kind} {what} is left" for kind, found in kinds for what in found]
    return Verdict.of(
        "O", f"nothing left after {left.after_s:.1f} s" if not problems else "something is left", problems
    )


# --- T ----------------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many of all do not exceed. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no values, hence no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def check_recovery(
    times_s: Mapping[str, Sequence[float]], bounds_s: Mapping[str, float], problems: Sequence[str]
) -> Verdict:
    """Promise T. times_s: by kind; bounds_s: of the medians, for the kinds that have one. problems: what was seen to be
    wrong already."""
    found, words = list(problems), []
    for kind, values in times_s.items():
        if values:
            middle = percentile(values, 50)
            words.append(f"{kind} {middle:.2f} s (p99 {percentile(values, 99):.2f}, n {len(values)})")
            bound_s = bounds_s.get(kind)
            if bound_s is not None and middle > bound_s:
                found.append(f"the median recovery of a {kind} took {middle:.2f} s, allowed are {bound_s:g} s")
    if not words and not found:
        return Verdict.none("T", "nothing was killed")
    return Verdict.of("T", f"median {', '.join(words)}" if words else "nothing recovered", found)
