"""Checks of the promises L, A, O and T (`verdicts.PROMISES`) from facts that the files of a run give. Pure.

Promise L is checked with two records that different processes write: the leases in the supervisor's journal, and the
committed batches in the dense owner's log. Both are compared with the ledger of the newest checkpoint.
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

# Limit of torn batches of a worker that died with its supervisor: WINDOW pushed batches, and the one being computed.
MAX_TORN = WINDOW + 1


# --- L ----------------------------------------------------------------------------------------------------------------


def check_samples(facts: RunFacts) -> Verdict:
    """The verdict on promise L. Not applicable without a checkpoint, because there is no ledger to compare with."""
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
    """Violations: positions that were committed twice in an epoch."""
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
    """Violations: batches that no lease in the journal allowed to that incarnation. Several leases can have the same
    number, because a resume can repeat numbers."""
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
                f"under lease {number}, but the journal grants this worker no lease {number} of these positions"
            )
    return problems


def _leased_twice(events: Sequence[AnyEvent]) -> list[str]:
    """Violations: leases of positions that another lease still held. A lease counts as held until its process ends and
    its leases are settled: positions that were trained are not leased again in the same epoch, so a later lease can
    overlap only with positions that were returned."""
    held: dict[tuple[int, int], list[LeaseGranted]] = {}
    problems = []
    for event in events:
        match event:
            case RunStarted() | RolledBack():
                held.clear()  # training starts from a ledger in which no lease is held
            case LeasesSettled(process=process):
                for key, leases in held.items():
                    held[key] = [one for one in leases if one.process != process]
            case LeaseGranted() as new:
                others = held.setdefault((new.epoch, new.unit), [])
                problems += [
                    f"lease {new.lease} gives positions {new.start} to {new.stop} of unit {new.unit}, epoch "
                    f"{new.epoch}, some of which lease {one.lease} of {one.process} still held"
                    for one in others
                    if new.start < one.stop and one.start < new.stop
                ]
                others.append(new)
    return problems


def accounted_positions(settings: LedgerSettings, state: LedgerState) -> dict[tuple[int, int], int]:
    """(epoch, unit) -> number of positions that the ledger has accounted for: all of a unit in complete epochs."""
    found = {(epoch, unit): n for epoch in range(state.epoch) for unit, n in enumerate(settings.units) if n}
    for unit in epoch_order(settings, state.epoch)[: state.next_unit]:
        found[state.epoch, unit] = settings.units[unit]
    for span in state.pending:
        found[state.epoch, span.unit] -= span.samples
    return found


def _gaps(settings: LedgerSettings, state: LedgerState, applied: npt.NDArray[np.void]) -> list[str]:
    """Violations of this rule: a position that the ledger accounts for is in the log of applied batches, quarantined or
    skipped, and a position that is pending in the ledger is not in the log."""
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
    # samples skipped at the end of a lease, or in batches that were not committed, are in no record of a batch
    allowed = state.skipped - int(samples.sum() - applied["samples"].astype(np.int64).sum())
    if sum(missing.values()) != allowed:
        key = next(iter(sorted(missing)), None)
        where = f", first in epoch {key[0]}, unit {key[1]}" if key is not None else ""
        problems.append(
            f"{sum(missing.values())} positions that the ledger accounts for were never committed{where}; "
            f"expected are {allowed}, the skipped samples that no batch records"
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
                f"ledger, but {len(meets)} batches with some of them are committed"
            )
    return problems


# --- A ----------------------------------------------------------------------------------------------------------------


def check_applied(facts: RunFacts) -> Verdict:
    """The verdict on promise A: the dense vector, the log of applied batches and the ledger count the same number of
    samples; and a lost worker incarnation left at most one torn batch (at most MAX_TORN if its supervisor died with
    it), with served access none."""
    if facts.record is None:
        return Verdict.none("A", "the run left no checkpoint")
    problems = []
    counted, logged = facts.record.samples_applied, int(facts.applied["samples"].sum())
    if not counted == logged == facts.record.ledger.trained:
        problems.append(
            f"samples: {counted} in the dense vector, {logged} in the log, {facts.record.ledger.trained} in the ledger"
        )
    torn, with_supervisor = facts.torn, facts.torn_with_supervisor
    problems += [f"{incarnation} left {n} torn batches (limit 1)" for incarnation, n in sorted(torn.items()) if n > 1]
    problems += [
        f"{incarnation} left {n} torn batches (limit {MAX_TORN})"
        for incarnation, n in sorted(with_supervisor.items())
        if n > MAX_TORN
    ]
    torn = torn + with_supervisor
    if torn and facts.access == "served":
        problems.append(f"served access left torn batches: {', '.join(map(str, sorted(torn)))}")
    kind = "none allowed" if facts.access == "served" else "at most one per killed worker"
    figures = f"{counted} samples in the dense vector; {torn.total()} torn batches ({facts.access} access: {kind})"
    return Verdict.of("A", figures, problems)


# --- O ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What the run left: pids of processes, paths of directories and sockets. after_s: seconds from the end of the run
    until this was determined."""

    processes: tuple[str, ...]
    directories: tuple[str, ...]
    sockets: tuple[str, ...]
    after_s: float


def check_leftovers(left: Leftovers) -> Verdict:
    """The verdict on promise O."""
    kinds = (("process", left.processes), ("directory", left.directories), ("socket", left.sockets))
    problems = [f"{kind} {what} is left" for kind, found in kinds for what in found]
    return Verdict.of(
        "O", f"nothing left after {left.after_s:.1f} s" if not problems else "something is left", problems
    )


# --- T ----------------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed. Raises ValueError without values."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def check_recovery(
    times_s: Mapping[str, Sequence[float]], bounds_s: Mapping[str, float], problems: Sequence[str]
) -> Verdict:
    """The verdict on promise T. times_s: kind -> recovery times in seconds; bounds_s: kind -> bound of the median, for
    the kinds that have one; problems: violations that were found during the run."""
    found, words = list(problems), []
    for kind, values in times_s.items():
        if values:
            middle = percentile(values, 50)
            words.append(f"{kind} {middle:.2f} s (p99 {percentile(values, 99):.2f}, n {len(values)})")
            bound_s = bounds_s.get(kind)
            if bound_s is not None and middle > bound_s:
                found.append(f"the median recovery of a {kind} took {middle:.2f} s (limit {bound_s:g} s)")
    if not words and not found:
        return Verdict.none("T", "no recovery was measured")
    return Verdict.of("T", f"median {', '.join(words)}" if words else "no recovery was measured", found)
