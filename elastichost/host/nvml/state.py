"""Reads the state of GPUs with NVML: memory, traffic over the bus, clock, power, temperature, and why a GPU is slowed.

The traffic comes from the profiling metrics of GPUs since Hopper (GPM): a rate over the time between two samples, in
about 3 ms (H200, driver 580). The counters of bytes have 32 bits and wrap several times a second on a busy bus, and
nvmlDeviceGetPcieThroughput looks at 20 ms only and waits for them. So older GPUs have no figure of their traffic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from elastichost.host.nvml.answers import told
from elastichost.resources import GpuDevice

__all__ = ["GpuState", "GpuStateMeter"]

MIB = 1 << 20  # the unit of GPM's rates of traffic
# Reasons for a lower clock that are worth telling, with the constant of NVML. An idle GPU and the clocks that an
# administrator has set are none.
SLOWED_BY = (
    ("power limit", "nvmlClocksEventReasonSwPowerCap"),
    ("hardware", "nvmlClocksEventReasonHwSlowdown"),
    ("temperature", "nvmlClocksEventReasonSwThermalSlowdown"),
    ("temperature", "nvmlClocksEventReasonHwThermalSlowdown"),
    ("power brake", "nvmlClocksEventReasonHwPowerBrakeSlowdown"),
)


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU now. None: the driver does not tell. used_bytes: of the whole device, by all processes. received, sent:
    bytes per second over the bus to the GPU, from it, since the last reading. slowed_by: why its clock is lower than it
    could be."""

    index: int
    used_bytes: int
    total_bytes: int
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    slowed_by: tuple[str, ...] = ()


class GpuStateMeter:
    """The states of all GPUs; `close` it after use. Without GPUs it does nothing. nvml: pynvml, or its double.

    Raises nvml.NVMLError when the library cannot be initialised: the driver is gone, or the process was forked from one
    that had initialised it.
    """

    def __init__(self, gpus: Sequence[GpuDevice], nvml: Any) -> None:
        self._gpus: list[_StateOfGpu] = []
        self._is_open = bool(gpus)
        if not gpus:
            return
        self._nvml = nvml
        nvml.nvmlInit()
        self._gpus = [_StateOfGpu(nvml, gpu.index) for gpu in gpus]

    def close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
        self._gpus = []
        if self._is_open:
            self._is_open = False
            self._nvml.nvmlShutdown()

    def lost(self) -> frozenset[int]:
        """The GPUs that have fallen off the bus since the meter was opened."""
        return frozenset(gpu.index for gpu in self._gpus if gpu.is_lost())

    def drop(self, gone: Collection[int]) -> None:
        """Asks these GPUs nothing any more."""
        self._gpus = [gpu for gpu in self._gpus if gpu.index not in gone]

    def read(self) -> tuple[GpuState, ...]:
        """The state of each GPU. Raises NVMLError when a GPU does not answer, for example because it fell off the
        bus."""
        return tuple(gpu.read() for gpu in self._gpus)


class _StateOfGpu:
    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self.index = index
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        # Two samples of GPM that change places: the rates are over the time between them.
        self._samples: list[Any] = []
        try:
            if nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                for _ in range(2):
                    self._samples.append(nvml.nvmlGpmSampleAlloc())
                nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
        except nvml.NVMLError:  # the GPU has no figure of its traffic
            self.close()

    def close(self) -> None:
        for sample in self._samples:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def is_lost(self) -> bool:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        except self._nvml.NVMLError_GpuIsLost:
            return True
        except self._nvml.NVMLError:  # it fails for another reason, and may answer later
            return False
        return False

    def read(self) -> GpuState:
        nvml, handle = self._nvml, self._handle
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)  # without the part that the driver keeps
        received, sent = self._traffic()
        power_mw = self._told(nvml.nvmlDeviceGetPowerUsage)
        reasons = self._told(nvml.nvmlDeviceGetCurrentClocksEventReasons) or 0
        slowed_by = dict.fromkeys(word for word, name in SLOWED_BY if reasons & getattr(nvml, name))
        return GpuState(
            index=self.index,
            used_bytes=int(memory.used),
            total_bytes=int(memory.total),
            received_bytes_per_s=received,
            sent_bytes_per_s=sent,
            clock_mhz=self._told(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._told(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            slowed_by=tuple(slowed_by),
        )

    def _told(self, call: Callable[..., int], *arguments: Any) -> int | None:
        """The answer to a call, None when there is none for this GPU. Other errors are raised."""
        answer = told(self._nvml, call, self._handle, *arguments)
        return None if answer is None else int(answer)

    def _traffic(self) -> tuple[float | None, float | None]:
        """Bytes per second that the GPU received and sent since the last call that succeeded; None: not known."""
        if not self._samples:
            return None, None
        try:
            return self._measured_traffic()
        except self._nvml.NVMLError_GpuIsLost:
            raise
        except self._nvml.NVMLError:  # the other figures of the GPU are known without these metrics
            return None, None

    def _measured_traffic(self) -> tuple[float | None, float | None]:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        request.sample1, request.sample2 = self._samples
        request.metrics[0].metricId = nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
        request.metrics[1].metricId = nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
        nvml.nvmlGpmMetricsGet(request)
        self._samples.reverse()
        received, sent = request.metrics[0], request.metrics[1]
        return (
            None if received.nvmlReturn else received.value * MIB,
            None if sent.nvmlReturn else sent.value * MIB,
        )
