"""Counts of what PS are asked for, read from the arena every few seconds; buckets change hands as `tuner.rebalance`
decides.

Only with served access: with direct access PS see new ids only. The counts are words of the bucket headers that only
their owners write, so reading them here needs no message; with several hosts the headers are not all in reach, and
nothing is done.
"""

from __future__ import annotations

import msgspec

from elastichost.arena.arena import Arena
from elastichost.arena.index import HEAT
from elastichost.sharding import ShardMap
from elastichost.supervisor.roster import Roster
from elastichost.supervisor.run import Run
from elastichost.tuner.heat import BucketKey, HeatState, fold
from elastichost.tuner.rebalance import BalanceState, Rebalance, Stay, decide
from elastichost.tuner.records import BalanceLooked, BalanceOpened, moves_of

__all__ = ["Balancer"]

EVERY_S = 3.0
HALF_LIFE_S = 6.0


class Balancer:
    """`look` does nothing until a few seconds have passed, nor with one PS."""

    def __init__(self, run: Run, arena: Arena, roster: Roster) -> None:
        self._run, self._arena, self._roster = run, arena, roster
        self._counted: dict[BucketKey, int] = {}
        self._heat, self._state = HeatState(), BalanceState()
        self._next_s = 0.0
        self._said_blind = False
        self._recorded_owners: dict[BucketKey, int] | None = None

    @property
    def hot_share(self) -> float | None:
        """Of all load, what the busiest PS has; None: not known, or nothing was asked for lately."""
        heat = self._heat.heat
        total = sum(heat.values())
        if total <= 0:
            return None
        loads: dict[int, float] = {}
        for key, owner in _owners(self._roster.shard_map).items():
            loads[owner] = loads.get(owner, 0.0) + heat.get(key, 0.0)
        return max(loads.values()) / total

    def look(self, now_s: float) -> None:
        """Call it while no checkpoint is open."""
        run, servers = self._run, self._run.fleet.working("server")
        if now_s < self._next_s or len(servers) < 2:
            return
        self._next_s = now_s + EVERY_S
        if blind := _blindness(run):
            if not self._said_blind:
                run.note("decision", f"buckets are not moved by load: {blind}")
            self._said_blind = True
            return
        owners = _owners(self._roster.shard_map)
        speeds = {record.process.index: 1.0 for record in servers}
        if not self._roster.is_published or not set(owners.values()) <= set(speeds):
            return
        asked = self._asked(owners)
        self._heat = fold(self._heat, asked, now_s, HALF_LIFE_S)
        busiest = max(1.0 - record.wait_fraction for record in servers)
        before, was_begun = self._state, True
        self._state, decision = decide(before, self._heat.heat, owners, speeds, busiest, now_s)
        if isinstance(decision, Rebalance):
            shard_map = self._roster.shard_map
            was_begun = self._roster.rebalance(_shard_map(shard_map, decision), decision.reason)
            if not was_begun:
                self._state = before  # something else is on its way: with the next report again
        elif decision.is_news:
            run.note("decision", f"buckets stay: {decision.reason}", data={"kind": decision.kind})
        self._record(now_s, asked, owners, speeds, busiest, decision, was_begun=was_begun)

    def _record(
        self,
        now_s: float,
        asked: dict[BucketKey, float],
        owners: dict[BucketKey, int],
        speeds: dict[int, float],
        busiest: float,
        decision: Rebalance | Stay,
        *,
        was_begun: bool,
    ) -> None:
        write = self._run.recorder.write
        if self._recorded_owners is None:
            write(BalanceOpened(HALF_LIFE_S))
        is_new, self._recorded_owners = owners != self._recorded_owners, owners
        moves = moves_of(decision, owners) if isinstance(decision, Rebalance) else ()
        kind = "moved" if isinstance(decision, Rebalance) else decision.kind
        known = tuple((*key, owner) for key, owner in sorted(owners.items())) if is_new else None
        counts = tuple((*key, count) for key, count in sorted(asked.items()) if count)
        write(BalanceLooked(now_s, counts, known, speeds, busiest, kind, moves, was_begun))

    def _asked(self, owners: dict[BucketKey, int]) -> dict[BucketKey, float]:
        """Keys asked for since the last look."""
        counts = {key: int(self._arena.header(*key)[HEAT]) for key in owners}
        asked = {key: float(max(0, count - self._counted.get(key, count))) for key, count in counts.items()}
        self._counted = counts
        return asked


def _blindness(run: Run) -> str:
    """Why nothing is known of the load, in words; "" when it is."""
    if run.other_arenas:
        return "the rows are in the arenas of several hosts"
    if run.plan.access != "served":
        return "with direct access workers read rows themselves, and a PS is asked for new ids only"
    return ""


def _owners(shard_map: ShardMap) -> dict[BucketKey, int]:
    return {(t, b): owner for t, row in enumerate(shard_map.owners) for b, owner in enumerate(row)}


def _shard_map(present: ShardMap, decision: Rebalance) -> ShardMap:
    owners = tuple(tuple(decision.owners[t, b] for b in range(len(row))) for t, row in enumerate(present.owners))
    return msgspec.structs.replace(present, owners=owners)
