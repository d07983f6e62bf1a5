"""Computes the load of each PS and of the hottest buckets from the recorded looks of the balancer. Pure."""

from __future__ import annotations

from collections import defaultdict

from elastichost.reporting.run.facts import Heat, HotBucket
from elastichost.tuner.placement.heat import BucketKey
from elastichost.tuner.records import BalanceLooked

__all__ = ["HeatFolder"]

MOST_POINTS = 480
HOTTEST = 8


class HeatFolder:
    """Folds looks in order. If there are too many, neighbouring looks are merged."""

    def __init__(self) -> None:
        self._owners: dict[BucketKey, int] = {}
        self._totals: defaultdict[BucketKey, float] = defaultdict(float)
        self._looks: list[tuple[float, dict[int, float], float]] = []  # (at_s, load by PS, busiest share of time)
        self._moves: list[tuple[float, int]] = []

    def looked(self, record: BalanceLooked, at_s: float) -> None:
        if record.owners is not None:
            self._owners = {(table, bucket): owner for table, bucket, owner in record.owners}
        loads = dict.fromkeys(record.speeds, 0.0)
        for table, bucket, keys in record.asked:
            self._totals[table, bucket] += keys
            if (owner := self._owners.get((table, bucket))) is not None:
                loads[owner] = loads.get(owner, 0.0) + keys / record.speeds.get(owner, 1.0)
        if record.moves and record.was_begun:
            self._moves.append((at_s, len(record.moves)))
        if sum(loads.values()) > 0:
            self._looks.append((at_s, loads, record.busiest))
        if len(self._looks) == 2 * MOST_POINTS:
            self._looks = [_added(one, other) for one, other in zip(self._looks[::2], self._looks[1::2], strict=False)]

    def heat(self) -> Heat | None:
        """The load over time. None: no look was recorded, or no key was requested."""
        if not self._looks:
            return None
        servers = tuple(sorted({server for _, loads, _ in self._looks for server in loads}))
        totals = [sum(loads.values()) for _, loads, _ in self._looks]
        shares = tuple(
            tuple(loads.get(server, 0.0) / total for (_, loads, _), total in zip(self._looks, totals, strict=True))
            for server in servers
        )
        return Heat(
            at_s=tuple(at_s for at_s, _, _ in self._looks),
            servers=servers,
            shares=shares,
            busiest=tuple(busiest for _, _, busiest in self._looks),
            moves=tuple(self._moves),
            hottest=self._hottest(),
        )

    def _hottest(self) -> tuple[HotBucket, ...]:
        everything = sum(self._totals.values())
        hottest = sorted(self._totals, key=lambda key: (-self._totals[key], key))[:HOTTEST]
        return tuple(HotBucket(*key, self._totals[key] / everything, self._owners.get(key)) for key in hottest)


def _added(
    one: tuple[float, dict[int, float], float], other: tuple[float, dict[int, float], float]
) -> tuple[float, dict[int, float], float]:
    loads = {server: one[1].get(server, 0.0) + other[1].get(server, 0.0) for server in one[1] | other[1]}
    return other[0], loads, max(one[2], other[2])
