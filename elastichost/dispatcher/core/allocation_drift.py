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

from elastichost.clock.backoff import backoff_s
from elastichost.dispatcher.core.demands import HostPower
from elastichost.dispatcher.core.effects import ConfineJob, Effect, NoteEvent, ResizeJob
from elastichost.dispatcher.core.entries import JobEntry
from elastichost.dispatcher.facts import Size
from elastichost.human_readable import plural
from elastichost.runs.events import JobShared
from elastichost.tuner.facts import Configuration

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
    return backoff_s(entry.refusals, REST_S, MOST_REST_S)


def as_it_differs(entry: JobEntry, power: HostPower, now_s: float) -> Iterator[Effect]:
    """Takes over the size of a run that has differed from what it was told for DIFFERS_S. Call it after each
    observation of the run."""
    is_open = entry.examined is not None and entry.examined.size_is_open
    if entry.placed is None or entry.state != "running" or not is_open or _size(entry) in (None, _told(entry)):
        entry.differs_since_s = None
    elif entry.differs_since_s is None:
        entry.differs_since_s = now_s
    elif now_s - entry.differs_since_s >= DIFFERS_S:
        entry.differs_since_s = None
        yield from _as_it_is(entry, power)


def _size(entry: JobEntry) -> Size | None:
    """The size of the plan in the run's last status; None: there is no status, or no worker, yet. Its PS and threads
    differ from those that the entry has only if a proposal of the run's own tuner was granted."""
    status, told = entry.seen.status if entry.seen is not None else None, _told(entry)
    if status is None or not status.plan.workers or told is None:
        return None
    if entry.granted is None:
        return msgspec.structs.replace(told, workers=status.plan.workers)
    return Size(status.plan.workers, status.plan.servers, status.plan.worker_cores or told.worker_cores)


def _told(entry: JobEntry) -> Size | None:
    """The size that the entry has."""
    mode = entry.placed.mode if entry.placed is not None else None
    return Size(mode.workers, mode.servers, mode.worker_cores) if mode is not None else None


def _as_it_is(entry: JobEntry, power: HostPower) -> Iterator[Effect]:
    """Changes the entry to the run's present size. Does nothing if no mode has that number of workers."""
    has, told = _size(entry), _told(entry)
    if has is None or told is None or has == told or not entry.becomes(has, power):
        return
    words = [plural(one.workers, "worker") for one in (has, told)]
    if has.workers == told.workers:
        words = [str(Configuration(one.workers, one.servers, one.worker_cores)) for one in (has, told)]
    reason = (
        f"its run does not have the {words[1]} that it was told to have; the dispatcher plans with its present size"
    )
    yield NoteEvent(JobShared(entry.job, words[0], (), reason))
