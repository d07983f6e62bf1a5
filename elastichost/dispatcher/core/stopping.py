"""Jobs that are asked to end: cancelled, evicted, short of memory, or the host stops. Pure, but for the entry."""

from __future__ import annotations

from collections.abc import Iterator

from elastichost.dispatcher.core.effects import Effect, KillJob, NoteEvent, ResizeJob, StopJob
from elastichost.dispatcher.core.entries import JobEntry, StopCause
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent
from elastichost.dispatcher.core.oom_containment import Act
from elastichost.runs.events import JobMemoryActed, JobStopping

__all__ = ["asked_to_stop", "contained"]


def asked_to_stop(entry: JobEntry, cause: StopCause, why: str) -> tuple[Effect, ...]:
    """A job that has a process. Who is cancelled stays so, whatever else it is asked for."""
    entry.stop_cause = cause if entry.stop_cause != "cancel" else "cancel"
    if entry.state == "stopping":
        return ()  # asked a second time, a supervisor ends without saving
    entry.apply(JobLifecycleEvent.STOP, why)
    return StopJob(entry.job), NoteEvent(JobStopping(entry.job, why))


def contained(entry: JobEntry, act: Act) -> Iterator[Effect]:
    """One act when jobs together use more than there is, or do no more."""
    yield NoteEvent(JobMemoryActed(act.job, act.kind, act.reason, act.limit_bytes))
    if act.kind in ("tighten", "loosen"):
        yield ResizeJob(act.job, memory_bytes=act.limit_bytes)
    elif act.kind == "evict" and entry.state in ("starting", "running", "paused"):
        yield from asked_to_stop(entry, "memory", act.reason)
    elif act.kind == "kill":
        if entry.state != "stopping":
            entry.apply(JobLifecycleEvent.STOP, act.reason)
        entry.stop_cause = "cancel" if entry.stop_cause == "cancel" else "memory"
        yield KillJob(act.job)
