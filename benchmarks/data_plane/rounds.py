"""Measures arms in interleaved rounds, and prints the progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console

from benchmarks.data_plane.figures import MeasuredWindow
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import ArmFailedError, Measurement, Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.runner import run

__all__ = ["Progress", "measure_rounds"]

SPEED = Figure[MeasuredWindow]("samples/s", "", lambda one: one.window.samples_per_s, form=",.0f")


class Progress:
    """Prints the progress of a benchmark that began at `began_s` (monotonic clock). `failures`: reason by arm."""

    def __init__(self, console: Console, began_s: float) -> None:
        self._console, self._began_s = console, began_s
        self.failures: dict[str, str] = {}

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began_s:6.1f} s[/]  {text}", soft_wrap=True)

    def failed(self, name: str, error: Exception) -> None:
        self.failures[name] = str(error)
        self._console.print(f"{name} failed: {error}", style="red", markup=False)


def measure_rounds(
    title: str, arms: Mapping[str, Callable[[int], MeasuredWindow]], rounds: Rounds, progress: Progress
) -> Outcome[MeasuredWindow]:
    """Measures one window of each arm in each round. Prints the speeds of a round as one line."""
    line: list[str] = []

    def told(one: Measurement[MeasuredWindow]) -> None:
        if one.found is None:
            progress.failed(one.arm, ArmFailedError(one.failure))
            return
        line.append(f"{one.arm} {one.found.window.samples_per_s / 1e3:.1f}k{'*' * one.found.rejected}")
        if len(line) == len(arms.keys() - progress.failures.keys()):
            progress.say(f"round {one.round + 1}  " + "  ".join(line))
            line.clear()

    return run(Benchmark(title=title, arms=arms, rounds=rounds, figures=(SPEED,)), told)
