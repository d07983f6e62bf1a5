"""CPU time of the thread that trains: computing counts, waiting does not."""

from __future__ import annotations

import time

import torch

from elastichost.worker.model.device import training_cpu_since


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
