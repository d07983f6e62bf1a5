"""The recent load (heat) of every bucket: requested keys, with exponential decay. Pure.

With served access a PS counts the keys that workers request from it. With direct access workers read rows themselves
and a PS sees only new ids, so its counts do not measure the load.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["BucketKey", "HeatState", "fold", "heat_at"]

BucketKey = tuple[int, int]  # (table, bucket)


class HeatState(msgspec.Struct, frozen=True):
    """heat: decayed counts of keys per bucket at the time `at_s`, in seconds."""

    heat: Mapping[BucketKey, float] = {}
    at_s: float = 0.0


def heat_at(state: HeatState, now_s: float, half_life_s: float) -> dict[BucketKey, float]:
    """Returns the decayed counts now. Raises ValueError for a half-life that is not positive."""
    if half_life_s <= 0:
        raise ValueError(f"half_life_s={half_life_s} must be positive")
    left = 0.5 ** (max(0.0, now_s - state.at_s) / half_life_s)
    return {key: heat * left for key, heat in state.heat.items()}


def fold(state: HeatState, counts: Mapping[BucketKey, float], now_s: float, half_life_s: float) -> HeatState:
    """Adds the keys that were requested since the last report. A time before `at_s` causes no decay."""
    heat = heat_at(state, now_s, half_life_s)
    for key, count in counts.items():
        heat[key] = heat.get(key, 0.0) + count
    return HeatState(heat, max(now_s, state.at_s))
