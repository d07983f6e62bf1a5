"""Describes the machine on which a benchmark ran."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Machine", "read_machine"]

PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "numba", "numpy", "pyarrow", "pyzmq")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the software. `cores`: number of cores that this process may use. `versions`: of Python and of
    packages, by name."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    versions: Mapping[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.cpu}, {self.cores} cores, {self.memory_bytes / 2**30:.0f} GiB, {self.system}; {versions}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_machine(more_versions: Mapping[str, str] | None = None) -> Machine:
    """The machine of this process. `more_versions`: of software that other processes use. Packages that are not
    installed are left out."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return Machine(_cpu(), cores, memory_bytes, platform.platform(), {**versions, **(more_versions or {})})


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
