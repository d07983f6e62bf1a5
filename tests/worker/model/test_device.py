"""CPU time of the thread that trains: computing counts, waiting does not."""

from __future__ import annotations

import time

import pytest
import torch

from elastichost.errors import GpuLostError, PreflightError
from elastichost.wire.child import ChildArguments
from elastichost.worker.model.device import choose_device, training_cpu_since


def test_cpu_time_is_of_this_thread_and_without_waiting() -> None:
    began_s, began_cpu_s = time.perf_counter(), time.thread_time()
    time.sleep(0.2)
    waited = training_cpu_since(began_cpu_s, torch.device("cpu"))
    assert waited is not None and waited < 0.1
    while time.thread_time() - began_cpu_s < 0.05:
        pass
    used = training_cpu_since(began_cpu_s, torch.device("cpu"))
    assert used is not None and 0.05 <= used < time.perf_counter() - began_s


def test_cpu_time_is_not_measured_when_a_gpu_computes() -> None:
    assert training_cpu_since(time.thread_time(), torch.device("cuda", 0)) is None


@pytest.mark.parametrize(("cuda", "error"), [(None, PreflightError), ("13.0", GpuLostError)])
def test_a_gpu_that_cuda_does_not_find_may_come_back_and_a_build_without_cuda_does_not(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, error: type[Exception]
) -> None:
    """A PreflightError ends the run; after a GpuLostError the worker is restarted within its budget."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(error, match=r"worker-0\.1 was given GPU 3"):
        choose_device(arguments(gpu=3))
    assert choose_device(arguments(gpu=None)) == torch.device("cpu")


def arguments(gpu: int | None) -> ChildArguments:
    return ChildArguments(
        role="worker",
        index=0,
        incarnation=1,
        job_id=7,
        control_address="",
        run_dir="",
        arena_directory="",
        socket_directory="",
        cores=(0,),
        threads=1,
        access="direct",
        supervisor_pid=1,
        gpu=gpu,
    )
