"""Measures all arms with one shape after another."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from benchmarks.data_plane.lineup import Case, Launcher, PeerHost
from benchmarks.data_plane.process_arm import ProcessArm
from benchmarks.data_plane.rounds import Progress, measure_rounds
from benchmarks.data_plane.shapes.arms import PRECISIONS, ModeArm, admitted, modes_of, shape_entries
from benchmarks.data_plane.shapes.figures import ShapeResult, shape_result
from benchmarks.data_plane.shapes.products import products_arm
from benchmarks.data_plane.startup import Startup
from benchmarks.data_plane.windows import WindowSettings, window_of
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.workshop import Workshop
from benchmarks.workload.samples import draw_samples, write_batches, write_parquet
from benchmarks.workload.shape import Shape

__all__ = ["ShapeOptions", "compare_shapes"]

SEED = 26
LEAST_BATCHES = 8


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """shapes: by name. samples, ids_bytes: of an epoch, at most. shape_s: no round of a shape starts that would end
    later than this after the beginning of the shape."""

    shapes: Mapping[str, Shape]
    samples: int
    ids_bytes: int
    rounds: Rounds
    windows: WindowSettings
    shape_s: float

    def samples_of(self, shape: Shape) -> int:
        """Samples of an epoch: as many as both limits allow, but at least some batches."""
        fitting = self.ids_bytes // (8 * shape.tables * shape.ids)
        return max(min(self.samples, fitting), LEAST_BATCHES * shape.batch_size)


def compare_shapes(workshop: Workshop, options: ShapeOptions, console: Console, began_s: float) -> list[ShapeResult]:
    """The results of all shapes."""
    host = PeerHost(workshop, with_bare_loop=False)
    return [
        _compare(name, shape, workshop, host, options, Progress(console, began_s))
        for name, shape in options.shapes.items()
    ]


def _compare(
    name: str, shape: Shape, workshop: Workshop, host: PeerHost, options: ShapeOptions, progress: Progress
) -> ShapeResult:
    rounds = replace(options.rounds, deadline_s=time.monotonic() + options.shape_s)
    progress.say(f"{name}: {shape}, batch size {shape.batch_size}")
    samples = draw_samples(shape, options.samples_of(shape), SEED)
    batches, parquet = workshop.memory / "batches", workshop.disk / "train.parquet"
    write_batches(samples, shape.batch_size, batches)
    write_parquet(samples, parquet)
    del samples
    entries, left_out = admitted(shape_entries(), shape)
    launcher = Launcher(workshop, Case("dlrm", shape, shape.batch_size, batches, parquet), host, "")
    startup = Startup(launcher, shape.batch_size, progress)
    try:
        ready = startup.start(entries)
        arms = _arms(ready)
        windows = {arm.name: window_of(arm, options.windows) for arm in arms}
        for precision in PRECISIONS:
            limit = f"gemm_{precision}"
            windows[limit] = products_arm(limit, shape, precision, options.windows.window_s)
        outcome = measure_rounds(name, windows, rounds, progress)
        memory = {arm.name: arm.memory_bytes() for arm in arms if arm.name not in progress.failures}
    finally:
        startup.close()
        launcher.forget()
        batches.unlink()
    return shape_result(name, shape, outcome, memory, progress.failures, left_out)


def _arms(processes: Sequence[ProcessArm]) -> list[ProcessArm | ModeArm]:
    """elastichost's runs, and every peer in each of its modes."""
    found: list[ProcessArm | ModeArm] = []
    for one in processes:
        modes = modes_of(one.name)
        found += [ModeArm(name, one, mode) for name, mode in modes.items()] if modes else [one]
    return found
