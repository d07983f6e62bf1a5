"""A source whose bandwidth halves while the tuner is at work: its speed afterwards beside the best of a grid."""

from __future__ import annotations

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.runner import say
from benchmarks.input.arms import (
    ArmSettings,
    Measured,
    best_of_grid,
    measure_auto_after_change,
    measure_fixed,
)
from benchmarks.input.figures import AUTO, BEST, LEAST_SHARE, SPEED, ratio_to
from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_server import SourceServer

__all__ = ["halved"]

AFTER_S = 15.0
FOREVER_S = 1e6


def halved(
    name: str,
    arm: ArmSettings,
    server: SourceServer,
    rounds: int,
    grid_s: float,
    *,
    is_coarse: bool,
    after_s: float = AFTER_S,
) -> Benchmark[Measured]:
    """The benchmark of one case. Its grid and its best knobs are measured while the bandwidth is half; the tuner meets
    the whole bandwidth first. server: serves the files of `arm`."""

    def change(factor: float) -> None:
        server.order(Order("slow", FOREVER_S, factor))

    def auto(number: int) -> Measured:
        change(1.0)
        return measure_auto_after_change(arm, lambda: change(0.5), after_s)

    def best(number: int) -> Measured:
        change(0.5)
        return measure_fixed(arm, found.best)

    change(0.5)
    found = best_of_grid(arm, grid_s, is_coarse=is_coarse)
    say(f"{name}: at half of the bandwidth the best of a grid of {found.sets} is {found.best}")
    over_best = ratio_to(BEST)
    return Benchmark(
        title=f"{after_s:.0f} s after the bandwidth has halved: median (least-most)",
        case=name,
        arms={AUTO: auto, BEST: best},
        rounds=Rounds(rounds),
        figures=(SPEED,),
        pairs=(over_best,),
        aims=(Aim(over_best.name, LEAST_SHARE, "at least"),),
    )
