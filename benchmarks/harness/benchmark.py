"""Declares a benchmark: arms, rounds, figures, aims. Pure.

An arm is a function that makes one measurement; it is called with the number of the round. It may return any type. The
figures define which numbers are taken from a measurement, and how they are aggregated over all rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.harness.aggregates import Aggregate, spread_of
from benchmarks.harness.aims import Aim
from benchmarks.harness.interleave import Rounds

__all__ = ["Benchmark", "Figure", "PairedFigure"]

M = TypeVar("M")


@dataclass(frozen=True)
class Figure(Generic[M]):
    """A number of an arm. of: the contribution of one measurement: a value, several values, or None for no value.
    aggregate: combines all contributions. arms: the arms that have this figure; () for all."""

    name: str
    unit: str
    of: Callable[[M], float | Sequence[float] | None]
    aggregate: Callable[[Sequence[float]], Aggregate] = spread_of
    form: str = ".3g"
    arms: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def over(self, measured: Sequence[M]) -> Aggregate | None:
        """The aggregate over all measurements; None if none of them contributes."""
        values: list[float] = []
        for one in measured:
            found = self.of(one)
            if found is not None:
                values += [found] if isinstance(found, (int, float)) else found
        return self.aggregate(values) if values else None


@dataclass(frozen=True)
class PairedFigure(Generic[M]):
    """A number that compares two arms within a round, because the speed of a machine drifts between rounds. of: takes
    the measurement of `arm` first, then the one of `against`."""

    name: str
    unit: str
    arm: str
    against: str
    of: Callable[[M, M], float]
    aggregate: Callable[[Sequence[float]], Aggregate] = spread_of
    form: str = ".3g"

    @property
    def heading(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def over(self, arm: Mapping[int, M], against: Mapping[int, M]) -> Aggregate | None:
        """The aggregate over rounds (both arguments are by round); None if no round has measured both arms."""
        values = [self.of(arm[number], against[number]) for number in sorted(arm.keys() & against.keys())]
        return self.aggregate(values) if values else None


@dataclass(frozen=True)
class Benchmark(Generic[M]):
    """One benchmark. title: heading of its table. case: name of the setting, if the benchmark runs in several settings.
    aims: bounds of figures and pairs, by their names."""

    title: str
    arms: Mapping[str, Callable[[int], M]]
    rounds: Rounds
    figures: tuple[Figure[M], ...]
    pairs: tuple[PairedFigure[M], ...] = ()
    aims: tuple[Aim, ...] = ()
    case: str = ""
