"""Stops jobs, and decides what happens to a job that ended before it was done: requeued, cancelled, kept or failed.
Pure, except that functions change the entry."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from elastichost.dispatcher.core.effects import Effect, KillJob, NoteEvent, ResizeJob, StopJob
from elastichost.dispatcher.core.entries import COMPUTING_NICE, JobEntry, StopCause
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent
from elastichost.dispatcher.core.oom_containment import Act
from elastichost.dispatcher.facts import JobFailure
from elastichost.errors import ExitCode, GpuMemoryError, MemoryBudgetError, RestartBudgetError
from elastichost.runs.events import JobCancelled, JobFailed, JobMemoryActed, JobRequeued, JobStopped, JobStopping
from elastichost.tuner.colocation import ledger as ledgers
from elastichost.tuner.colocation.facts import HostCapacity, PlacedJob

__all__ = [
    "MOST_NOT_STARTED",
    "MOST_STARTS",
    "REST_S",
    "SIGKILLED",
    "Ended",
    "asked_to_stop",
    "at_memory_limit",
    "broken_off",
    "contained",
    "ended_before",
    "failed",
    "is_gpu_oom",
    "not_examined",
    "start_hint",
]

OUT_OF_MEMORY = ("MemoryBudgetError", "ArenaFullError")
SIGKILLED = -9
MOST_STARTS = 5  # a job that was started this often is not requeued again, and fails
REST_S = 10.0  # after an eviction or a failed fork; the next start does not wait for it if no other job runs
MOST_NOT_STARTED = 3  # retries when the fork of a supervisor or of an examination fails


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job's process. role: `processes.JOB` or `processes.CHECK`. code: exit code, or minus a signal
    number; None: the process could not be forked. cause: the same in words. cpu_s: CPU seconds of it and of its
    descendants that have ended. number: errno of the error because of which it could not be forked; 0: not known."""

    role: str
    job: str
    incarnation: int
    code: int | None
    cause: str
    cpu_s: float = 0.0
    number: int = 0


def asked_to_stop(entry: JobEntry, cause: StopCause, why: str) -> tuple[Effect, ...]:
    """Asks the supervisor of a live job to save and exit. A cancelled job stays cancelled, whatever the later cause."""
    entry.stop_cause = cause if entry.stop_cause != "cancel" else "cancel"
    if entry.state == "stopping":
        return ()  # a second signal would end the supervisor before it has saved
    entry.apply(JobLifecycleEvent.STOP, why)
    return StopJob(entry.job), NoteEvent(JobStopping(entry.job, why))


def contained(entry: JobEntry, act: Act) -> Iterator[Effect]:
    """Yields the effects of one act of `oom_containment`."""
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


def broken_off(
    entry: JobEntry,
    placed: PlacedJob,
    ended: Ended,
    failure: JobFailure | None,
    room: HostCapacity,
    now_s: float,
) -> tuple[Effect, ...]:
    """Decides what happens to a job whose supervisor ended before the job was done.

    placed: its placement. failure: what the supervisor wrote; None: nothing. room: the resources of the host."""
    code, cause = ended.code, ended.cause
    asked, entry.stop_cause = entry.stop_cause, ""
    if asked == "cancel":
        entry.apply(JobLifecycleEvent.CANCEL, "cancelled")
        return (NoteEvent(JobCancelled(entry.job, str(entry.request.run_dir))),)
    if asked == "host":
        entry.apply(JobLifecycleEvent.KEEP, "the dispatcher stopped")
        is_saved = code == ExitCode.STOPPED_RESUMABLE
        return (NoteEvent(JobStopped(entry.job, str(entry.request.run_dir), is_saved, "" if is_saved else cause)),)
    if code is None:
        return _not_started(entry, ended, now_s)
    entry.not_started = 0
    if failure is not None and is_gpu_oom(failure) and placed.mode.is_gpu:
        return _out_of_gpu_memory(entry, placed, _words(failure, cause), room)
    is_oom = asked == "memory" or (failure is not None and failure.kind in OUT_OF_MEMORY)
    if is_oom or (code == SIGKILLED and asked == ""):
        return _out_of_memory(entry, placed, _words(failure, cause), room)
    if asked == "evict" and failure is None:  # with any code: a run that has not trained saves nothing
        entry.not_before_s, entry.nice = now_s + REST_S, COMPUTING_NICE
        peak = _peak_bytes(entry, placed)
        waiting = ledgers.after_eviction(placed.demand, placed.placement.mode, peak, 0, room, 0.0)
        entry.raised *= waiting.modes[placed.placement.mode].memory_bytes / max(1, placed.mode.memory_bytes)
        return _requeue(entry, "evicted; it continues when there is room")
    return failed(entry, failure, cause)


def _peak_bytes(entry: JobEntry, placed: PlacedJob) -> int:
    """The peak that the job would have had with its present size. It may have been seen with more workers, so it is
    taken as a share of the estimate for the size that it was seen with."""
    return round(entry.peak_bytes * placed.mode.memory_bytes / max(1, entry.estimated_bytes))


def _out_of_memory(entry: JobEntry, placed: PlacedJob, words: str, room: HostCapacity) -> tuple[Effect, ...]:
    """Requeues the job with a raised estimate, to run alone. It fails if it already ran alone."""
    entry.out_of_memory += 1
    raised = ledgers.after_oom(placed.demand, placed.placement.mode, _peak_bytes(entry, placed), room)
    if isinstance(raised, ledgers.AdmissionRefusal):
        return _failed(entry, f"{raised.reason}: {words}")
    estimate = max(1, placed.mode.memory_bytes)
    entry.raised *= raised.modes[placed.placement.mode].memory_bytes / estimate
    entry.alone = True
    return _requeue(entry, f"ran out of memory ({words}); it starts once more, alone")


def is_gpu_oom(failure: JobFailure) -> bool:
    """Whether a worker ran out of GPU memory, once or until its restart budget was used up."""
    return GpuMemoryError.__name__ in (failure.kind, failure.last_error)


def _out_of_gpu_memory(entry: JobEntry, placed: PlacedJob, words: str, room: HostCapacity) -> tuple[Effect, ...]:
    """Requeues the job with a raised estimate, to run alone. If it already ran alone, the job continues on the CPU; it
    fails if it has no modes there."""
    assert entry.examined is not None
    entry.out_of_memory += 1
    sizes = entry.examined.memory
    raised = ledgers.after_oom(placed.demand, placed.placement.mode, placed.charged_gpu_bytes, room, "gpu")
    if isinstance(raised, ledgers.AdmissionRefusal):
        left = tuple(size for size in sizes if not size.gpu_bytes)
        if not left:
            return _failed(entry, f"{raised.reason}: {words}")
        entry.examined = msgspec.structs.replace(entry.examined, memory=left, gpus=0)
        entry.alone = False  # it needs no GPU memory on the CPU
        return _requeue(entry, f"{raised.reason}; it continues on the CPU ({words})")
    factor = raised.modes[placed.placement.mode].gpu_memory_bytes / max(1, placed.mode.gpu_memory_bytes)
    grown = tuple(msgspec.structs.replace(size, gpu_bytes=round(size.gpu_bytes * factor)) for size in sizes)
    entry.examined, entry.alone = msgspec.structs.replace(entry.examined, memory=grown), True
    return _requeue(entry, f"ran out of GPU memory ({words}); it starts once more, alone")


def _not_started(entry: JobEntry, ended: Ended, now_s: float) -> tuple[Effect, ...]:
    """Requeues a job whose supervisor could not be forked, or fails it after MOST_NOT_STARTED retries. The cause is the
    host and may pass, so this does not count as a start of the job."""
    entry.starts = max(0, entry.starts - 1)
    entry.started_s = entry.started_s if entry.starts else None
    entry.not_started += 1
    if entry.not_started > MOST_NOT_STARTED:
        return _failed(entry, _never_started(entry, "its supervisor", ended))
    entry.not_before_s = now_s + REST_S
    return _requeue(entry, _tried_again(entry, "its supervisor", ended))


def not_examined(entry: JobEntry, ended: Ended) -> tuple[Effect, ...]:
    """Keeps a job waiting whose examination could not be forked, or fails it after MOST_NOT_STARTED retries."""
    entry.not_started += 1
    if entry.not_started > MOST_NOT_STARTED:
        return _failed(entry, _never_started(entry, "its examination", ended))
    entry.why = _tried_again(entry, "its examination", ended)
    entry.ended_s = None
    return (NoteEvent(JobRequeued(entry.job, entry.why)),)


def _tried_again(entry: JobEntry, what: str, ended: Ended) -> str:
    tries = f"{entry.not_started} of {MOST_NOT_STARTED}"
    return f"{what} could not be started ({ended.cause}); the dispatcher tries again ({tries})"


def _never_started(entry: JobEntry, what: str, ended: Ended) -> str:
    times, hint = MOST_NOT_STARTED + 1, start_hint(ended.number, entry.request.folder)
    hint = hint or "check the limit on processes (ulimit -u) and the free memory"
    return f"{what} could not be started {times} times: {ended.cause} -> {hint}, then submit the job again"


def start_hint(number: int, folder: str) -> str:
    """What to do about the error of the operating system because of which a process of a job could not be started, or
    its log not be opened; "": nothing is known. number: its errno. folder: of the job."""
    match number:
        case errno.ENOSPC | errno.EDQUOT:
            return f"the disk or the quota of {folder} is full: free some space there"
        case errno.EMFILE:
            return "raise the limit on open files of a process (ulimit -n)"
        case errno.ENFILE:
            return "raise the limit on open files of all processes (sysctl fs.file-max), or end some processes"
        case errno.EAGAIN:
            return "raise the limit on processes (ulimit -u, or pids.max of the cgroup), or end some processes"
        case errno.ENOMEM:
            return "free some memory"
        case _:
            return ""


def _requeue(entry: JobEntry, why: str) -> tuple[Effect, ...]:
    """Puts the job back in the queue, or fails it after MOST_STARTS starts."""
    if entry.starts >= MOST_STARTS:
        return _failed(entry, f"started {entry.starts} times and never completed: {why}")
    entry.apply(JobLifecycleEvent.REQUEUE, why)
    entry.ended_s = None
    return (NoteEvent(JobRequeued(entry.job, why)),)


def _failed(entry: JobEntry, words: str) -> tuple[Effect, ...]:
    entry.apply(JobLifecycleEvent.FAIL, words)
    return (NoteEvent(JobFailed(entry.job, words)),)


def failed(entry: JobEntry, failure: JobFailure | None, cause: str) -> tuple[Effect, ...]:
    """Fails the job for good. failure: what its process wrote; None: `cause` is the reason."""
    return _failed(entry, _words(failure, cause))


def _words(failure: JobFailure | None, cause: str) -> str:
    if failure is None:
        return cause
    words = f"{failure.kind}: {failure.message}"
    return f"{words} -> {failure.hint}" if failure.hint else words


def at_memory_limit(code: int | None, failure: JobFailure | None, oom_kills: int) -> JobFailure | None:
    """The failure of a job whose processes the kernel has killed at its memory limit, `oom_kills` of them. Otherwise
    `failure`: the job may have gone on after the kills, and ended later for another reason."""
    has_ended_well = code in (0, ExitCode.STOPPED_RESUMABLE)
    is_other = failure is not None and failure.kind != RestartBudgetError.__name__
    if not oom_kills or has_ended_well or is_other:
        return failure
    text = f"the kernel killed {oom_kills} of its processes at its memory limit"
    return JobFailure(MemoryBudgetError.__name__, text)


def ended_before(entries: Iterable[JobEntry], most: int, busy: Collection[str]) -> tuple[str, ...]:
    """The jobs that have ended for good, without the `most` that ended last and without the `busy` ones."""
    over = sorted((entry for entry in entries if entry.is_over), key=lambda entry: entry.ended_s or 0.0)
    return tuple(entry.job for entry in over[: max(0, len(over) - most)] if entry.job not in busy)
