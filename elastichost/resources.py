"""The resources of a host, and the part of them that a job may use: cores, memory, GPU memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

__all__ = [
    "GpuDevice",
    "HostInventory",
    "OtherHost",
    "Parallelism",
    "Resources",
    "bounds_of",
    "core_budget",
    "core_list",
    "gpu_budget",
    "memory_budget_bytes",
]

# a word ("auto", "all"), a number, or [min, max]
Parallelism = str | int | tuple[int, int] | list[int]

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Amounts of cores, memory and GPU memory: a demand, a budget, or the free part of a budget."""

    cores: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cores + other.cores,
            self.memory_bytes + other.memory_bytes,
            self.gpu_memory_bytes + other.gpu_memory_bytes,
        )

    def __sub__(self, other: Resources) -> Resources:
        """Raises ValueError when `other` does not fit in, because amounts are never negative."""
        if not other.fits_in(self):
            raise ValueError(f"{other} does not fit in {self}")
        return Resources(
            self.cores - other.cores,
            self.memory_bytes - other.memory_bytes,
            self.gpu_memory_bytes - other.gpu_memory_bytes,
        )

    def fits_in(self, budget: Resources) -> bool:
        return (
            self.cores <= budget.cores
            and self.memory_bytes <= budget.memory_bytes
            and self.gpu_memory_bytes <= budget.gpu_memory_bytes
        )


class GpuDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU; `index` is NVML's, as `nvidia-smi` shows it. memory_bytes: the memory that may be used; total_bytes: the
    memory of the whole device, 0 when that is the same. uuid: as CUDA_VISIBLE_DEVICES takes it, "" if it is not known.
    near_cores: cores of the part of the host (NUMA) that the GPU belongs to; (): not known. link_bytes_per_s: that the
    link to the GPU can carry in one direction; 0.0: not known."""

    index: int
    name: str
    memory_bytes: int
    total_bytes: int = 0
    uuid: str = ""
    near_cores: tuple[int, ...] = ()
    link_bytes_per_s: float = 0.0

    @property
    def share(self) -> float:
        """The share of the device's memory that may be used."""
        return self.memory_bytes / self.total_bytes if self.total_bytes else 1.0


class HostInventory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cores, memory and GPUs that this process may use, within its affinity mask and cgroup limits."""

    cores: tuple[int, ...]
    memory_bytes: int
    gpus: tuple[GpuDevice, ...] = ()

    @property
    def resources(self) -> Resources:
        return Resources(len(self.cores), self.memory_bytes, sum(gpu.memory_bytes for gpu in self.gpus))


class OtherHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another machine of a run, and what the run may use of it. arena_root: the directory in which it keeps rows.
    free_bytes: in the file system of that directory. budget_bytes: memory."""

    name: str
    cores: tuple[int, ...]
    arena_root: str
    free_bytes: int
    budget_bytes: int


def memory_budget_bytes(setting: str | int, total_bytes: int) -> int:
    """The bytes of "80%" (of `total_bytes`), "4GiB", "500MB" or a plain number, at most `total_bytes`.

    Raises ValueError for any other text.
    """
    if isinstance(setting, int):
        return min(setting, total_bytes)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|[KMGT]?i?B?)\s*", setting, flags=re.IGNORECASE)
    if match is None:
        raise ValueError(f"{setting!r} is not an amount of memory")
    number, unit = float(match.group(1)), match.group(2).upper()
    if unit == "%":
        return min(int(total_bytes * number / 100), total_bytes)
    unit = unit if unit.endswith("B") or not unit else unit + "B"
    return min(int(number * _UNITS[unit or "B"]), total_bytes)


def bounds_of(setting: Parallelism, automatic: int) -> tuple[int, int]:
    """(low, high) of a word ("auto", "all"), a number, or [low, high]. A word means `automatic` for both."""
    if isinstance(setting, str):
        return automatic, automatic
    if isinstance(setting, int):
        return setting, setting
    low, high = setting
    return low, high


def core_budget(setting: Parallelism, available: tuple[int, ...]) -> tuple[int, ...]:
    """The cores that a job may use: the first n of the available ones; with [min, max], n is max. At least one."""
    _, high = bounds_of(setting, len(available))
    return available[: max(1, min(high, len(available)))]


def gpu_budget(setting: Parallelism, available: tuple[GpuDevice, ...]) -> tuple[GpuDevice, ...]:
    """The GPUs that a job may use: the first n of the available ones; "auto" means all. The result is shorter when
    fewer are available: the caller reports that."""
    _, high = bounds_of(setting, len(available))
    return available[:high]


def core_list(cores: Iterable[int]) -> str:
    """(0, 1, 2, 5) -> "0-2,5"."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
