"""What a run really has, where that is not what it was told: the core goes by the run. Pure, but for the entry.

A command may be refused, lost, or come when the run cannot take it. Cores are those that the run last said it took;
workers are those of the plan in its status, which it takes back when a change cannot be had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from elastichost.dispatcher.core.demands import HostPower
from elastichost.dispatcher.core.effects import ConfineJob, Effect, NoteEvent, ResizeJob
from elastichost.dispatcher.core.entries import JobEntry
from elastichost.human_readable import plural
from elastichost.runs.events import JobShared

__all__ = ["Answer", "as_it_differs", "rest_s", "taken", "undone"]

DIFFERS_S = 10.0  # a run says within two seconds what it was told
REST_S, MOST_REST_S = 5.0, 60.0  # until a run that refused is told another size


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a part that was lent. problem: why the run does not have it, in words; "": it has."""

    resize: ResizeJob
    problem: str = ""


def taken(entry: JobEntry, resize: ResizeJob) -> None:
    """The run has it, or makes room for it."""
    entry.refusals = 0
    if resize.cores is not None:
        entry.taken_cores = entry.incarnation, resize.cores


def undone(entry: JobEntry, resize: ResizeJob, host_cores: tuple[int, ...], power: HostPower) -> Iterator[Effect]:
    """The run does not have it. host_cores: which it began with."""
    entry.refusals += 1
    if resize.cores is not None:
        incarnation, cores = entry.taken_cores or (entry.incarnation, host_cores)
        entry.cores = cores if incarnation == entry.incarnation else host_cores
        yield ConfineJob(entry.job, entry.cores)
    if resize.size is not None:
        yield from _as_it_is(entry, power)


def rest_s(entry: JobEntry) -> float:
    """For so long it is left alone after a refusal; twice as long after each."""
    return float(min(MOST_REST_S, REST_S * 2 ** min(entry.refusals - 1, 10)))


def as_it_differs(entry: JobEntry, power: HostPower, now_s: float) -> Iterator[Effect]:
    """After a while of another size than it was told. Call it whenever the run was seen."""
    has, placed = _workers(entry), entry.placed
    is_open = entry.examined is not None and entry.examined.size_is_open
    if placed is None or entry.state != "running" or not is_open or has in (0, placed.mode.workers):
        entry.differs_since_s = None
    elif entry.differs_since_s is None:
        entry.differs_since_s = now_s
    elif now_s - entry.differs_since_s >= DIFFERS_S:
        entry.differs_since_s = None
        yield from _as_it_is(entry, power)


def _workers(entry: JobEntry) -> int:
    """That the run means to have; 0: it has not said."""
    status = entry.seen.status if entry.seen is not None else None
    return status.plan.workers if status is not None else 0


def _as_it_is(entry: JobEntry, power: HostPower) -> Iterator[Effect]:
    """In the mode that its run has; nothing where that is none of its modes."""
    has, placed = _workers(entry), entry.placed
    if placed is None or has in (0, placed.mode.workers):
        return
    demand = entry.demand(power, has)
    index = next((at for at, mode in enumerate(demand.modes) if mode.workers == has), None)
    if index is None:
        return
    reason = f"it has not the {plural(placed.mode.workers, 'worker')} that it was told to have: it counts as it is"
    placement = msgspec.structs.replace(placed.placement, mode=index)
    entry.placed = msgspec.structs.replace(placed, demand=demand, placement=placement)
    yield NoteEvent(JobShared(entry.job, plural(has, "worker"), (), reason))
