"""Lists the GPUs that this process may use: those of NVML, within CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from elastichost.resources import GpuDevice

__all__ = ["VISIBLE", "devices_of", "driver_version", "usable_devices", "visible_indices"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
WORD_BITS = 64  # of NVML's masks of cores
# Bytes per second of one lane in one direction, by generation of PCIe, and the part of it that copies reach: 55 of 63
# GB/s (H200, PCIe 5 x16; docs/gpu.md).
LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
REACHED = 0.87


def usable_devices() -> tuple[GpuDevice, ...]:
    """The GPUs that this process may use, in the order of CUDA_VISIBLE_DEVICES. Without NVML there are none. A GPU that
    does not answer, for example because it fell off the bus, is left out."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = devices_of(pynvml)
    finally:
        pynvml.nvmlShutdown()
    known = {gpu.index: gpu for gpu in found}
    visible = visible_indices(os.environ.get(VISIBLE), {gpu.index: gpu.uuid for gpu in found})
    return tuple(known[index] for index in visible)


def devices_of(nvml: Any) -> tuple[GpuDevice, ...]:
    """The GPUs of this host that answer. nvml: pynvml after nvmlInit, or its double. Raises NVMLError if NVML does not
    count them."""
    found = (_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    return tuple(gpu for gpu in found if gpu is not None)


def driver_version(nvml: Any) -> str:
    """The version of NVIDIA's driver, as "580.159.04"; "" if NVML does not tell. nvml: as for `devices_of`."""
    return str(_told(nvml, nvml.nvmlSystemGetDriverVersion) or "")


def visible_indices(setting: str | None, uuids: dict[int, str]) -> tuple[int, ...]:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES names, by their numbers. setting: None: it is not set, so all GPUs
    are visible. uuids: number -> UUID, of all GPUs.

    As CUDA does, it takes numbers and beginnings of UUIDs, and ignores what follows the first item that names no GPU.
    Numbers are those of NVML and `nvidia-smi`. Parts of a GPU (MIG) are not supported and count as no GPU.
    """
    if setting is None:
        return tuple(uuids)
    found: list[int] = []
    for item in (part.strip() for part in setting.split(",")):
        if item.isdigit():
            named = [index for index in uuids if index == int(item)]
        else:
            named = [index for index, uuid in uuids.items() if item.startswith("GPU-") and uuid.startswith(item)]
        if len(named) != 1 or named[0] in found:
            break
        found += named
    return tuple(found)


def _device(nvml: Any, index: int) -> GpuDevice | None:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name, memory = str(nvml.nvmlDeviceGetName(handle)), int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        return None
    words = -(-(os.cpu_count() or 1) // WORD_BITS)
    mask = _told(nvml, nvml.nvmlDeviceGetCpuAffinity, handle, words) or ()
    uuid = str(_told(nvml, nvml.nvmlDeviceGetUUID, handle) or "")
    # the largest generation and width: an idle GPU lowers the present ones
    lane = LANE_BYTES_PER_S.get(_told(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle) or 0, 0.0)
    lanes = int(_told(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle) or 0)
    return GpuDevice(
        index, name, memory, uuid=uuid, near_cores=_cores_of(mask), link_bytes_per_s=REACHED * lane * lanes
    )


def _told(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer to a call; None when NVML does not tell."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _cores_of(mask: Sequence[int]) -> tuple[int, ...]:
    """The cores of NVML's mask: bit b of word w is core 64 w + b."""
    return tuple(
        word * WORD_BITS + bit for word, bits in enumerate(mask) for bit in range(WORD_BITS) if int(bits) >> bit & 1
    )
