"""Corrects the entry of a job whose run has another size or other cores than the dispatcher told it. Pure, except that
functions change the entry.

A run may refuse a command, or not receive it. Then the entry takes over what the run has: the cores that the run last
confirmed, and the number of workers of the plan in its status. A run returns to its old plan when it cannot carry out a
new one.
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

DIFFERS_S = 10.0  # after this time the entry takes over another size; a status shows a new plan within about 2 s
REST_S, MOST_REST_S = 5.0, 60.0  # first and longest wait after a refusal, before the run is told another size


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a run to what it was lent. problem: why the run did not take it; "": it took it."""

    resize: ResizeJob
    problem: str = ""


def taken(entry: JobEntry, resize: ResizeJob) -> None:
    """Records that the run took what it was lent, or has begun to carry it out."""
    entry.refusals = 0
    if resize.cores is not None:
        entry.taken_cores = entry.incarnation, resize.cores


def undone(entry: JobEntry, resize: ResizeJob, host_cores: tuple[int, ...], power: HostPower) -> Iterator[Effect]:
    """Records a refusal: the entry takes over the cores and the number of workers that the run has. host_cores: the
    cores with which every run starts. Yields effects that confine the job to those cores and journal its size."""
    entry.refusals += 1
    if resize.cores is not None:
        incarnation, cores = entry.taken_cores or (entry.incarnation, host_cores)
        entry.cores = cores if incarnation == entry.incarnation else host_cores
        yield ConfineJob(entry.job, entry.cores)
    if resize.size is not None:
        yield from _as_it_is(entry, power)


def rest_s(entry: JobEntry) -> float:
    """Seconds until the run is told another size after a refusal. They double with each further refusal."""
    return float(min(MOST_REST_S, REST_S * 2 ** min(entry.refusals - 1, 10)))


def as_it_differs(entry: JobEntry, power: HostPower, now_s: float) -> Iterator[Effect]:
    """Takes over the size of a run that has differed from what it was told for DIFFERS_S. Call it after each
    observation of the run."""
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
    """The number of workers in the plan of the run's last status; 0: there is no status yet."""
    status = entry.seen.status if entry.seen is not None else None
    return status.plan.workers if status is not None else 0


def _as_it_is(entry: JobEntry, power: HostPower) -> Iterator[Effect]:
    """Changes the entry to the mode of the run's present number of workers. Does nothing if no mode has that number."""
    has, placed = _workers(entry), entry.placed
    if placed is None or has in (0, placed.mode.workers):
        return
    demand = entry.demand(power, has)
    index = next((at for at, mode in enumerate(demand.modes) if mode.workers == has), None)
    if index is None:
        return
    reason = (
        f"its run does not have the {plural(placed.mode.workers, 'worker')} that it was told to have; the dispatcher "
        "plans with its present size"
    )
    placement = msgspec.structs.replace(placed.placement, mode=index)
    entry.placed = msgspec.structs.replace(placed, demand=demand, placement=placement)
    yield NoteEvent(JobShared(entry.job, plural(has, "worker"), (), reason))
