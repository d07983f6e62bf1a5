"""Finds the longest horizon with which the kept rows fit. Pure.

A *horizon* is the number of samples for which a row may be unseen before it is dropped. Where the ages of rows were
counted, the bytes that a horizon keeps are read from the counts. Beyond the counted ages they grow as the number of
distinct ids: bytes of rows seen within h samples ~ h^beta, beta: exponent of the growth (`growth.slope`).
"""

from __future__ import annotations

import math

from elastichost.tuner.memory.facts import AGE_EDGES, MemorySample
from elastichost.tuner.memory.growth import GrowthState, clipped, forecast, quantile, slope

__all__ = ["HIGH", "LATE", "LIVE_ERROR", "kept_bytes", "longest_horizon", "passing_bytes"]

HIGH = 0.95  # probability of the upper bounds
LATE = 1.25  # a row is dropped at the latest at this many horizons
FILL = 0.9  # share of the free room that a horizon may fill
HORIZON_STEP = 1.1  # ratio of the horizons that are tried
LIVE_ERROR = 0.1  # standard error of the log of the bytes that a horizon keeps


def longest_horizon(growth: GrowthState, look: MemorySample, *, shortens_own: bool) -> int | None:
    """The longest horizon with which no host fills more than FILL of its free room; None: there is none.
    shortens_own: it also applies to tables with their own age."""
    total = look.samples + look.samples_left
    steps = max(0, math.ceil(math.log(max(total, 1) / look.least_horizon) / math.log(HORIZON_STEP)))
    places = sum(host.place_bytes for host in look.hosts)
    passing = passing_bytes(growth, look)
    for step in range(steps, -1, -1):
        horizon = round(look.least_horizon * HORIZON_STEP**step)
        kept = kept_bytes(growth, look, horizon, shortens_own=shortens_own) * math.exp(LIVE_ERROR)
        more = max(0.0, kept + passing - places)
        rooms = (max(0.0, FILL * (host.budget_bytes - host.used_bytes)) for host in look.hosts)
        if all(more * host.share <= room for host, room in zip(look.hosts, rooms, strict=True)):
            return horizon
    return None


def passing_bytes(growth: GrowthState, look: MemorySample) -> float:
    """Bytes of places that are unused because their rows were just dropped: the bytes of new rows in `grace_s`."""
    soon = forecast(growth, clipped(look.samples + look.samples_per_s * look.grace_s, look.new_ids_until))
    return quantile(soon, HIGH) if soon is not None else 0.0


def kept_bytes(growth: GrowthState, look: MemorySample, horizon: int, *, shortens_own: bool) -> float:
    """Bytes of the rows that a horizon keeps in the long run, just before a round of dropping that is as late as
    allowed (LATE)."""
    kept = _seen_within(growth, look, LATE * horizon, look.live_bytes - look.own_bytes, look.ages)
    if shortens_own:
        own = _seen_within(growth, look, LATE * horizon, look.own_bytes, look.own_ages)
        return kept + min(own, look.own_bytes)
    return kept + look.own_bytes


def _seen_within(
    growth: GrowthState, look: MemorySample, samples: float, live: float, ages: tuple[float, ...]
) -> float:
    """Bytes of rows that are seen within the last `samples` samples. live: bytes of all live rows. ages: their
    cumulative bytes by AGE_EDGES."""
    known = min(float(look.samples), LATE * look.horizon if look.horizon else math.inf)
    counted = min(known, float(look.samples - look.ages_from))
    beta, error = slope(growth)
    if ages and AGE_EDGES[0] <= samples <= counted:
        return _interpolated(ages, samples)
    beyond = min(max(beta + error, 0.1), 1.0) if samples > known else min(max(beta - error, 0.1), 1.0)
    return live * float((samples / max(known, 1.0)) ** beyond)


def _interpolated(ages: tuple[float, ...], samples: float) -> float:
    """Linear interpolation of cumulative bytes between AGE_EDGES."""
    for number in range(1, len(ages)):
        if AGE_EDGES[number] >= samples:
            low, high = AGE_EDGES[number - 1], AGE_EDGES[number]
            share = (samples - low) / (high - low)
            return ages[number - 1] + share * (ages[number] - ages[number - 1])
    return ages[-1]
