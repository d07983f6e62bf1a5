"""What the benchmarks inside one process share: interleaved rounds, medians, how they report."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import msgspec

from benchmarks.harness.machine import read_machine

__all__ = ["Spread", "interleaved", "percentile", "print_table", "spread_of", "write_json"]

SCHEMA = "elastichost-benchmark/v1"


class Spread(msgspec.Struct, frozen=True):
    """Of repeated measurements of one thing."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g}-{self.most:.3g})"


def spread_of(values: Iterable[float]) -> Spread:
    """Raises ValueError when there are none."""
    found = list(values)
    return Spread(median(found), min(found), max(found))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no values, hence no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def interleaved(arms: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, Spread]:
    """Each arm's measurements, one of every arm a round: a machine that drifts drifts for all of them.

    Arms are called with the round's number. Every second round goes backwards: no arm always follows the same one.
    """
    found: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in list(arms)[:: -1 if number % 2 else 1]:
            found[name].append(arms[name](number))
    return {name: spread_of(values) for name, values in found.items()}


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """On stdout; the first column to the left, the others to the right."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def write_json(benchmark: str, figures: msgspec.Struct | Mapping[str, object]) -> None:
    """The last line of stdout: what was measured and where."""
    found = {"schema": SCHEMA, "benchmark": benchmark, "machine": read_machine(), "figures": figures}
    sys.stdout.flush()
    print(msgspec.json.encode(found).decode(), flush=True)
