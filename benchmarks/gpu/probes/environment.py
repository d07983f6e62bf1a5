"""P0 decides what the other figures are compared with: the machine, its limits, and the bandwidths of plain copies."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import statistics
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.device.interface import Device
from benchmarks.gpu.device.mounts import memory_figure_bytes
from benchmarks.gpu.probes.child import attempt, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["run"]

FILES = (
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/overcommit_memory",
    "/proc/version",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
)
PACKAGES = ("torch", "triton", "cuda-bindings", "numpy", "psutil", "nvidia-ml-py", "numba", "cupy-cuda13x")
ATTRIBUTES = (
    "MULTIPROCESSOR_COUNT",
    "L2_CACHE_SIZE",
    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
    "READ_ONLY_HOST_REGISTER_SUPPORTED",
    "PAGEABLE_MEMORY_ACCESS",
    "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES",
    "HOST_NATIVE_ATOMIC_SUPPORTED",
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "COMPUTE_PREEMPTION_SUPPORTED",
    "ASYNC_ENGINE_COUNT",
)


def text_of(path: str) -> str:
    """Returns a file's text or why it cannot be read."""
    try:
        return Path(path).read_text().strip()[:1500]
    except OSError as error:
        return str(error)


def output_of(*command: str) -> str:
    """Returns what a command prints or why it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr).strip()[:3000]


def version_of(package: str) -> str:
    """Returns an installed package's version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def describe_machine() -> None:
    """Says what the machine is."""
    usage = shutil.disk_usage("/dev/shm")
    mounts = [line for line in text_of("/proc/mounts").splitlines() if " /dev/shm " in line or " / " in line]
    say(
        experiment="machine",
        cpus=os.cpu_count(),
        cpu=next((line for line in text_of("/proc/cpuinfo").splitlines() if line.startswith("model name")), ""),
        memory={name: memory_figure_bytes(name) for name in ("MemTotal", "MemAvailable", "Hugepagesize")},
        shm={"total_bytes": usage.total, "free_bytes": usage.free, "mounts": mounts},
        locked_memory_limit=resource.getrlimit(resource.RLIMIT_MEMLOCK),
        files={path: text_of(path) for path in FILES},
        numa=sorted(path.name for path in Path("/sys/devices/system/node").glob("node*")),
        python=platform.python_version(),
        packages={package: version_of(package) for package in PACKAGES},
        programs={name: shutil.which(name) for name in ("nvcc", "gcc", "nvidia-cuda-mps-control", "mount")},
        device_nodes=sorted(str(path) for path in Path("/dev").glob("nvidia*")),
        persistence_daemon=output_of("pgrep", "-a", "nvidia"),
    )
    say(experiment="nvidia-smi", text_of_it=output_of("nvidia-smi"), topology=output_of("nvidia-smi", "topo", "-m"))
    query = "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,persistence_mode"
    say(experiment="pcie", values=output_of("nvidia-smi", f"--query-gpu={query},compute_mode", "--format=csv"))
    say(experiment="bar1", values=output_of("nvidia-smi", "-q", "-d", "MEMORY"))


def measure_copies(device: Device, size: int) -> None:
    """Says GB/s of copies of that many bytes."""
    first, second = device.allocate(size), device.allocate(size)
    pinned = device.allocate_pinned(size)
    pageable = ctypes.create_string_buffer(size)
    ctypes.memset(pageable, 1, size)
    ctypes.memset(pinned, 1, size)
    host = ctypes.addressof(pageable)
    kinds: dict[str, tuple[int, int, str]] = {
        "device_to_device": (second, first, "DtoD"),
        "pinned_to_device": (first, pinned, "HtoD"),
        "device_to_pinned": (pinned, first, "DtoH"),
        "pageable_to_device": (first, host, "HtoD"),
        "device_to_pageable": (host, first, "DtoH"),
    }
    for name, (target, source, direction) in kinds.items():
        rates = []
        for _ in range(4):
            seconds = device.timed_s(lambda t=target, s=source, d=direction: device.copy(t, s, size, d))  # type: ignore[misc]
            rates.append(size / seconds / 1e9)
        say(experiment="copy", kind=name, gb_per_s=statistics.median(rates[1:]), first_gb_per_s=rates[0], bytes=size)
    for address in (first, second):
        device.free(address)
    device.free_pinned(pinned)


def run(setting: Setting, **_others: Any) -> None:
    """Says the machine and the bandwidths."""
    with attempt("machine"):
        describe_machine()
    device = setting.device()
    with attempt("attributes"):
        say(experiment="attributes", values={name: device.attribute(name) for name in ATTRIBUTES})
        say(experiment="device memory", free_and_total_bytes=device.memory_info())
    with attempt("copies"):
        measure_copies(device, setting.gib)
