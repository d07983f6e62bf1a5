"""Interleaved measurement: every round measures each arm once, so that drift of the machine affects all arms alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["ArmFailedError", "Measurement", "Rounds", "interleave"]

M = TypeVar("M")


class ArmFailedError(Exception):
    """An arm has ended or has stopped training; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The number of rounds, and the order of arms in a round: alternately forwards and backwards, so that an arm does
    not always follow the same one, or shuffled by `seed`. `deadline_s` (monotonic clock): after the first `least`
    rounds, a round starts only if it can end by then, judged by the longest round so far."""

    count: int
    is_shuffled: bool = False
    seed: int = 0
    deadline_s: float = float("inf")
    least: int = 2


@dataclass(frozen=True)
class Measurement(Generic[M]):
    """The measurement of one arm in one round. failure: the reason why `found` is None."""

    arm: str
    round: int
    found: M | None
    failure: str = ""


def interleave(arms: Mapping[str, Callable[[int], M]], rounds: Rounds) -> Iterator[Measurement[M]]:
    """Yields one measurement for each arm and round. Arms are called with the number of the round. An arm that raises
    ArmFailedError is left out of the following rounds."""
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
