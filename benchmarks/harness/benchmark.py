"""How a benchmark is declared: arms, rounds, figures, aims. Pure.

An arm is a function that measures it once, in the round of the number that it is called with. What it returns is of any
type; figures say which numbers are taken from that, and what is told of them over all rounds.
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
    """A number that is told of an arm. of: what one measurement contributes: a value, several, or None, nothing;
    aggregate: what is told of all contributions. arms: of these only; none: of all."""

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
        """None: nothing contributed."""
        values: list[float] = []
        for one in measured:
            found = self.of(one)
            if found is not None:
                values += [found] if isinstance(found, (int, float)) else found
        return self.aggregate(values) if values else None


@dataclass(frozen=True)
class PairedFigure(Generic[M]):
    """A number that compares two arms within a round, because a machine's speed drifts from one round to the next.
    of: `arm` first, then `against`."""

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
        """By round. None: there is no round in which both were measured."""
        values = [self.of(arm[number], against[number]) for number in sorted(arm.keys() & against.keys())]
        return self.aggregate(values) if values else None


@dataclass(frozen=True)
class Benchmark(Generic[M]):
    """One thing that is measured. title: above its table. case: where the same is measured in several settings, which
    one this is. aims: of figures and pairs, by their names."""

    title: str
    arms: Mapping[str, Callable[[int], M]]
    rounds: Rounds
    figures: tuple[Figure[M], ...]
    pairs: tuple[PairedFigure[M], ...] = ()
    aims: tuple[Aim, ...] = ()
    case: str = ""
