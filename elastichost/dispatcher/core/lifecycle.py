"""The life of a job on a host: one table of what may happen in which state. Pure."""

from __future__ import annotations

from enum import StrEnum

from elastichost.dispatcher.facts import JobState
from elastichost.errors import IllegalTransitionError

__all__ = ["JobLifecycleEvent", "next_state"]


class JobLifecycleEvent(StrEnum):
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


_TABLE: dict[tuple[JobState, JobLifecycleEvent], JobState] = {
    ("waiting", JobLifecycleEvent.START): "starting",
    ("waiting", JobLifecycleEvent.CANCEL): "cancelled",  # it has no process to be stopped
    ("waiting", JobLifecycleEvent.KEEP): "stopped",
    ("waiting", JobLifecycleEvent.FAIL): "failed",  # it fits nowhere, or was started too often
    ("starting", JobLifecycleEvent.TRAINS): "running",
    ("starting", JobLifecycleEvent.STOP): "stopping",
    ("starting", JobLifecycleEvent.REQUEUE): "waiting",  # out of memory before it trained
    ("starting", JobLifecycleEvent.DONE): "done",  # a short job: it was over before it was looked at
    ("starting", JobLifecycleEvent.FAIL): "failed",
    ("running", JobLifecycleEvent.PAUSE): "paused",
    ("running", JobLifecycleEvent.STOP): "stopping",
    (
        "running",
        JobLifecycleEvent.REQUEUE,
    ): "waiting",  # killed for want of memory: there is a checkpoint, or a new beginning
    ("running", JobLifecycleEvent.DONE): "done",
    ("running", JobLifecycleEvent.FAIL): "failed",
    ("paused", JobLifecycleEvent.RESUME): "running",
    ("paused", JobLifecycleEvent.STOP): "stopping",  # it is woken for that
    ("paused", JobLifecycleEvent.REQUEUE): "waiting",
    ("paused", JobLifecycleEvent.DONE): "done",  # it had ended when it was to be paused
    ("paused", JobLifecycleEvent.FAIL): "failed",
    ("stopping", JobLifecycleEvent.REQUEUE): "waiting",  # evicted
    ("stopping", JobLifecycleEvent.DONE): "done",  # it was done sooner than stopped
    ("stopping", JobLifecycleEvent.FAIL): "failed",
    ("stopping", JobLifecycleEvent.CANCEL): "cancelled",
    ("stopping", JobLifecycleEvent.KEEP): "stopped",
}


def next_state(state: JobState, event: JobLifecycleEvent) -> JobState:
    """Raises IllegalTransitionError."""
    try:
        return _TABLE[state, event]
    except KeyError:
        raise IllegalTransitionError("job", state, event) from None
