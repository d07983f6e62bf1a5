"""The life of a job on a host: one table of what may happen in which state. Pure."""

from __future__ import annotations

from enum import StrEnum

from elastichost.dispatcher.facts import JobState
from elastichost.errors import IllegalTransitionError

__all__ = ["JobEvent", "next_state"]


class JobEvent(StrEnum):
    START = "start"  # the dispatcher has asked for its process
    TRAINS = "trains"  # its first samples were seen
    PAUSE = "pause"  # its processes are stopped, its memory stays
    RESUME = "resume"
    STOP = "stop"  # asked to save and end: evicted, cancelled, or the host stops
    REQUEUE = "requeue"  # its process has ended, and it is to go on later
    DONE = "done"
    FAIL = "fail"
    CANCEL = "cancel"  # it has ended because somebody asked for that
    KEEP = "keep"  # it has ended because the host stops; it can be resumed


_TABLE: dict[tuple[JobState, JobEvent], JobState] = {
    ("waiting", JobEvent.START): "starting",
    ("waiting", JobEvent.CANCEL): "cancelled",  # it has no process to be stopped
    ("waiting", JobEvent.KEEP): "stopped",
    ("waiting", JobEvent.FAIL): "failed",  # it fits nowhere, or was started too often
    ("starting", JobEvent.TRAINS): "running",
    ("starting", JobEvent.STOP): "stopping",
    ("starting", JobEvent.REQUEUE): "waiting",  # out of memory before it trained
    ("starting", JobEvent.DONE): "done",  # a short job: it was over before it was looked at
    ("starting", JobEvent.FAIL): "failed",
    ("running", JobEvent.PAUSE): "paused",
    ("running", JobEvent.STOP): "stopping",
    ("running", JobEvent.REQUEUE): "waiting",  # killed for want of memory: there is a checkpoint, or a new beginning
    ("running", JobEvent.DONE): "done",
    ("running", JobEvent.FAIL): "failed",
    ("paused", JobEvent.RESUME): "running",
    ("paused", JobEvent.STOP): "stopping",  # it is woken for that
    ("paused", JobEvent.REQUEUE): "waiting",
    ("paused", JobEvent.DONE): "done",  # it had ended when it was to be paused
    ("paused", JobEvent.FAIL): "failed",
    ("stopping", JobEvent.REQUEUE): "waiting",  # evicted
    ("stopping", JobEvent.DONE): "done",  # it was done sooner than stopped
    ("stopping", JobEvent.FAIL): "failed",
    ("stopping", JobEvent.CANCEL): "cancelled",
    ("stopping", JobEvent.KEEP): "stopped",
}


def next_state(state: JobState, event: JobEvent) -> JobState:
    """Raises IllegalTransitionError."""
    try:
        return _TABLE[state, event]
    except KeyError:
        raise IllegalTransitionError("job", state, event) from None
