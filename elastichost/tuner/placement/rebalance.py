"""Which buckets should change hands so that no PS has much more to do than the others, with few moves. Pure.

A fresh assignment (longest processing time first) spreads load best and moves almost everything. So the busiest PS
gives one bucket after the other to the one that is least busy afterwards, until the bound holds; a fresh assignment is
taken only where it holds the bound with fewer moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from elastichost.tuner.placement.heat import BucketKey

__all__ = [
    "BOUND",
    "BalanceState",
    "Rebalance",
    "Stay",
    "decide",
    "imbalance",
    "longest_first",
    "rebalanced",
]

BOUND = 1.15  # largest load over the mean, after moving
TRIGGER = 1.3  # and before, for
REPORTS = 2  # reports in a row
BUSY = 0.5  # share of its time that the busiest PS serves
EVERY_S = 30.0

Owners = Mapping[BucketKey, int]


def _loads(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> dict[int, float]:
    loads = dict.fromkeys(sorted(speeds), 0.0)
    for key in sorted(owners):
        loads[owners[key]] += heat.get(key, 0.0) / speeds[owners[key]]
    return loads


def imbalance(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> float:
    """Largest time over the one that all would take if the load could be spread evenly; 1 is perfect, and nothing to
    do. speeds: of each PS, relative to one another; every owner has one."""
    loads = _loads(heat, owners, speeds)
    ideal = sum(heat.get(key, 0.0) for key in owners) / sum(speeds.values())
    return max(loads.values()) / ideal if ideal > 0 else 1.0


def longest_first(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> dict[BucketKey, int]:
    """A fresh assignment: the hottest bucket first, each to the PS that is done with it first; of equals the one that
    has it, then the lowest number."""
    loads, fresh = dict.fromkeys(sorted(speeds), 0.0), dict[BucketKey, int]()
    for key in sorted(owners, key=lambda one: (-heat.get(one, 0.0), one)):
        own = heat.get(key, 0.0)
        chosen = min(loads, key=lambda server: (loads[server] + own / speeds[server], server != owners[key], server))
        loads[chosen] += own / speeds[chosen]
        fresh[key] = chosen
    return fresh


def rebalanced(
    heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float], bound: float = BOUND
) -> dict[BucketKey, int]:
    """Owner of every bucket. Never worse than `owners`, and never more moves than a fresh assignment makes; within the
    bound where one of the two ways reaches it. Without need: `owners` itself."""
    present = dict(owners)
    before = imbalance(heat, present, speeds)
    if before <= bound:
        return present
    fresh = longest_first(heat, present, speeds)
    stepwise = _stepwise(heat, present, speeds, bound, _moves(present, fresh))
    options = [present, stepwise, fresh]
    reached = [option for option in options if imbalance(heat, option, speeds) <= bound]
    if reached:
        return min(reached, key=lambda option: _moves(present, option))
    return min(options, key=lambda option: (imbalance(heat, option, speeds), _moves(present, option)))


def _moves(before: Owners, after: Owners) -> int:
    return sum(before[key] != after[key] for key in before)


def _stepwise(
    heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float], bound: float, most: int
) -> dict[BucketKey, int]:
    """At most so many moves, each from the busiest PS, and each of another bucket."""
    present, moved = dict(owners), set[BucketKey]()
    while len(moved) < most and imbalance(heat, present, speeds) > bound:
        loads = _loads(heat, present, speeds)
        source = max(loads, key=lambda server: (loads[server], -server))
        best, best_load = None, loads[source]
        for key in sorted(key for key in present if present[key] == source and key not in moved):
            own = heat.get(key, 0.0)
            for target in loads:
                after = max(loads[source] - own / speeds[source], loads[target] + own / speeds[target])
                if target != source and own > 0 and after < best_load:
                    best, best_load = (key, target), after
        if best is None:
            break
        present[best[0]] = best[1]
        moved.add(best[0])
    return present


# --- when -------------------------------------------------------------------------------------------------------------


class Rebalance(msgspec.Struct, frozen=True):
    """The buckets should be with these owners."""

    owners: Mapping[BucketKey, int]
    moves: int
    reason: str


class Stay(msgspec.Struct, frozen=True):
    """Nothing moves. `is_news`: the reason is of another kind than the last one, and worth a line of the journal."""

    kind: Literal["balanced", "watching", "idle", "too soon", "one bucket", "no better"]
    reason: str
    is_news: bool


class BalanceState(msgspec.Struct, frozen=True):
    """`reports`: with too much on one PS, in a row; `moved_s`: when buckets were moved last; `said`: kind of the last
    decision."""

    reports: int = 0
    moved_s: float | None = None
    said: str = "balanced"


def decide(
    state: BalanceState,
    heat: Mapping[BucketKey, float],
    owners: Owners,
    speeds: Mapping[int, float],
    busiest_share: float,
    now_s: float,
) -> tuple[BalanceState, Rebalance | Stay]:
    """Folds one report. busiest_share: how much of its time the busiest PS serves, from 0 to 1."""
    present = imbalance(heat, owners, speeds)
    reports = state.reports + 1 if present > TRIGGER else 0
    said = f"the busiest PS has {present:.2f} times its share"
    kind: Literal["balanced", "watching", "idle", "too soon", "one bucket", "no better"]
    if reports == 0:
        kind = "balanced"
    elif reports < REPORTS:
        kind = "watching"
    elif busiest_share <= BUSY:
        kind, said = "idle", f"{said}, and serves {busiest_share:.0%} of the time only"
    elif state.moved_s is not None and now_s - state.moved_s < EVERY_S:
        kind, said = "too soon", f"{said}; buckets were moved {now_s - state.moved_s:.0f} s ago"
    else:
        target = rebalanced(heat, owners, speeds)
        after, moves = imbalance(heat, target, speeds), _moves(owners, target)
        if moves:
            text = f"{said}; {moves} bucket{'s' * (moves != 1)} moved make it {after:.2f}"
            reason = f"{text}{_hottest(heat, owners, speeds)}"
            return BalanceState(0, now_s, "moved"), Rebalance(target, moves, reason)
        hottest = _hottest(heat, owners, speeds)
        kind, said = ("one bucket", f"{said}{hottest}") if hottest else ("no better", f"{said}; no move helps")
    is_news = kind != state.said and kind != "watching"
    return BalanceState(reports, state.moved_s, kind if kind != "watching" else state.said), Stay(kind, said, is_news)


def _hottest(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> str:
    """In words, when one bucket alone is more than a PS' share."""
    total = sum(heat.get(key, 0.0) for key in owners)
    key = max(sorted(owners), key=lambda one: heat.get(one, 0.0))
    share = heat.get(key, 0.0) / total if total > 0 else 0.0
    if share <= BOUND / len(speeds):
        return ""
    return f"; bucket {key[1]} of table {key[0]} alone has {share:.0%} of all load, and a bucket is not divided"
