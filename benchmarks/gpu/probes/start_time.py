"""P7 decides how long a GPU worker's successor takes and what a context costs: seconds from the start of a process to
its first batch, fresh and forked from a process that imported torch, and the memory of a context."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu.device.driver import driver_module
from benchmarks.gpu.device.interface import COUNT
from benchmarks.gpu.probes.child import Child, Facts, attempt, children, hear, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["run", "start_bare", "start_forked", "start_fresh"]

MODULE = "benchmarks.gpu.probes.start_time"
MIB = 1 << 20


def resident_mib() -> dict[str, float]:
    """Returns the resident memory of this process, all and without files and shared memory."""
    fields = [int(field) * os.sysconf("SC_PAGE_SIZE") / MIB for field in Path("/proc/self/statm").read_text().split()]
    return {"resident": fields[1], "anonymous": fields[1] - fields[2]}


def device_used_mib() -> float | str:
    """Returns the used device memory by NVML, of all processes."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        used = float(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used) / MIB
        nvml.nvmlShutdown()
        return used
    except Exception as error:  # noqa: BLE001 - a figure that is missing must not end the probe
        return str(error)


def nothing() -> None:
    """The wait before there is a device."""


class Stopwatch:
    """Seconds of steps by name, and the host's memory after each. `wait` waits for the device's work of a step."""

    def __init__(self) -> None:
        self.wait: Callable[[], object] = nothing
        self.seconds: dict[str, float] = {}
        self.host_mib: dict[str, dict[str, float]] = {}

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs a step and returns what it returns; a step that fails is recorded with its error, then raised."""
        begin = time.monotonic()
        try:
            result = work()
            self.wait()
            return result
        finally:
            self.seconds[name] = time.monotonic() - begin
            self.host_mib[name] = resident_mib()


def make_context() -> None:
    """Makes the primary context of device 0 current."""
    driver = driver_module()
    code, device = driver.cuDeviceGet(0)
    code, context = driver.cuDevicePrimaryCtxRetain(device)
    if int(code) != 0:
        raise RuntimeError(f"cuDevicePrimaryCtxRetain: {code}")
    driver.cuCtxSetCurrent(context)


def first_batch(dry_run: bool) -> Facts:
    """Runs all steps from import to the replay of a graph and returns their seconds and memory."""
    watch, place = Stopwatch(), "cpu" if dry_run else "cuda"
    used: dict[str, float | str] = {}
    torch: Any = watch.step("import torch", lambda: importlib.import_module("torch"))
    if not dry_run:
        watch.step("import cuda.bindings", driver_module)
        watch.step("cuInit", lambda: driver_module().cuInit(0))
        watch.step("context", make_context)
        used["context"] = device_used_mib()
        watch.wait = torch.cuda.synchronize
    values = watch.step("first tensor", lambda: torch.zeros(1 << 20, device=place))
    watch.step("first kernel", lambda: values.add_(1))
    weights = watch.step("weights", lambda: torch.randn(1024, 1024, device=place))
    watch.step("first matrix product", lambda: weights @ weights)
    watch.step("second matrix product", lambda: weights @ weights)
    errors = {}
    try:
        compile_triton(watch, values, dry_run)
    except Exception as error:  # noqa: BLE001 - the steps after it are still wanted
        errors["triton"] = f"{type(error).__name__}: {error}"
    if not dry_run:
        graph = watch.step("capture", lambda: captured(torch, weights))
        watch.step("first replay", graph.replay)
        watch.step("second replay", graph.replay)
        used["all"] = device_used_mib()
    return {"seconds": watch.seconds, "host_mib": watch.host_mib, "device_used_mib": used, "errors": errors}


def compile_triton(watch: Stopwatch, values: Any, dry_run: bool) -> None:
    """Imports Triton, compiles a kernel, and runs it twice."""
    module: Any = watch.step("import triton", lambda: importlib.import_module("benchmarks.gpu.device.triton_add"))
    if not dry_run:
        for name in ("first Triton kernel", "second Triton kernel"):
            watch.step(name, lambda: module.add_one[(1024,)](values, 1 << 20))


def captured(torch: Any, weights: Any) -> Any:
    """Returns a CUDA graph of a few products; what it writes lives as long as the graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = weights
        for _ in range(5):
            product = torch.relu(product @ weights)
    return graph


def start_fresh(setting: Setting, begin_s: float, **_others: Any) -> None:
    """Says the steps of a fresh process."""
    begun_s = time.monotonic() - begin_s
    say(process_start_s=begun_s, **first_batch(setting.dry_run), total_s=time.monotonic() - begin_s)


def start_bare(setting: Setting, **_others: Any) -> None:
    """Says the seconds of a context and a first kernel without torch, and its memory."""
    before = resident_mib()
    begin = time.monotonic()
    device = setting.device()
    context_s = time.monotonic() - begin
    address = device.allocate(1 << 20)
    begin = time.monotonic()
    device.launch("fill_pattern", 1, 32, [(address, COUNT), (1024, COUNT), (0, COUNT)])
    device.synchronize()
    kernel_s = time.monotonic() - begin
    say(context_and_module_s=context_s, first_kernel_s=kernel_s, before=before, host_mib=resident_mib())
    hear()


def start_forked(setting: Setting, **_others: Any) -> None:
    """Imports torch without a CUDA call, forks when told, and the forked process says its steps."""
    begin = time.monotonic()
    torch: Any = importlib.import_module("torch")
    with suppress(ImportError):
        importlib.import_module("benchmarks.gpu.device.triton_add")
    say(imported_s=time.monotonic() - begin, initialized=torch.cuda.is_initialized(), host_mib=resident_mib())
    while hear().get("go"):
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            begun_s = time.monotonic() - begin
            with attempt("forked"):
                say(fork_s=begun_s, **first_batch(setting.dry_run), total_s=time.monotonic() - begin)
            os._exit(0)
        os.waitpid(pid, 0)


def run(setting: Setting, **_others: Any) -> None:
    """Says the seconds by way of starting."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as cache:
        environment = {"TRITON_CACHE_DIR": cache}
        for name in ("fresh, Triton compiles", "fresh, Triton's cache"):
            with attempt(name), children() as started:
                used = device_used_mib()
                begin_s = time.monotonic()
                started.append(Child(f"{MODULE}:start_fresh", setting, environment=environment, begin_s=begin_s))
                say(experiment="start", way=name, device_used_before_mib=used, **started[0].hear(30))
        with attempt("forked"), children() as started:
            started.append(Child(f"{MODULE}:start_forked", setting, environment=environment))
            say(experiment="fork server", **started[0].hear(30))
            for _ in range(2):
                started[0].tell(go=True)
                say(experiment="start", way="forked after import torch", **started[0].hear())
        with attempt("bare"), children() as started:
            for count in (1, 2):
                used = device_used_mib()
                started.append(Child(f"{MODULE}:start_bare", setting))
                facts = started[-1].hear()
                say(experiment="bare", contexts=count, used_mib=[used, device_used_mib()], **facts)
