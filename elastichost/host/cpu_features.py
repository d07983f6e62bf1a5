"""The features of a CPU on which the bits of results depend.

torch, oneDNN, MKL, OpenBLAS and numba choose code by the vendor and the features of the CPU, and by environment
variables that limit them. Other code adds numbers in another order, so the last bits of sums differ. The features have
LLVM's names, because numba compiles for LLVM. Nothing here imports torch, because the agent of a host does not import
it. The number of threads does not belong to these features: in sync mode a plan may change it.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import llvmlite.binding
import msgspec

__all__ = ["CpuFeatures", "bfloat16_unit", "cpu_differences", "present_cpu", "refuses_bfloat16"]

# Environment variables with which users limit the CPU features that libraries use.
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


# LLVM's names of the features that multiply bfloat16, and what people call them; the fastest first.
BFLOAT16_UNITS = {"amx-bf16": "AMX", "avx512bf16": "AVX512-BF16", "bf16": "BF16"}
# oneDNN uses these units only if the highest instruction set that it may use has one of these words in its name.
_ISA_SETTINGS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_ISA_WORDS = ("BF16", "FP16", "AMX", "AVX10", "DEFAULT", "ALL")


class CpuFeatures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The CPU of a machine. `name`, `features`: LLVM's names; `settings`: NAME=value of the environment variables in
    SETTINGS. `features` and `settings` are sorted."""

    vendor: str
    name: str
    features: tuple[str, ...]
    settings: tuple[str, ...]


@functools.cache
def present_cpu() -> CpuFeatures:
    """The CPU of this machine, with the settings of this process' environment."""
    found = llvmlite.binding.get_host_cpu_features()
    return CpuFeatures(
        vendor=_vendor(),
        name=llvmlite.binding.get_host_cpu_name(),
        features=tuple(sorted(name for name, is_there in found.items() if is_there)),
        settings=tuple(f"{name}={os.environ[name]}" for name in SETTINGS if os.environ.get(name)),
    )


def _vendor() -> str:
    """The vendor of an x86 CPU; "" for others, whose vendor is part of LLVM's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def bfloat16_unit(cpu: CpuFeatures) -> str:
    """The unit of a CPU that multiplies bfloat16, as libraries may use it: "AMX", "AVX512-BF16", "BF16" (ARM), or "" if
    there is none. Pure."""
    if _limits_of(cpu):
        return ""
    return next((name for feature, name in BFLOAT16_UNITS.items() if feature in cpu.features), "")


def refuses_bfloat16(cpu: CpuFeatures) -> str:
    """Why a CPU cannot compute in bfloat16 at a useful speed; "" if it can. Pure."""
    if bfloat16_unit(cpu):
        return ""
    if limits := _limits_of(cpu):
        return f"{limits} switches the bfloat16 units of the CPU off"
    return f"the CPU ({cpu.name}) has neither AMX nor AVX512-BF16"


def _limits_of(cpu: CpuFeatures) -> str:
    """The environment variable that switches the bfloat16 units off; "" if there is none."""
    for setting in cpu.settings:
        name, _, value = setting.partition("=")
        if name in _ISA_SETTINGS and not any(word in value.upper() for word in _ISA_WORDS):
            return setting
    return ""


def cpu_differences(before: CpuFeatures, now: CpuFeatures) -> tuple[str, ...]:
    """The differences as texts; empty when results have the same bits. Pure."""
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
