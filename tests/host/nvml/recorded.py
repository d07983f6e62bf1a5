"""A double of pynvml that answers with a recording of a real GPU (`tests/host/data/nvml_h200.json`).

Constants and classes are pynvml's own. A call that was not recorded raises NVMLError_NotSupported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml as real

__all__ = ["IDLE", "ONE_BUSY", "RECORDED_PIDS", "TWO_BUSY", "RecordedNvml"]

RECORDING = Path(__file__).resolve().parents[1] / "data" / "nvml_h200.json"
IDLE, ONE_BUSY, TWO_BUSY = "idle", "one busy process", "two busy processes"
RECORDED_PIDS = (2366, 2384)
# Functions of pynvml that call another version of themselves, which was recorded.
CALLED = {"nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3"}
# Arguments as the recording names them.
NAMES: dict[str, dict[object, str]] = {
    "nvmlDeviceGetMemoryInfo": {real.nvmlMemory_v2: "NVML_MEMORY_V2"},
    "nvmlDeviceGetClockInfo": {real.NVML_CLOCK_SM: "NVML_CLOCK_SM", real.NVML_CLOCK_MEM: "NVML_CLOCK_MEM"},
    "nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: "NVML_TEMPERATURE_GPU"},
}
GPM = {20: "pcie_tx", 21: "pcie_rx"}


class RecordedNvml(ModuleType):
    """`state`: one of the recorded ones. pids: recorded pid -> the pid to answer with; others keep theirs.
    gpus: so many GPUs answer alike, but for their UUIDs. `lost`: GPUs that have fallen off the bus. `is_mute`: the
    library fails."""

    def __init__(self, state: str = IDLE, pids: Mapping[int, int] | None = None, gpus: int = 1) -> None:
        super().__init__("pynvml")
        recording = json.loads(RECORDING.read_text())
        self._states = {one["state"]: one for one in recording["states"]}
        self.state = state
        self.pids = dict(pids or {})
        self.gpus, self.lost = gpus, frozenset[int]()
        self.is_mute = False
        self.opened = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.is_mute:
            raise real.NVMLError(real.NVML_ERROR_UNKNOWN)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"{self._answer('nvmlDeviceGetUUID', (handle,))[:-2]}{handle:02}"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.lost:
            raise real.NVMLError(real.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        return real.c_nvmlGpmSample_t()

    def nvmlGpmSampleFree(self, sample: object) -> None:  # noqa: N802
        pass

    def nvmlGpmSampleGet(self, handle: int, sample: object) -> None:  # noqa: N802
        pass

    def nvmlGpmMetricsGet(self, request: Any) -> None:  # noqa: N802
        metrics = self._states[self.state]["gpm"]["metrics"]
        for metric in request.metrics[: request.numMetrics]:
            found = metrics[GPM[metric.metricId]]
            metric.value, metric.nvmlReturn = found["value"], found["code"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml") and name[4].isupper() and callable(getattr(real, name, None)):
            return lambda *arguments: self._answer(name, arguments)
        return getattr(real, name)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if self.is_mute:
            raise real.NVMLError(real.NVML_ERROR_UNKNOWN)
        if arguments and arguments[0] in self.lost:
            raise real.NVMLError(real.NVML_ERROR_GPU_IS_LOST)
        if name == "nvmlDeviceGetProcessUtilization":
            return self._newer(name, arguments[1])
        asked = [NAMES.get(name, {}).get(argument, argument) for argument in arguments[1:]]
        return self._recorded(name, asked)

    def _newer(self, name: str, than_us: int) -> list[Any]:
        """The samples of processes as newer ones: a busy GPU has new ones at each call."""
        found = self._recorded(name, [0])
        for one in found:
            one.timeStamp = max(one.timeStamp, than_us + 1)
        return list(found)

    def _recorded(self, name: str, asked: list[object]) -> Any:
        for call in self._states[self.state]["samples"][-1]:
            if call["call"] == CALLED.get(name, name) and call["arguments"] == asked:
                if "error" in call:
                    raise real.NVMLError(call["error"]["code"])
                return self._value(call["value"])
        raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            shown = {name: self._value(part) for name, part in value.items()}
            if "pid" in shown:
                shown["pid"] = self.pids.get(shown["pid"], shown["pid"])
            return SimpleNamespace(**shown)
        return [self._value(part) for part in value] if isinstance(value, list) else value
