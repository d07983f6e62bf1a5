"""Milliseconds a step of the engine, for batch sizes and dims. One JSON line for each arm."""

from __future__ import annotations

import argparse
import json
import statistics
import traceback
from collections.abc import Callable

import torch

from benchmarks.gpu.engine import EngineShape, Place, build_engine, random_batches
from elastichost.gpu.registered_memory import RegisteredMemory

__all__ = ["main"]


def main() -> None:
    """Runs the arms that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dims", default="16,128")
    parser.add_argument("--batches", default="2048,8192,65536")
    parser.add_argument("--places", default="device,host")
    parser.add_argument("--exponents", default="1.05")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--profile", action="store_true", help="also print the microseconds of each kernel")
    options = parser.parse_args()
    for exponent in map(float, options.exponents.split(",")):
        for dim in map(int, options.dims.split(",")):
            for size in map(int, options.batches.split(",")):
                for place in options.places.split(","):
                    _arm(EngineShape(size, options.rows, dim), place, exponent, options)


def _arm(shape: EngineShape, place: Place, exponent: float, options: argparse.Namespace) -> None:
    facts = {"arm": f"elastichost-{place}", "batch": shape.batch_size, "dim": shape.dim, "rows": shape.rows}
    facts |= {"exponent": exponent}
    device = torch.device(options.device)
    try:
        engine = build_engine(shape, place, device)
        batches = random_batches(shape, 8, device, 7, exponent)
        try:
            for name, milliseconds, loss in _measure(engine, batches, options.seconds):
                rate = shape.batch_size / milliseconds / 1000
                found = {"mode": name, "ms": round(milliseconds, 4), "million_samples_s": round(rate, 3), "loss": loss}
                print(json.dumps(facts | found), flush=True)
            if options.profile:
                print(json.dumps(facts | {"kernels_us": _kernel_times(engine, batches)}), flush=True)
        finally:
            _close(engine.memory)
    except Exception:  # noqa: BLE001 - the other arms go on
        print(json.dumps(facts | {"error": traceback.format_exc()[-1500:]}), flush=True)


def _measure(engine, batches, seconds):  # type: ignore[no-untyped-def]
    for number in range(6):
        engine.step.halves[number % 2].copy_from(batches[number % 8])
        engine.step.body(number % 2)
    yield "eager", _median_ms(lambda n: _eager(engine, batches, n), seconds / 2), float(engine.step.losses[0])
    if engine.dense.device_values.device.type == "cuda":
        for half in (0, 1):
            engine.step.capture(half)
        yield "graph", _median_ms(lambda n: engine.train(batches[n % 8], n % 2), seconds), float(engine.step.losses[0])


def _eager(engine, batches, number):  # type: ignore[no-untyped-def]
    engine.step.halves[number % 2].copy_from(batches[number % 8])
    engine.step.body(number % 2)


def _median_ms(run: Callable[[int], None], seconds: float) -> float:
    """Median milliseconds of groups of ten steps."""
    for number in range(8):
        run(number)
    if not torch.cuda.is_available():
        return 1.0
    torch.cuda.synchronize()
    times: list[float] = []
    while sum(times) < seconds * 1000 and len(times) < 400:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for number in range(10):
            run(number)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times) / 10


def _kernel_times(engine, batches):  # type: ignore[no-untyped-def]
    """Microseconds a step of the kernels that take most time, and their number of calls a step."""
    steps = 10
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for number in range(steps):
            engine.train(batches[number % 8], number % 2)
        torch.cuda.synchronize()
    times = sorted(profiler.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    return [
        (kernel.key[:60], round(kernel.self_device_time_total / steps, 1), kernel.count / steps)
        for kernel in times[:28]
    ]


def _close(memory: object) -> None:
    for part in memory if isinstance(memory, tuple) else ():
        if hasattr(part, "registered") and isinstance(part.registered, RegisteredMemory):
            part.close()


if __name__ == "__main__":
    main()
