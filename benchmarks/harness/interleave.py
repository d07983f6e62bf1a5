"""Interleaved measurement: in every round each arm is measured once, so that a machine that drifts drifts for all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["ArmFailedError", "Measurement", "Rounds", "interleave"]

M = TypeVar("M")


class ArmFailedError(Exception):
    """An arm ended, or trains no more; the message says why."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many there are, and in which order each goes through the arms: forwards and backwards in turns, so that no
    arm always follows the same one, or shuffled (`seed`). `deadline_s` (monotonic): no round begins that would probably
    not end by then, after the first `least`."""

    count: int
    is_shuffled: bool = False
    seed: int = 0
    deadline_s: float = float("inf")
    least: int = 2


@dataclass(frozen=True)
class Measurement(Generic[M]):
    """Of one arm in one round. failure: why there is none."""

    arm: str
    round: int
    found: M | None
    failure: str = ""


def interleave(arms: Mapping[str, Callable[[int], M]], rounds: Rounds) -> Iterator[Measurement[M]]:
    """One measurement for each arm and round, as they come; arms are called with the round's number. An arm that raised
    ArmFailedError is left out of the rounds that follow."""
    shuffler = random.Random(rounds.seed)
    left = list(arms)
    longest_s = 0.0
    for number in range(rounds.count):
        began_s = time.monotonic()
        if number >= rounds.least and began_s + longest_s > rounds.deadline_s:
            return
        order = left[:: -1 if number % 2 and not rounds.is_shuffled else 1]
        if rounds.is_shuffled:
            shuffler.shuffle(order)
        for arm in order:
            try:
                yield Measurement(arm, number, arms[arm](number))
            except ArmFailedError as error:
                left.remove(arm)
                yield Measurement(arm, number, None, str(error))
        longest_s = max(longest_s, time.monotonic() - began_s)
