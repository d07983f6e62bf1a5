"""How much is asked of every bucket lately: counts that fade. Pure.

With served access a PS counts the keys that it is asked for. With direct access workers read rows themselves, a PS sees
new ids only, and its counts say nothing of load.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["BucketKey", "HeatState", "fold", "heat_at"]

BucketKey = tuple[int, int]  # (table, bucket)


class HeatState(msgspec.Struct, frozen=True):
    """`heat`: faded counts of keys as they were at `at_s`."""

    heat: Mapping[BucketKey, float] = {}
    at_s: float = 0.0


def heat_at(state: HeatState, now_s: float, half_life_s: float) -> dict[BucketKey, float]:
    """The faded counts now. Raises ValueError for a half-life that is not positive."""
    if half_life_s <= 0:
        raise ValueError(f"half_life_s = {half_life_s} must be positive")
    left = 0.5 ** (max(0.0, now_s - state.at_s) / half_life_s)
    return {key: heat * left for key, heat in state.heat.items()}


def fold(state: HeatState, counts: Mapping[BucketKey, float], now_s: float, half_life_s: float) -> HeatState:
    """Adds keys that were asked for since the report before. A time that goes back fades nothing."""
    heat = heat_at(state, now_s, half_life_s)
    for key, count in counts.items():
        heat[key] = heat.get(key, 0.0) + count
    return HeatState(heat, max(now_s, state.at_s))
