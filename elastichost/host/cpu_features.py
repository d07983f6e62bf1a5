"""What of a CPU decides which bits come out of the same arithmetic.

torch, oneDNN, MKL, OpenBLAS and numba choose code by the vendor and the features of the CPU, and by environment
variables that limit them. Sums are then made in another order, so their last bits differ. Features are read as LLVM
names them, which is what numba compiles for; nothing here needs torch, since the agent of a host does not import it.
Threads are no part of it: in sync mode a plan may change them.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import llvmlite.binding
import msgspec

__all__ = ["CpuFeatures", "cpu_differences", "present_cpu"]

# By which users limit what libraries use of a CPU.
SETTINGS = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)


class CpuFeatures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`name`, `features`: as LLVM calls them; `settings`: NAME=value of the environment, of SETTINGS; all sorted."""

    vendor: str
    name: str
    features: tuple[str, ...]
    settings: tuple[str, ...]


@functools.cache
def present_cpu() -> CpuFeatures:
    """Of this machine, for processes that have this environment."""
    found = llvmlite.binding.get_host_cpu_features()
    return CpuFeatures(
        vendor=_vendor(),
        name=llvmlite.binding.get_host_cpu_name(),
        features=tuple(sorted(name for name, is_there in found.items() if is_there)),
        settings=tuple(f"{name}={os.environ[name]}" for name in SETTINGS if os.environ.get(name)),
    )


def _vendor() -> str:
    """Of x86; "" elsewhere, where LLVM's name says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def cpu_differences(before: CpuFeatures, now: CpuFeatures) -> tuple[str, ...]:
    """What differs, in words, one item for each difference; empty: the same bits come out. Pure."""
    found = [
        f"{what} {one or 'unknown'} instead of {other or 'unknown'}"
        for what, one, other in (("vendor", now.vendor, before.vendor), ("CPU", now.name, before.name))
        if one != other
    ]
    for what, one, other in (
        ("features", now.features, before.features),
        ("settings", now.settings, before.settings),
    ):
        lacking, more = sorted(set(other) - set(one)), sorted(set(one) - set(other))
        found += [f"without the {what} {', '.join(lacking)}"] if lacking else []
        found += [f"with the {what} {', '.join(more)}"] if more else []
    return tuple(found)
