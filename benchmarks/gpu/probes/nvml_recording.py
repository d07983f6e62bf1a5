"""The recording of NVML decides which of its figures a run can use: what every call returns or refuses, idle, with one
and with two busy processes, and what it costs. `nvml_recording.json` becomes the double of the library in tests."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.device.interface import COUNT
from benchmarks.gpu.probes.child import Child, Facts, attempt, children, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["keep_busy", "run"]

SYSTEM = (
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount",
)
# Calls with the device's handle; a string that begins with NVML_ is a constant of pynvml.
DEVICE: tuple[tuple[Any, ...], ...] = (
    ("nvmlDeviceGetName",),
    ("nvmlDeviceGetUUID",),
    ("nvmlDeviceGetIndex",),
    ("nvmlDeviceGetMinorNumber",),
    ("nvmlDeviceGetBrand",),
    ("nvmlDeviceGetSerial",),
    ("nvmlDeviceGetPciInfo",),
    ("nvmlDeviceGetCudaComputeCapability",),
    ("nvmlDeviceGetNumGpuCores",),
    ("nvmlDeviceGetMemoryBusWidth",),
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetMemoryInfo", "NVML_MEMORY_V2"),
    ("nvmlDeviceGetBAR1MemoryInfo",),
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetEncoderUtilization",),
    ("nvmlDeviceGetDecoderUtilization",),
    ("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES"),
    ("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES"),
    ("nvmlDeviceGetPcieReplayCounter",),
    ("nvmlDeviceGetCurrPcieLinkGeneration",),
    ("nvmlDeviceGetCurrPcieLinkWidth",),
    ("nvmlDeviceGetMaxPcieLinkGeneration",),
    ("nvmlDeviceGetMaxPcieLinkWidth",),
    ("nvmlDeviceGetPcieSpeed",),
    ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    ("nvmlDeviceGetClockInfo", "NVML_CLOCK_GRAPHICS"),
    ("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    ("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM"),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetEnforcedPowerLimit",),
    ("nvmlDeviceGetTotalEnergyConsumption",),
    ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ("nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    ("nvmlDeviceGetEccMode",),
    ("nvmlDeviceGetComputeMode",),
    ("nvmlDeviceGetMigMode",),
    ("nvmlDeviceGetPersistenceMode",),
    ("nvmlDeviceGetPerformanceState",),
    ("nvmlDeviceGetAccountingMode",),
    ("nvmlDeviceGetAccountingPids",),
    ("nvmlDeviceGetAccountingBufferSize",),
    ("nvmlDeviceGetComputeRunningProcesses_v3",),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3",),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v3",),
    ("nvmlDeviceGetProcessUtilization", 0),
    ("nvmlDeviceGetProcessesUtilizationInfo", 0),
    ("nvmlDeviceGetSamples", "NVML_GPU_UTILIZATION_SAMPLES", 0),
    ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    ("nvmlDeviceGetSupportedClocksThrottleReasons",),
    ("nvmlDeviceGetCurrentClocksEventReasons",),
    ("nvmlDeviceGetSupportedClocksEventReasons",),
    ("nvmlDeviceGetTopologyNearestGpus", "NVML_TOPOLOGY_SYSTEM"),
    ("nvmlDeviceGetCpuAffinity", 1),
    ("nvmlDeviceGetNumaNodeId",),
    ("nvmlDeviceGetNvLinkState", 0),
    ("nvmlDeviceGetNvLinkVersion", 0),
    ("nvmlDeviceGetFieldValues", ["NVML_FI_DEV_MEMORY_TEMP", "NVML_FI_DEV_PCIE_REPLAY_COUNTER"]),
    ("nvmlDeviceGetFieldValues", ["NVML_FI_DEV_PCIE_COUNT_TX_BYTES", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES"]),
    ("nvmlDeviceGetSupportedEventTypes",),
    ("nvmlGpmQueryDeviceSupport",),
)
# NVML_GPM_METRIC_*: graphics, SM, SM occupancy, tensor, DRAM bandwidth, PCIe sent and received per second.
GPM_METRICS = {1: "graphics", 2: "sm", 3: "sm_occupancy", 5: "tensor", 10: "dram", 20: "pcie_tx", 21: "pcie_rx"}
SAMPLES, PAUSE_S = 5, 0.2
BUSY_COPY = 256 << 20


def keep_busy(setting: Setting, **_others: Any) -> None:
    """Computes and copies over PCIe until its input is closed."""
    device = setting.device()
    size = 1 << 20 if setting.dry_run else BUSY_COPY
    remote, local = device.allocate(size), device.allocate_pinned(size)
    ready = False
    while not select.select([sys.stdin], [], [], 0)[0]:
        device.launch("keep_busy", 132 * 4, 256, [(remote, COUNT), (20_000_000, COUNT)])
        device.copy(remote, local, size, "HtoD")
        device.copy(local, remote, size, "DtoH")
        device.synchronize()
        if not ready:
            ready = True
            say(ready=True, pid=os.getpid())


def plain(value: Any) -> Any:
    """Returns what NVML answered as JSON can hold it."""
    if isinstance(value, ctypes.Structure):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, ctypes.Union):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(entry) for entry in value]
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return {name: plain(entry) for name, entry in vars(value).items()}
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def resolved(nvml: Any, argument: Any) -> Any:
    """Returns an argument with the constants of pynvml in it."""
    if argument == "NVML_MEMORY_V2":
        return nvml.nvmlMemory_v2
    if isinstance(argument, list):
        return [resolved(nvml, entry) for entry in argument]
    return getattr(nvml, argument) if isinstance(argument, str) else argument


def recorded(nvml: Any, name: str, arguments: tuple[Any, ...], shown: tuple[Any, ...]) -> Facts:
    """Calls a function of pynvml and returns what it answered, or its error, and its microseconds."""
    facts: Facts = {"call": name, "arguments": list(shown)}
    try:
        function: Callable[..., Any] = getattr(nvml, name)
        values = [resolved(nvml, argument) for argument in arguments]
        begin = time.perf_counter()
        try:
            value = function(*values)
        finally:
            facts["us"] = round((time.perf_counter() - begin) * 1e6, 1)
        facts["value"] = plain(value)
    except Exception as error:  # noqa: BLE001 - the recording holds any refusal
        facts["error"] = {"type": type(error).__name__, "text": str(error), "code": getattr(error, "value", None)}
    return facts


def sample(nvml: Any, handle: Any) -> list[Facts]:
    """Returns the answers to all calls."""
    answers = [recorded(nvml, name, (), ()) for name in SYSTEM]
    for name, *arguments in DEVICE:
        answers.append(recorded(nvml, name, (handle, *arguments), tuple(arguments)))
    processes: list[Facts] = []
    for facts in answers:
        if facts["call"].endswith("ComputeRunningProcesses_v3"):
            processes += facts.get("value") or []
    for process in processes:
        pid = process.get("pid")
        answers.append(recorded(nvml, "nvmlDeviceGetAccountingStats", (handle, pid), (pid,)))
    return answers


def gpm(nvml: Any, handle: Any) -> Facts:
    """Returns the profiling metrics of NVML over a pause, or the error."""
    try:
        first, second = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, first)
        time.sleep(PAUSE_S)
        nvml.nvmlGpmSampleGet(handle, second)
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(GPM_METRICS)
        request.sample1, request.sample2 = first, second
        for index, metric in enumerate(GPM_METRICS):
            request.metrics[index].metricId = metric
        begin = time.perf_counter()
        nvml.nvmlGpmMetricsGet(request)
        spent_us = (time.perf_counter() - begin) * 1e6
        values = {
            name: {"value": request.metrics[index].value, "code": request.metrics[index].nvmlReturn}
            for index, name in enumerate(GPM_METRICS.values())
        }
        for allocated in (first, second):
            nvml.nvmlGpmSampleFree(allocated)
        return {"metrics": values, "us": spent_us}
    except Exception as error:  # noqa: BLE001 - the recording holds any refusal
        return {"error": str(error), "type": type(error).__name__}


def record(nvml: Any, handle: Any, state: str, processes: list[Facts]) -> Facts:
    """Returns several samples of one state."""
    samples = []
    for _ in range(SAMPLES if processes else 2):
        begin = time.monotonic()
        samples.append({"at_s": begin, "calls": sample(nvml, handle)})
        time.sleep(max(0.0, begin + PAUSE_S - time.monotonic()))
    return {"state": state, "processes": processes, "samples": samples, "gpm": gpm(nvml, handle)}


def brief(state: Facts) -> Facts:
    """Returns the last sample by call, with the costs of the slow ones, for the line of the result."""
    calls = state["samples"][-1]["calls"]
    names = [f"{call['call']}({','.join(map(str, call['arguments']))})" for call in calls]
    return {
        "state": state["state"],
        "answers": {name: call.get("value", call.get("error")) for name, call in zip(names, calls, strict=True)},
        "slow_us": {name: call["us"] for name, call in zip(names, calls, strict=True) if call.get("us", 0) > 500},
        "gpm": state["gpm"],
    }


def run(setting: Setting, **_others: Any) -> None:
    """Writes the recording and says its last samples."""
    nvml: Any = importlib.import_module("pynvml")
    begin = time.perf_counter()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    recording: Facts = {"init_ms": (time.perf_counter() - begin) * 1000, "states": []}
    processes: list[Facts] = []
    with children() as started:
        for state in ("idle", "one busy process", "two busy processes"):
            with attempt(state):
                if state != "idle":
                    started.append(Child("benchmarks.gpu.probes.nvml_recording:keep_busy", setting))
                    processes.append(started[-1].hear())
                    time.sleep(1.0)  # utilization is a mean over up to a second
                recording["states"].append(record(nvml, handle, state, list(processes)))
                say(experiment="nvml", **brief(recording["states"][-1]))
                Path(setting.out, "nvml_recording.json").write_text(json.dumps(recording, indent=1))
    nvml.nvmlShutdown()
