"""The outcome of a benchmark: its measurements, its figures over all rounds, the verdicts on its aims. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.harness.aggregates import Aggregate, typical
from benchmarks.harness.aims import Verdict
from benchmarks.harness.benchmark import Benchmark, PairedFigure
from benchmarks.harness.interleave import Measurement

__all__ = ["Outcome"]

M = TypeVar("M")


@dataclass(frozen=True)
class Outcome(Generic[M]):
    """The outcome of one benchmark. measured: all measurements in the order in which they were made."""

    benchmark: Benchmark[M]
    measured: tuple[Measurement[M], ...]

    @property
    def failures(self) -> dict[str, str]:
        """The reason of failure by arm."""
        return {one.arm: one.failure for one in self.measured if one.found is None}

    def of(self, arm: str) -> dict[int, M]:
        """The measurements of an arm by round."""
        return {one.round: one.found for one in self.measured if one.arm == arm and one.found is not None}

    def values(self, arm: str) -> list[M]:
        """The measurements of an arm in the order of rounds."""
        found = self.of(arm)
        return [found[number] for number in sorted(found)]

    def figure(self, name: str, arm: str) -> Aggregate | None:
        """A figure of an arm. None: it was not measured, or this arm does not have it. Raises KeyError for an unknown
        name."""
        for figure in self.benchmark.figures:
            if figure.name == name:
                return None if figure.arms and arm not in figure.arms else figure.over(self.values(arm))
        raise KeyError(name)

    def pair(self, figure: PairedFigure[M]) -> Aggregate | None:
        """A paired figure; None if no round has measured both arms."""
        return figure.over(self.of(figure.arm), self.of(figure.against))

    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts on all aims. Raises KeyError for an aim of an unknown figure."""
        pairs = {figure.name: figure for figure in self.benchmark.pairs}
        found = []
        for aim in self.benchmark.aims:
            if aim.figure in pairs:
                value = self.pair(pairs[aim.figure])
            else:
                value = self.figure(aim.figure, aim.arm or next(iter(self.benchmark.arms)))
            found.append(aim.judge(None if value is None else typical(value)))
        return tuple(found)
