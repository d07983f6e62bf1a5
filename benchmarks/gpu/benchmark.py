"""Milliseconds a training step of a DLRM on a GPU: elastichost's engine beside torchrec with fbgemm's TBE.

Rows of elastichost lie in memory of the GPU ("device") or in shared memory of the host ("host"), those of TBE in memory
of the GPU, in memory of the host ("managed"), or there with a cache ("caching"). Each arm runs eagerly or as a CUDA
graph. Batches lie in memory of the GPU. In each round every arm runs for a moment, one after the other.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.gpu.engine import PLACES, Engine, EngineShape, Rows, allocate_rows, build_engine, random_batches
from benchmarks.gpu.tbe import TBE_PLACES, TbeTraining, make_tables
from elastichost.gpu.step_inputs import StepInputs

__all__ = ["main"]

Step = Callable[[StepInputs, int], None]
WARM_UP_STEPS = 10
GROUP_STEPS = 5  # steps between two events
# The ratios that are reported: (arm, arm that it is compared with).
RATIOS = (
    ("device graph", "tbe device eager"),
    ("device graph", "tbe device graph"),
    ("host graph", "tbe managed eager"),
    ("host graph", "tbe managed graph"),
    ("host graph", "tbe caching eager"),
    ("host graph", "device graph"),
)


@dataclass(slots=True)
class Case:
    """One batch size and dim. times: for each arm the median milliseconds a step of each round. errors: of arms that
    did not run. kernels_us: for each place, as `_kernel_times`."""

    shape: EngineShape
    times: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    kernels_us: dict[str, list[tuple[str, float, float]]] = field(default_factory=dict)

    def ratio(self, arm: str, against: str) -> float | None:
        """How many times as fast `arm` is: the median of the rounds."""
        pairs = zip(self.times.get(arm, ()), self.times.get(against, ()), strict=False)
        found = [theirs / mine for mine, theirs in pairs]
        return round(statistics.median(found), 3) if found else None

    def as_json(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "batch": shape.batch_size,
            "dim": shape.dim,
            "rows": shape.rows,
            "ms": {arm: round(statistics.median(times), 4) for arm, times in self.times.items()},
            "ms_of_rounds": {arm: [round(one, 4) for one in times] for arm, times in self.times.items()},
            "speed_over": {f"{arm} / {other}": self.ratio(arm, other) for arm, other in RATIOS},
            "errors": self.errors,
            "kernels_us": self.kernels_us,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit code."""
    parser = argparse.ArgumentParser(prog="elastichost bench gpu", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each of the 26 tables")
    parser.add_argument("--dims", default="16,128")
    parser.add_argument("--batches", default="2048,8192,65536")
    parser.add_argument("--exponent", type=float, default=1.05, help="of the Zipf distribution of ids; 0: uniform")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each arm in each round")
    parser.add_argument("--profile", action="store_true", help="also report the microseconds of each kernel")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("bench gpu needs a GPU, and torch in its CUDA build", file=sys.stderr)
        return 2
    cases = []
    for dim in map(int, options.dims.split(",")):
        for case in _cases_of(dim, options):
            cases.append(case.as_json())
            print(json.dumps(cases[-1]), file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({"gpu": torch.cuda.get_device_name(0), "cases": cases}))
    else:
        _print_table(cases)
    return 0


def _cases_of(dim: int, options: argparse.Namespace) -> Iterator[Case]:
    """The cases of one dim, which share their rows."""
    device = torch.device("cuda", 0)
    sizes = [int(size) for size in options.batches.split(",")]
    shape = EngineShape(sizes[0], options.rows, dim)
    rows: dict[str, Rows] = {place: allocate_rows(shape, place, device) for place in PLACES}
    tables: dict[str, Any] = {}
    troubles: dict[str, str] = {}
    for place in TBE_PLACES:
        try:
            tables[place] = make_tables(shape, place, device)
        except (ImportError, RuntimeError) as error:  # without fbgemm's CUDA build there is no peer
            troubles[f"tbe {place}"] = str(error)[-300:]
    try:
        for size in sizes:
            case = Case(EngineShape(size, options.rows, dim), errors=dict(troubles))
            batches = random_batches(case.shape, 8 if size <= 8192 else 4, device, 7, options.exponent)
            _measure(case, batches, rows, tables, options)
            yield case
            gc.collect()
            torch.cuda.empty_cache()
    finally:
        for memory in rows.values():
            memory.close()


def _measure(
    case: Case, batches: list[StepInputs], rows: dict[str, Rows], tables: dict[str, Any], options: argparse.Namespace
) -> None:
    engines = {place: build_engine(case.shape, memory, batches[0].dense.device) for place, memory in rows.items()}
    steps: dict[str, Step] = {}
    for place, engine in engines.items():
        steps |= {f"{place} eager": engine.train_eagerly, f"{place} graph": engine.train}
    for place, of_place in tables.items():
        for mode in ("eager", "graph"):
            training = TbeTraining(case.shape, of_place, batches[0])
            steps[f"tbe {place} {mode}"] = training.train if mode == "graph" else training.train_eagerly
    for arm, step in list(steps.items()):
        try:
            _repeat(step, batches, WARM_UP_STEPS)
        except RuntimeError:
            case.errors[arm] = traceback.format_exc()[-600:]
            del steps[arm]
    for _ in range(options.rounds):
        for arm, step in steps.items():
            case.times.setdefault(arm, []).append(_median_ms(step, batches, options.seconds))
    if options.profile:
        for place, engine in engines.items():
            case.kernels_us[place] = _kernel_times(engine, batches)


def _repeat(step: Step, batches: list[StepInputs], times: int) -> None:
    for number in range(times):
        step(batches[number % len(batches)], number % 2)
    torch.cuda.synchronize()


def _median_ms(step: Step, batches: list[StepInputs], seconds: float) -> float:
    """Median milliseconds a step, of groups of steps between two events of the GPU."""
    _repeat(step, batches, 2)
    times: list[float] = []
    while sum(times) < seconds * 1000 and len(times) < 2000:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for number in range(GROUP_STEPS):
            step(batches[number % len(batches)], number % 2)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times) / GROUP_STEPS


def _kernel_times(engine: Engine, batches: list[StepInputs]) -> list[tuple[str, float, float]]:
    """(kernel, microseconds a step, calls a step) of the kernels that take most time."""
    steps = 10
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        _repeat(engine.train, batches, steps)
    times = sorted(profiler.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    return [(one.key[:60], round(one.self_device_time_total / steps, 1), one.count / steps) for one in times[:30]]


def _print_table(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        print(f"dim {case['dim']}, batch {case['batch']}, {case['rows']} rows a table")
        for arm, milliseconds in case["ms"].items():
            print(f"  {arm:20} {milliseconds:8.3f} ms")
        for pair, ratio in case["speed_over"].items():
            print(f"  {pair:40} {'not measured' if ratio is None else ratio}")


if __name__ == "__main__":
    sys.exit(main())
