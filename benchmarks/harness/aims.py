"""Aims: bounds of figures, and whether they were reached. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Aim", "Verdict", "at_least", "at_most", "bounds_of", "is_any_missed"]

Direction = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound of a figure. arm: the arm of the figure; "" if the benchmark has one arm, or if the figure compares two.
    form: format of the figure."""

    figure: str
    bound: float
    direction: Direction
    arm: str = ""
    form: str = ".3g"

    @property
    def label(self) -> str:
        return f"{self.arm}: {self.figure}" if self.arm else self.figure

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.direction == "at least" else value <= self.bound

    def judge(self, value: float | None) -> Verdict:
        """The verdict on a value; None means not measured."""
        return Verdict(self, value)

    def __str__(self) -> str:
        sign = ">=" if self.direction == "at least" else "<="
        return f"{sign} {self.bound:{self.form if self.form.endswith('%') else 'g'}}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An aim, and the value that was measured."""

    aim: Aim
    value: float | None

    @property
    def is_met(self) -> bool | None:
        """None: it was not measured."""
        return None if self.value is None else self.aim.is_met(self.value)

    @property
    def word(self) -> str:
        return {True: "reached", False: "not reached", None: "not measured"}[self.is_met]

    @property
    def shown(self) -> str:
        return "-" if self.value is None else f"{self.value:{self.aim.form}}"

    def to_json(self) -> dict[str, object]:
        aim = self.aim
        facts = {"figure": aim.figure, "arm": aim.arm, "bound": aim.bound, "direction": aim.direction}
        return {**facts, "value": self.value, "reached": self.is_met}


def at_least(bound: float, figure: str = "", form: str = ".3g") -> Aim:
    return Aim(figure, bound, "at least", form=form)


def at_most(bound: float, figure: str = "", form: str = ".3g") -> Aim:
    return Aim(figure, bound, "at most", form=form)


def bounds_of(aims: Iterable[Aim]) -> dict[str, float]:
    """The bound of each figure, for the JSON output."""
    return {aim.figure: aim.bound for aim in aims}


def is_any_missed(verdicts: Iterable[Verdict]) -> bool:
    """Whether a measured value misses its aim. A value that was not measured does not count as missed."""
    return any(verdict.is_met is False for verdict in verdicts)
