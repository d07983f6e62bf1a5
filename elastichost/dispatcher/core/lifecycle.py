"""The lifecycle of a job on a host: the table of its states and transitions. Pure."""

from __future__ import annotations

from enum import StrEnum

from elastichost.dispatcher.facts import JobState
from elastichost.errors import IllegalTransitionError

__all__ = ["JobLifecycleEvent", "next_state"]


class JobLifecycleEvent(StrEnum):
    """What happens to a job. "It" below is the job's supervisor."""

    START = "start"  # the dispatcher asked the launcher for it
    TRAINS = "trains"  # the dispatcher saw the first trained samples
    PAUSE = "pause"  # all processes of the job are stopped, and keep their memory
    RESUME = "resume"
    STOP = "stop"  # it is asked to save and exit, or killed: eviction, cancellation, or the dispatcher stops
    REQUEUE = "requeue"  # it ended, and the job starts again later
    DONE = "done"
    FAIL = "fail"
    CANCEL = "cancel"  # the user cancelled the job, and it ended or never started
    KEEP = "keep"  # the dispatcher stops, and it ended or never started; the job can be resumed


_TABLE: dict[tuple[JobState, JobLifecycleEvent], JobState] = {
    ("waiting", JobLifecycleEvent.START): "starting",
    ("waiting", JobLifecycleEvent.CANCEL): "cancelled",  # without "stopping": there is no process to stop
    ("waiting", JobLifecycleEvent.KEEP): "stopped",
    ("waiting", JobLifecycleEvent.FAIL): "failed",  # examination failed, or the host is too small for it
    ("starting", JobLifecycleEvent.TRAINS): "running",
    ("starting", JobLifecycleEvent.STOP): "stopping",
    ("starting", JobLifecycleEvent.REQUEUE): "waiting",  # out of memory before it trained
    ("starting", JobLifecycleEvent.DONE): "done",  # a short job that ended before its first observation
    ("starting", JobLifecycleEvent.FAIL): "failed",
    ("running", JobLifecycleEvent.PAUSE): "paused",
    ("running", JobLifecycleEvent.STOP): "stopping",
    (
        "running",
        JobLifecycleEvent.REQUEUE,
    ): "waiting",  # killed out of memory: the next run continues from a checkpoint or from the start
    ("running", JobLifecycleEvent.DONE): "done",
    ("running", JobLifecycleEvent.FAIL): "failed",
    ("paused", JobLifecycleEvent.RESUME): "running",
    ("paused", JobLifecycleEvent.STOP): "stopping",  # its processes are continued first
    ("paused", JobLifecycleEvent.REQUEUE): "waiting",
    ("paused", JobLifecycleEvent.DONE): "done",  # it ended before SIGSTOP arrived
    ("paused", JobLifecycleEvent.FAIL): "failed",
    ("stopping", JobLifecycleEvent.REQUEUE): "waiting",  # evicted
    ("stopping", JobLifecycleEvent.DONE): "done",  # it completed before it stopped
    ("stopping", JobLifecycleEvent.FAIL): "failed",
    ("stopping", JobLifecycleEvent.CANCEL): "cancelled",
    ("stopping", JobLifecycleEvent.KEEP): "stopped",
}


def next_state(state: JobState, event: JobLifecycleEvent) -> JobState:
    """Returns the state after an event. Raises IllegalTransitionError when the state does not allow the event."""
    try:
        return _TABLE[state, event]
    except KeyError:
        raise IllegalTransitionError("job", state, event) from None
