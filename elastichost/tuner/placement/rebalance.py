"""Decides which buckets get another owner, so that the load of the PS is balanced with few moves. Pure.

A fresh assignment (longest processing time first) balances best, but moves almost all buckets. So buckets are moved one
by one from the busiest PS to the PS that is least busy afterwards, until the imbalance is at most BOUND. The fresh
assignment is used only if it reaches the bound with fewer moves.
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

BOUND = 1.15  # imbalance (largest load / mean load) to reach by moving
TRIGGER = 1.3  # imbalance above which buckets are moved, if it holds for
REPORTS = 2  # consecutive reports
BUSY = 0.5  # buckets are moved only if the busiest PS serves for more than this share of its time
EVERY_S = 30.0  # least seconds between two moves

Owners = Mapping[BucketKey, int]


def _loads(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> dict[int, float]:
    loads = dict.fromkeys(sorted(speeds), 0.0)
    for key in sorted(owners):
        loads[owners[key]] += heat.get(key, 0.0) / speeds[owners[key]]
    return loads


def imbalance(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> float:
    """The largest load / speed of a PS, over the value that all PS would have if the load were spread perfectly; 1 is
    perfect, also without load. speeds: relative speed of each PS; every owner must have one."""
    loads = _loads(heat, owners, speeds)
    ideal = sum(heat.get(key, 0.0) for key in owners) / sum(speeds.values())
    return max(loads.values()) / ideal if ideal > 0 else 1.0


def longest_first(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> dict[BucketKey, int]:
    """A fresh assignment: the hottest bucket first, each to the PS that would finish it first; of equal PS the present
    owner, then the lowest number."""
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
    """Returns the owner of every bucket. The result is never less balanced than `owners`, and never needs more moves
    than a fresh assignment. It is within the bound if one of the two methods reaches the bound. If `owners` is within
    the bound already, the result is `owners`."""
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
    """Makes at most `most` moves, each from the busiest PS and each of a different bucket."""
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


# --- decisions --------------------------------------------------------------------------------------------------------


class Rebalance(msgspec.Struct, frozen=True):
    """Buckets should move to these owners."""

    owners: Mapping[BucketKey, int]
    moves: int
    reason: str


class Stay(msgspec.Struct, frozen=True):
    """No bucket moves. is_news: the kind of the reason differs from the last one, so it gets a line in the journal."""

    kind: Literal["balanced", "watching", "idle", "too soon", "one bucket", "no better"]
    reason: str
    is_news: bool


class BalanceState(msgspec.Struct, frozen=True):
    """reports: number of consecutive reports above TRIGGER. moved_s: time of the last move. said: kind of the last
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
    """Folds one report, and decides whether buckets move. busiest_share: share of its time in which the busiest PS
    serves requests, 0 to 1."""
    present = imbalance(heat, owners, speeds)
    reports = state.reports + 1 if present > TRIGGER else 0
    said = f"the busiest PS has {present:.2f} times the mean load"
    kind: Literal["balanced", "watching", "idle", "too soon", "one bucket", "no better"]
    if reports == 0:
        kind = "balanced"
    elif reports < REPORTS:
        kind = "watching"
    elif busiest_share <= BUSY:
        kind, said = "idle", f"{said}, but it serves requests only {busiest_share:.0%} of the time"
    elif state.moved_s is not None and now_s - state.moved_s < EVERY_S:
        kind, said = "too soon", f"{said}; buckets were already moved {now_s - state.moved_s:.0f} s ago"
    else:
        target = rebalanced(heat, owners, speeds)
        after, moves = imbalance(heat, target, speeds), _moves(owners, target)
        if moves:
            text = f"{said}; moving {moves} bucket{'s' * (moves != 1)} reduces this to {after:.2f}"
            reason = f"{text}{_hottest(heat, owners, speeds)}"
            return BalanceState(0, now_s, "moved"), Rebalance(target, moves, reason)
        hottest = _hottest(heat, owners, speeds)
        kind, said = ("one bucket", f"{said}{hottest}") if hottest else ("no better", f"{said}; no move reduces this")
    is_news = kind != state.said and kind != "watching"
    return BalanceState(reports, state.moved_s, kind if kind != "watching" else state.said), Stay(kind, said, is_news)


def _hottest(heat: Mapping[BucketKey, float], owners: Owners, speeds: Mapping[int, float]) -> str:
    """A sentence about the hottest bucket if it alone exceeds the share of a PS; else ""."""
    total = sum(heat.get(key, 0.0) for key in owners)
    key = max(sorted(owners), key=lambda one: heat.get(one, 0.0))
    share = heat.get(key, 0.0) / total if total > 0 else 0.0
    if share <= BOUND / len(speeds):
        return ""
    return f"; bucket {key[1]} of table {key[0]} alone has {share:.0%} of the load, and buckets are not divided"
