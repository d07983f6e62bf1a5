"""What happens when: calm and faulty stretches of time, and the faults drawn for the faulty ones. Pure.

The same seed, times and kinds give the same plan on every machine. Times are seconds since training began.
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
    """A part of the time; in a calm one nothing is done to the run, so that its own speed is known."""

    start_s: float
    stop_s: float
    is_calm: bool


class Planned(NamedTuple):
    """`kind` names a fault, `draw` decides on whom among those there are then: 0 <= draw < 2**64."""

    at_s: float
    kind: str
    draw: int


def unit_draw(seed: int, *counters: int) -> float:
    """A number in [0, 1), a function of its arguments."""
    value = mix64(seed)
    for counter in counters:
        value = mix64(value ^ mix64(counter + 1))
    return (value >> 11) / float(1 << 53)


def plan_stretches(duration_s: float) -> tuple[Stretch, ...]:
    """Cycles of a calm fifth and a faulty rest: a machine that drifts drifts for both.

    Raises ValueError for no time."""
    if duration_s <= 0:
        raise ValueError(f"a plan of {duration_s} s")
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
    """Faults of the faulty stretches in order of time; gaps are exponential with mean `every_s`.

    weights: how often each kind is drawn, relative to the others. Raises ValueError when there is nothing to draw.
    """
    if every_s <= 0 or not any(weight > 0 for weight in weights.values()):
        raise ValueError("faults need a positive mean gap and a kind to draw")
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
