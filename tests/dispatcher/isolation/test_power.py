"""The bandwidth of the memory is measured, and processes that use the cores do not lower it."""

from __future__ import annotations

import os
import subprocess
import sys

from elastichost.dispatcher.core.demands import LINK_BYTES_PER_S
from elastichost.dispatcher.isolation.power import power_of
from elastichost.host.inventory import inventory
from elastichost.resources import GpuDevice, HostInventory

HOGS = 4  # on each core


def test_processes_that_only_compute_do_not_lower_the_bandwidth() -> None:
    host = inventory()
    free = power_of(host)
    assert free.cores == len(host.cores) and free.memory_bytes_per_s > 1e8
    busy = "print(flush=True)\nwhile True: pass"
    hogs = [
        subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
        for _ in range(HOGS * len(os.sched_getaffinity(0)))
    ]
    try:
        for hog in hogs:
            assert hog.stdout is not None and hog.stdout.readline()
        assert power_of(host).memory_bytes_per_s >= 0.5 * free.memory_bytes_per_s
    finally:
        for hog in hogs:
            hog.kill()
            hog.communicate()


def test_the_slowest_link_to_a_gpu_counts_and_an_unknown_one_is_assumed() -> None:
    gpus = (
        GpuDevice(0, "a", 1, link_bytes_per_s=5e10),
        GpuDevice(1, "b", 1, link_bytes_per_s=2e10),
        GpuDevice(2, "c", 1),
    )
    assert power_of(HostInventory((0,), 1, gpus)).link_bytes_per_s == 2e10
    assert power_of(HostInventory((0,), 1, gpus[2:])).link_bytes_per_s == LINK_BYTES_PER_S
