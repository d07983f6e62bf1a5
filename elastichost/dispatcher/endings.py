"""How a job's process ended, and what becomes of the job. Pure, but for the entry that it changes."""

from __future__ import annotations

from elastichost.dispatcher.effects import Effect, Note
from elastichost.dispatcher.entries import COMPUTING_NICE, JobEntry
from elastichost.dispatcher.facts import Failure
from elastichost.dispatcher.life import JobEvent
from elastichost.errors import ExitCode
from elastichost.tuner.colocation import ledger as ledgers
from elastichost.tuner.colocation.facts import HostRoom, PlacedJob

__all__ = ["MOST_STARTS", "broken_off", "failed"]

OUT_OF_MEMORY = ("MemoryBudgetError", "ArenaFullError")
SIGKILLED = -9
MOST_STARTS = 5  # of one job: who is evicted so often fails
REST_S = 10.0  # of a job that was evicted, unless nothing else runs


def broken_off(
    entry: JobEntry,
    placed: PlacedJob,
    code: int | None,
    cause: str,
    failure: Failure | None,
    room: HostRoom,
    now_s: float,
) -> tuple[Effect, ...]:
    """A job's supervisor ended, and the job is not done. placed: where it ran; code: None: it could not be started."""
    asked, entry.stop_cause = entry.stop_cause, ""
    if asked == "cancel":
        entry.apply(JobEvent.CANCEL, "cancelled")
        return (Note("cancelled", f"cancelled; what it has trained is in {entry.request.run_dir}", entry.job),)
    if asked == "host":
        entry.apply(JobEvent.KEEP, "the host stopped")
        how = "saved" if code == ExitCode.STOPPED_RESUMABLE else f"ended before it could save ({cause})"
        return (Note("stopped", f"{how}; go on with: resume {entry.request.run_dir}", entry.job),)
    is_oom = asked == "memory" or (failure is not None and failure.kind in OUT_OF_MEMORY)
    if is_oom or (code == SIGKILLED and asked == ""):
        return _out_of_memory(entry, placed, _words(failure, cause), room)
    if asked == "evict" and failure is None:  # whatever the code: before it trains there is nothing to save
        entry.not_before_s, entry.nice = now_s + REST_S, COMPUTING_NICE
        waiting = ledgers.after_eviction(placed.demand, placed.placement.mode, entry.peak_bytes, 0, room, 0.0)
        entry.raised *= waiting.modes[placed.placement.mode].memory_bytes / max(1, placed.mode.memory_bytes)
        return _requeue(entry, "evicted: it goes on when there is room")
    return failed(entry, failure, cause)


def _out_of_memory(entry: JobEntry, placed: PlacedJob, words: str, room: HostRoom) -> tuple[Effect, ...]:
    """Once more with a raised estimate, alone; not a third time."""
    entry.out_of_memory += 1
    raised = ledgers.after_oom(placed.demand, placed.placement.mode, entry.peak_bytes, room)
    if isinstance(raised, ledgers.Refusal):
        return _failed(entry, f"{raised.reason}: {words}")
    estimate = max(1, placed.mode.memory_bytes)
    entry.raised *= raised.modes[placed.placement.mode].memory_bytes / estimate
    entry.alone = True
    return _requeue(entry, f"ran out of memory ({words}); once more, alone")


def _requeue(entry: JobEntry, why: str) -> tuple[Effect, ...]:
    if entry.starts >= MOST_STARTS:
        return _failed(entry, f"started {entry.starts} times and never done: {why}")
    entry.apply(JobEvent.REQUEUE, why)
    entry.ended_s = None
    return (Note("requeued", why, entry.job),)


def _failed(entry: JobEntry, words: str) -> tuple[Effect, ...]:
    entry.apply(JobEvent.FAIL, words)
    return (Note("failed", words, entry.job),)


def failed(entry: JobEntry, failure: Failure | None, cause: str) -> tuple[Effect, ...]:
    """By its own fault, or before it was started."""
    return _failed(entry, _words(failure, cause))


def _words(failure: Failure | None, cause: str) -> str:
    return f"{failure.kind}: {failure.message}" if failure is not None else cause
