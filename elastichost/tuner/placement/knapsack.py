"""Solves the multiple-choice knapsack problem with two resources: one item of each group, largest total value. Pure.

    maximise  sum value[i]   over one item i of each group,   subject to   sum need[r, i] <= room[r],  r = 0, 1

The Lagrangian relaxation with prices p of the resources,

    L(p) = p . room + sum over groups of max (value - p . need),

has three uses. Its prices guide the greedy choice. L is an upper bound of the best value. An item whose bound is below
a value that was already found is in no better choice, so only few items must be searched exactly.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["Knapsack", "exact", "fits", "greedy", "possible", "prices", "value_of"]

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
ROUNDS, HALVINGS = 2, 20  # bisections of each price, and steps of one (to a millionth)
MOST_CELLS = 2_000_000  # items x room that dynamic programming takes a few milliseconds for
GAP = 1e-3  # relative accuracy of the best value; speeds are not known more exactly


@dataclass(frozen=True)
class Knapsack:
    """n items in g groups.

    value: float64 [n], nonnegative. need: float64 [2, n], whole numbers. group: int64 [n], rising, each of 0..g-1 at
    least once. room: float64 [2]; inf: no limit."""

    value: Floats
    need: Floats
    group: Whole
    room: Floats

    @cached_property
    def starts(self) -> Whole:
        """First item of each group, int64 [g]."""
        return np.flatnonzero(np.diff(self.group, prepend=-1))


def value_of(knapsack: Knapsack, chosen: Whole) -> float:
    """The total value of a choice: one item of each group, int64 [g]."""
    return float(knapsack.value[chosen].sum())


def fits(knapsack: Knapsack, chosen: Whole) -> bool:
    """Whether the choice needs no more than the room of each resource."""
    return bool((knapsack.need[:, chosen].sum(axis=1) <= knapsack.room).all())


def possible(knapsack: Knapsack) -> npt.NDArray[np.bool_]:
    """Which items fit if all other groups take their smallest item; bool [n]. Without the other items the relaxation is
    tighter."""
    least = np.minimum.reduceat(knapsack.need, knapsack.starts, axis=1)
    left = knapsack.room - least.sum(axis=1)
    fits: npt.NDArray[np.bool_] = np.all(knapsack.need - least[:, knapsack.group] <= left[:, None], axis=0)
    return fits


def prices(knapsack: Knapsack) -> Floats:
    """Computes the price of a unit of each resource at which the preferred items of all groups just fit; float64 [2].
    Prices are found approximately by bisection, one resource after the other. A choice that fits must exist."""
    found = np.zeros(2)
    highest = float(knapsack.value.max(initial=0.0))
    for resource in (0, 1) * ROUNDS if highest > 0 else ():
        room = knapsack.room[resource]
        found[resource] = 0.0
        if _wanted(knapsack, found, resource) <= room:
            continue
        # between a price without effect and a price at which one unit costs more than any value
        low, high = highest * 1e-9 / max(room, 1.0), highest * 2.0
        for _ in range(HALVINGS):
            found[resource] = math.sqrt(low * high)
            if _wanted(knapsack, found, resource) > room:
                low = found[resource]
            else:
                high = found[resource]
        found[resource] = high
    return found


def _net(knapsack: Knapsack, at_prices: Floats) -> tuple[Floats, Floats]:
    """The value less the cost of each item, float64 [n], and the largest one of each group, float64 [g]."""
    net = knapsack.value - at_prices @ knapsack.need
    return net, np.maximum.reduceat(net, knapsack.starts)


def _wanted(knapsack: Knapsack, at_prices: Floats, resource: int) -> float:
    """The need of a resource if every group takes its best item at these prices; of equal items the smallest."""
    net, best = _net(knapsack, at_prices)
    is_best = net >= (best - 1e-12 * np.abs(best))[knapsack.group]
    return float(np.minimum.reduceat(np.where(is_best, knapsack.need[resource], np.inf), knapsack.starts).sum())


# --- greedy -----------------------------------------------------------------------------------------------------------


def greedy(knapsack: Knapsack, least: Whole, at_prices: Floats, order: Whole) -> Whole:
    """Returns a greedy choice that fits, int64 [g]. least: the first choice, int64 [g], which fits.

    It repeatedly makes the upgrade with the most value per price, for each group along its concave hull, until no
    upgrade fits. Then each group, in `order`, gets the best item that fits into the remaining room. With one resource
    the value is short of the best by less than one upgrade (Sinha and Zoltners 1979)."""
    chosen, room = least.copy(), knapsack.room - knapsack.need[:, least].sum(axis=1)
    is_stuck = np.zeros(len(least), dtype=np.bool_)
    for group, item in zip(*_steps(knapsack, least, at_prices), strict=True):
        more = knapsack.need[:, item] - knapsack.need[:, chosen[group]]
        if is_stuck[group] or more[0] > room[0] or more[1] > room[1]:
            is_stuck[group] = True
            continue
        chosen[group] = item
        room -= more
    return _filled(knapsack, chosen, room, order)


def _steps(knapsack: Knapsack, least: Whole, at_prices: Floats) -> tuple[list[int], list[int]]:
    """The groups and items of all steps along the concave hulls of all groups, ordered by value per price."""
    cost = at_prices @ knapsack.need
    cost = np.maximum(cost - cost[least][knapsack.group], 0.0)
    useful = np.flatnonzero(knapsack.value > knapsack.value[least][knapsack.group])
    order = useful[np.lexsort((-knapsack.value[useful], cost[useful], knapsack.group[useful]))]
    slopes, groups, items = list[float](), list[int](), list[int]()
    hull: list[tuple[float, float, int, float]] = []  # cost, value, item, slope
    present = -1

    def close() -> None:
        for _, _, item, slope in hull[1:]:
            slopes.append(-slope)
            groups.append(present)
            items.append(item)

    columns = (knapsack.group[order], cost[order], knapsack.value[order], order)
    for group, spent, value, item in zip(*(column.tolist() for column in columns), strict=True):
        if group != present:
            close()
            present = group
            hull = [(0.0, float(knapsack.value[least[group]]), int(least[group]), math.inf)]
        if value <= hull[-1][1]:
            continue
        while (slope := (value - hull[-1][1]) / max(spent - hull[-1][0], 1e-300)) >= hull[-1][3] and len(hull) > 1:
            hull.pop()
        hull.append((spent, value, item, slope))
    close()
    ranked = np.argsort(np.array(slopes, dtype=np.float64), kind="stable").tolist()
    return [groups[at] for at in ranked], [items[at] for at in ranked]


def _filled(knapsack: Knapsack, chosen: Whole, room: Floats, order: Whole) -> Whole:
    """Gives each group, in `order`, its most valuable item that fits into the remaining room."""
    ends = np.append(knapsack.starts, len(knapsack.value))
    for group in order.tolist():
        items = slice(ends[group], ends[group + 1])
        own = chosen[group]
        more = knapsack.need[:, items] - knapsack.need[:, own, None]
        value = np.where((more <= room[:, None]).all(axis=0), knapsack.value[items], -np.inf)
        best = int(np.argmax(value))
        if value[best] > knapsack.value[own]:
            chosen[group] = ends[group] + best
            room = room - more[:, best]
    return chosen


# --- exact ------------------------------------------------------------------------------------------------------------


def exact(
    knapsack: Knapsack, known: Whole, at_prices: Floats, most_items: int, time_limit_s: float, node_limit: int
) -> Whole | None:
    """Returns the choice with the largest value, within GAP of it, int64 [g]; at least the value of `known`, which
    fits. None: more than `most_items` items must be searched, or a limit was reached. Solver: dynamic programming for
    few items of one limited resource, otherwise HiGHS (`scipy.optimize.milp`)."""
    net, best = _net(knapsack, at_prices)
    bound = float(best.sum()) + float((at_prices * np.where(at_prices > 0, knapsack.room, 0.0)).sum())
    # the bound of a choice with this item is L - (best net value of its group - net value of the item)
    is_open = best[knapsack.group] - net <= bound * (1 + 1e-9) - value_of(knapsack, known) * (1 + GAP)
    is_open[known] = True
    choices = np.bincount(knapsack.group[is_open], minlength=len(known))
    # a group with one remaining item takes that item
    searched = np.flatnonzero(choices > 1)
    if not len(searched):
        return known
    items = np.flatnonzero(is_open & (choices > 1)[knapsack.group])
    if len(items) > most_items:
        return None
    fixed = known[choices == 1]
    room = knapsack.room - knapsack.need[:, fixed].sum(axis=1)
    group = np.searchsorted(searched, knapsack.group[items])
    smaller = Knapsack(knapsack.value[items], knapsack.need[:, items], group, room)
    if time_limit_s > 0 and _is_small(smaller):
        picked = _of_one_resource(smaller)
    else:
        picked = _solved(smaller, time_limit_s, node_limit)
    if picked is None:
        return None
    found = known.copy()
    found[searched] = items[picked]
    # the tolerance of the solver is a millionth of the room, so its choice may not fit
    return found if fits(knapsack, found) and value_of(knapsack, found) > value_of(knapsack, known) else known


def _is_small(knapsack: Knapsack) -> bool:
    """Whether `_of_one_resource` can solve it, and does so faster than HiGHS."""
    cores, other = knapsack.room
    return math.isinf(other) and cores >= 0.0 and cores * len(knapsack.value) <= MOST_CELLS


def _of_one_resource(knapsack: Knapsack) -> Whole | None:
    """The best choice with one limited resource, by dynamic programming: group by group, the largest value for each
    room. None: nothing fits."""
    room, need = int(knapsack.room[0]), knapsack.need[0].astype(np.int64)
    ends = [*knapsack.starts.tolist(), len(need)]
    reached, taken = np.zeros(room + 1), list[Whole]()
    for first, end in itertools.pairwise(ends):
        worth, item = np.full(room + 1, -np.inf), np.full(room + 1, first)
        for at in range(first, end):
            if need[at] <= room:
                value = knapsack.value[at] + reached[: room + 1 - need[at]]
                is_better = value > worth[need[at] :]
                worth[need[at] :][is_better] = value[is_better]
                item[need[at] :][is_better] = at
        reached = worth
        taken.append(item)
    if math.isinf(reached[room]):
        return None
    picked = list[int]()
    for item in reversed(taken):
        picked.append(int(item[room]))
        room -= int(need[picked[-1]])
    return np.array(picked[::-1], dtype=np.int64)


def _solved(knapsack: Knapsack, time_limit_s: float, node_limit: int) -> Whole | None:
    # imported here because the import is slow
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    items, groups = len(knapsack.value), len(knapsack.starts)
    one_each = csr_array((np.ones(items), (knapsack.group, np.arange(items))), shape=(groups, items))
    limits = [LinearConstraint(one_each, 1, 1)]
    for need, room in zip(knapsack.need, knapsack.room, strict=True):
        if math.isfinite(room):
            scale = max(float(need.max()) / 1e6, 1.0)  # scales bytes; cores stay whole numbers
            limits.append(LinearConstraint(need[None, :] / scale, -np.inf, room / scale))
    solved = milp(
        -knapsack.value / max(float(knapsack.value.max()), 1e-300),
        integrality=np.ones(items),
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"time_limit": time_limit_s, "node_limit": node_limit, "mip_rel_gap": GAP},
    )
    if solved.status != 0:
        return None
    picked = np.flatnonzero(solved.x > 0.5)
    return picked if len(picked) == groups else None
