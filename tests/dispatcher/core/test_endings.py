"""Processes that could not be forked, and jobs that need more memory than a GPU has."""

from __future__ import annotations

import errno

import msgspec
import pytest

from elastichost.dispatcher.core.demands import MemoryOfSize
from elastichost.dispatcher.core.effects import ExamineJob
from elastichost.dispatcher.core.endings import MOST_NOT_STARTED, REST_S, at_memory_limit, is_gpu_oom
from elastichost.dispatcher.facts import JobFailure
from elastichost.resources import GpuDevice
from elastichost.runs.events import JobRequeued
from tests.dispatcher.jobs import INVENTORY, MB, TOGETHER, Hosted, examined, hosted, request, running

NO_FORK = "fork: Resource temporarily unavailable"
OUT_OF_GPU = JobFailure("GpuMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")

# --- not forked -------------------------------------------------------------------------------------------------------


def test_a_job_whose_process_cannot_be_forked_waits_and_is_tried_again() -> None:
    host = running("other")
    host.submit("a")
    assert host.tick(1.0) == ["a"]
    host.end("a", None, 2.0, NO_FORK)
    job = host.job("a")
    assert (job.state, job.starts, job.charged_bytes, job.ended_s) == ("waiting", 0, 0, None)
    assert job.started_s is None
    reason = f"its supervisor could not be started ({NO_FORK}); the dispatcher tries again (1 of 3)"
    assert host.noted(JobRequeued) == [JobRequeued("a", reason)]
    assert host.tick(3.0) == [], "the next try comes after a rest"
    assert host.tick(2.1 + REST_S) == ["a"]
    host.see("a", 14.0)
    host.end("a", 0, 15.0)
    assert (host.job("a").state, host.job("a").starts) == ("done", 1)


def test_a_job_whose_process_can_never_be_forked_fails() -> None:
    host = hosted()
    host.submit("a")
    for number in range(MOST_NOT_STARTED + 1):
        assert host.tick(100.0 * number) == ["a"]
        host.end("a", None, 100.0 * number + 1, NO_FORK)
    assert host.job("a").state == "failed"
    assert host.job("a").why.startswith(f"its supervisor could not be started 4 times: {NO_FORK} -> ")


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "the disk or the quota of /host/jobs/a is full: free some space there"),
        (errno.EDQUOT, "the disk or the quota of /host/jobs/a is full: free some space there"),
        (errno.EMFILE, "raise the limit on open files of a process (ulimit -n)"),
        (errno.ENFILE, "raise the limit on open files of all processes (sysctl fs.file-max), or end some processes"),
        (errno.EAGAIN, "raise the limit on processes (ulimit -u, or pids.max of the cgroup), or end some processes"),
        (errno.ENOMEM, "free some memory"),
        (0, "check the limit on processes (ulimit -u) and the free memory"),
    ],
)
def test_the_hint_fits_the_error_of_the_operating_system(number: int, hint: str) -> None:
    supervised, examined_only = hosted(), hosted()
    supervised.submit("a")
    examined_only.did(examined_only.core.submit(request("a"), 0.0))
    for try_number in range(MOST_NOT_STARTED + 1):
        supervised.tick(100.0 * try_number)
        for host in (supervised, examined_only):
            host.end("a", None, 100.0 * try_number + 1, "no", number=number)
    for host in (supervised, examined_only):
        assert host.job("a").why.endswith(f"could not be started 4 times: no -> {hint}, then submit the job again")


@pytest.mark.parametrize(("how", "state"), [("cancel", "cancelled"), ("stop", "stopped")])
def test_a_job_that_was_cancelled_or_stopped_is_not_tried_again(how: str, state: str) -> None:
    host = hosted()
    host.submit("a")
    host.tick(0.0)
    host.did(host.core.cancel("a", 1.0) if how == "cancel" else host.core.stop(1.0))
    host.end("a", None, 2.0, NO_FORK)
    assert host.job("a").state == state


def test_an_examination_that_cannot_be_forked_is_tried_again_after_a_rest() -> None:
    host = hosted()
    host.did(host.core.submit(request("a"), 0.0))
    for number in range(1, MOST_NOT_STARTED + 1):
        host.end("a", None, 1.0, NO_FORK)
        assert (host.job("a").state, host.job("a").ended_s) == ("waiting", None)
        (requeued,) = host.noted(JobRequeued)
        assert requeued.job == "a" and f"the dispatcher tries again ({number} of 3)" in requeued.reason
        assert ExamineJob("a", REST_S) in host.effects
    host.did(host.core.examined(examined("a"), 2.0))
    assert host.tick(3.0) == ["a"]
    other = hosted()
    other.did(other.core.submit(request("a"), 0.0))
    for _ in range(MOST_NOT_STARTED + 1):
        other.end("a", None, 1.0, NO_FORK)
    assert other.job("a").state == "failed"
    assert "its examination could not be started 4 times" in other.job("a").why
    assert other.core.is_empty


def test_an_examination_that_the_kernel_killed_is_tried_again() -> None:
    host = hosted()
    host.did(host.core.submit(request("a"), 0.0))
    host.end("a", -9, 1.0, "signal 9 (SIGKILL)")
    assert host.job("a").state == "waiting" and ExamineJob("a", REST_S) in host.effects
    host.end("a", -9, 2.0, failure=JobFailure("ModelError", "the model cannot be built"))
    assert host.job("a").state == "failed", "it told why"


# --- GPU memory -------------------------------------------------------------------------------------------------------


def on_gpu(*sizes: MemoryOfSize) -> Hosted:
    """Returns a host with one job that trains on the GPU, where it is fastest. sizes: its other sizes, with fewer
    workers."""
    inventory = msgspec.structs.replace(INVENTORY, gpus=(GpuDevice(0, "gpu", 8000 * MB),))
    host = hosted(10_000, TOGETHER, inventory)
    memory = (*sizes, MemoryOfSize(1 + len(sizes), 1000 * MB, 2000 * MB))
    found = examined("a", least=1, most=len(memory))
    host.did(host.core.submit(request("a"), 0.0))
    host.did(host.core.examined(msgspec.structs.replace(found, memory=memory, gpus=1), 0.0))
    host.tick(0.0)
    host.see("a")
    assert host.job("a").gpu == 0
    return host


def test_a_job_out_of_gpu_memory_runs_alone_with_an_unchanged_estimate_of_host_memory() -> None:
    host = on_gpu()
    host.end("a", 1, 2.0, failure=OUT_OF_GPU)
    assert (host.job("a").state, host.job("a").out_of_memory) == ("waiting", 1)
    assert host.tick(3.0) == ["a"]
    assert host.job("a").estimated_bytes == 1000 * MB
    assert host.spawns[-1].lent.gpu_memory_bytes >= 3000 * MB
    host.end("a", 1, 4.0, failure=OUT_OF_GPU)
    assert host.job("a").state == "failed", "the job has no size without a GPU"
    assert "ran out of GPU memory" in host.job("a").why and "Tried to allocate" in host.job("a").why


def test_a_job_out_of_gpu_memory_even_alone_continues_on_the_cpu() -> None:
    host = on_gpu(MemoryOfSize(1, 1500 * MB))
    host.end("a", 1, 2.0, failure=OUT_OF_GPU)
    host.tick(3.0)
    assert host.job("a").gpu == 0
    host.end("a", 1, 4.0, failure=OUT_OF_GPU)
    assert host.job("a").state == "waiting"
    (requeued,) = host.noted(JobRequeued)
    assert requeued.job == "a" and "it continues on the CPU" in requeued.reason
    host.submit("b", now_s=5.0)
    assert sorted(host.tick(50.0)) == ["a", "b"], "the job need not run alone any more"
    spawn = next(spawn for spawn in host.spawns[::-1] if spawn.job == "a")
    assert spawn.lent.gpu is None
    assert host.job("a").estimated_bytes == 1500 * MB


@pytest.mark.parametrize(
    "failure",
    [
        OUT_OF_GPU,
        JobFailure("RestartBudgetError", "worker-0 ended 4 times", last_error="GpuMemoryError"),
    ],
)
def test_typed_errors_decide_what_is_out_of_gpu_memory(failure: JobFailure) -> None:
    assert is_gpu_oom(failure)
    assert not is_gpu_oom(JobFailure("MemoryBudgetError", "resources.memory allows 1 MB"))
    # the message does not count: a model may raise any text
    assert not is_gpu_oom(JobFailure("JobFailedError", "ValueError: CUDA out of memory"))


def test_an_error_is_shown_with_its_hint() -> None:
    host = running("a")
    host.end("a", 1, failure=JobFailure("ZeroDivisionError", "by zero", "the traceback is at the end of x.log"))
    assert host.job("a").why == "ZeroDivisionError: by zero -> the traceback is at the end of x.log"


@pytest.mark.parametrize(
    ("code", "failure", "is_oom"),
    [
        (-9, None, True),
        (1, JobFailure("RestartBudgetError", "a worker ended 4 times"), True),
        (1, JobFailure("DataError", "row 7: label is 3"), False),
        (75, None, False),
        (0, None, False),
    ],
)
def test_a_job_that_has_lost_a_process_at_its_limit_may_end_for_another_reason(
    code: int, failure: JobFailure | None, is_oom: bool
) -> None:
    assert at_memory_limit(code, failure, 0) is failure
    found = at_memory_limit(code, failure, 2)
    assert (found is not failure) is is_oom
    assert not is_oom or (found is not None and found.kind == "MemoryBudgetError")
