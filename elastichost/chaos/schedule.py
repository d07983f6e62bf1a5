"""The schedule of a chaos run: calm and faulty stretches of time, and the faults of the faulty ones. Pure.

The same seed, times and kinds give the same schedule on every machine. Times are seconds since training began.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from elastichost.sharding import mix64

__all__ = ["Planned", "Stretch", "plan_faults", "plan_stretches", "unit_draw"]

CALM_SHARE = 0.2
LEAST_CYCLE_S = 10.0
MOST_CYCLES = 4
MOST_FAULTS = 100_000


class Stretch(NamedTuple):
    """A part of the time. In a calm stretch no fault is injected, so that the undisturbed speed can be measured."""

    start_s: float
    stop_s: float
    is_calm: bool


class Planned(NamedTuple):
    """A planned fault. kind: its name; draw: a random number, 0 <= draw < 2**64, that selects the target among the
    processes that work at that time."""

    at_s: float
    kind: str
    draw: int


def unit_draw(seed: int, *counters: int) -> float:
    """A pseudo-random number in [0, 1): a function of its arguments."""
    value = mix64(seed)
    for counter in counters:
        value = mix64(value ^ mix64(counter + 1))
    return (value >> 11) / float(1 << 53)


def plan_stretches(duration_s: float) -> tuple[Stretch, ...]:
    """Cycles of a calm stretch (a fifth of the cycle) and a faulty one. With several cycles, a change of the machine's
    speed during the run affects both kinds of stretches.

    Raises ValueError when `duration_s` is not above 0."""
    if duration_s <= 0:
        raise ValueError(f"duration_s={duration_s} must be above 0")
    cycles = max(1, min(MOST_CYCLES, int(duration_s / LEAST_CYCLE_S)))
    length_s = duration_s / cycles
    found: list[Stretch] = []
    for cycle in range(cycles):
        start_s = cycle * length_s
        found.append(Stretch(start_s, start_s + CALM_SHARE * length_s, True))
        found.append(Stretch(start_s + CALM_SHARE * length_s, start_s + length_s, False))
    return tuple(found)


def plan_faults(
    seed: int, stretches: Sequence[Stretch], every_s: float, weights: Mapping[str, float]
) -> tuple[Planned, ...]:
    """The faults of the faulty stretches, sorted by time. The gaps between faults are exponentially distributed with
    mean `every_s`.

    weights: name of a fault -> how often it is drawn, relative to the others. Raises ValueError when no weight is above
    0, or `every_s` is not.
    """
    if every_s <= 0 or not any(weight > 0 for weight in weights.values()):
        raise ValueError("faults need a mean gap above 0 and at least one kind with a weight above 0")
    kinds = sorted(kind for kind, weight in weights.items() if weight > 0)
    found: list[Planned] = []
    for part, stretch in enumerate(stretches):
        at_s = stretch.start_s
        for number in range(0 if stretch.is_calm else MOST_FAULTS):
            at_s -= every_s * math.log(1.0 - unit_draw(seed, part, number, 0))
            if at_s >= stretch.stop_s:
                break
            kind = _choose(kinds, weights, unit_draw(seed, part, number, 1))
            found.append(Planned(at_s, kind, mix64(mix64(seed + 7) ^ mix64((part << 32) + number))))
    return tuple(found)


def _choose(kinds: Sequence[str], weights: Mapping[str, float], draw: float) -> str:
    left = draw * sum(weights[kind] for kind in kinds)
    for kind in kinds:
        left -= weights[kind]
        if left < 0:
            return kind
    return kinds[-1]
