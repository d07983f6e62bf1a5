"""Moves buckets away from busy PS: reads their request counts from the arenas every few seconds, and carries out what
`tuner.placement.rebalance` decides, between hosts too.

With direct access nothing is balanced, because PS receive requests for new ids only. The counts are words of the bucket
headers that only the bucket's owner writes, so reading them needs no message. The counts of other machines are in the
replicas of their arenas. With mixed access a PS receives requests from workers of other hosts only;
`tuner.placement.cross_host_load` estimates from these counts how many keys all workers need.
"""

from __future__ import annotations

import msgspec

from elastichost.arena.arena import Arena
from elastichost.arena.index.table import HEAT, LIVE_ROWS
from elastichost.human_readable import mib
from elastichost.runs.events import BalancingOff, BucketsStay
from elastichost.sharding import ShardMap, rows_per_bucket
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.migration import moves_between
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core.migration import Move
from elastichost.supervisor.memory.gauge import row_costs
from elastichost.supervisor.memory.monitor import MemoryWatch
from elastichost.tuner.placement.cross_host_load import Requesters, keys_needed, requesters_of
from elastichost.tuner.placement.heat import BucketKey, HeatState, fold
from elastichost.tuner.placement.rebalance import BalanceState, Rebalance, Stay, decide
from elastichost.tuner.records import BalanceLooked, BalanceOpened, moves_of

__all__ = ["Rebalancer"]

EVERY_S = 3.0
HALF_LIFE_S = 6.0
MOST_COPY_S = 10.0  # over the slowest link; the copies are made while the job trains, but use its bandwidth


class Rebalancer:
    """Balances the load of PS. memory: has the arenas of all hosts."""

    def __init__(self, run: RunContext, memory: MemoryWatch, sharding: ShardMapController) -> None:
        self._run, self._memory, self._sharding = run, memory, sharding
        model = memory.arenas[0].model
        self._tables, self._row_bytes = model.tables, row_costs(model).copy
        self._counted: dict[BucketKey, int] = {}
        self._speeds: dict[int, float] = {}
        self._heat, self._state = HeatState(), BalanceState()
        self._next_s = 0.0
        self._said_blind = self._said_dear = False
        self._recorded_owners: dict[BucketKey, int] | None = None

    @property
    def hot_share(self) -> float | None:
        """The share of the load that the busiest PS has; None: there were no requests lately, or none are counted."""
        heat = self._heat.heat
        total = sum(heat.values())
        if total <= 0:
            return None
        loads: dict[int, float] = {}
        for key, owner in _owners(self._sharding.shard_map).items():
            loads[owner] = loads.get(owner, 0.0) + heat.get(key, 0.0) / self._speeds.get(owner, 1.0)
        return max(loads.values()) / sum(loads.values())

    def look(self, now_s: float) -> None:
        """Balances once every EVERY_S seconds when there are two PS or more. Call it while no checkpoint is open."""
        run, servers = self._run, self._run.fleet.working("server")
        if now_s < self._next_s or len(servers) < 2:
            return
        self._next_s = now_s + EVERY_S
        hosts = {record.process.index: record.spec.host for record in servers}
        workers = [(record.spec.host, record.samples_per_s) for record in run.fleet.working("worker")]
        is_by_place = run.plan.access == "mixed"
        if is_by_place and not all(samples_per_s for _, samples_per_s in workers):
            return  # a worker that has not trained yet will send requests too
        askers = requesters_of(hosts, workers, is_by_place=is_by_place)
        if blind := _blindness(run, askers):
            if not self._said_blind:
                run.note(BalancingOff(blind))
            self._said_blind = True
            return
        owners = _owners(self._sharding.shard_map)
        arenas = self._arenas(hosts)
        if not workers or not set(owners.values()) <= set(arenas) or not self._sharding.is_published:
            return
        # A PS receives requests from a share of the workers only, so it can own 1 / share times as much for equal load.
        speeds = self._speeds = {server: 1.0 / askers.share(server) for server in hosts}
        needed = keys_needed(self._asked(owners, arenas), owners, askers)
        self._heat = fold(self._heat, needed, now_s, HALF_LIFE_S)
        busiest = max(1.0 - record.wait_fraction for record in servers)
        before = self._state
        self._state, decision = decide(before, self._heat.heat, owners, speeds, busiest, now_s)
        was_begun = not isinstance(decision, Rebalance) or self._begin(decision, hosts, arenas)
        if not was_begun:
            self._state = before  # another hand-over is under way, or memory or links do not allow it: decided again
        elif isinstance(decision, Stay) and decision.is_news:
            run.note(BucketsStay(decision.kind, decision.reason))
        self._record(now_s, needed, owners, speeds, busiest, decision, was_begun=was_begun)

    def _begin(self, decision: Rebalance, hosts: dict[int, int], arenas: dict[int, Arena]) -> bool:
        """Begins the hand-over of buckets; returns False when it cannot begin. Within a host it begins at once. Between
        hosts rows are copied first, if the target host has memory left and the links take at most MOST_COPY_S."""
        sharding = self._sharding
        target = _shard_map(sharding.shard_map, decision)
        moves = moves_between(sharding.shard_map, target, hosts)
        if not moves:
            with self._run.caused_by(self._run.new_cause("balance")):
                return sharding.rebalance(target, decision.reason)
        if not all(sharding.may_take(host) for host in {hosts[move.target] for move in moves}):
            return False
        size_bytes, speed = sum(self._bytes_of(move, arenas) for move in moves), self._run.bandwidth_bytes_per_s
        if speed > 0 and size_bytes > MOST_COPY_S * speed:
            if not self._said_dear:
                words = f"copying {mib(size_bytes)} over the slowest link takes {size_bytes / speed:,.0f} s"
                self._run.note(BucketsStay("links", f"{decision.reason}, but {words}"))
            self._said_dear = True
            return False
        with self._run.caused_by(self._run.new_cause("balance")):
            return sharding.relocate(target, decision.reason)

    def _bytes_of(self, move: Move, arenas: dict[int, Arena]) -> float:
        table, header = self._tables[move.table], arenas[move.source].header(move.table, move.bucket)
        rows = int(header[LIVE_ROWS]) if table.is_dynamic else rows_per_bucket(table)
        return float(rows * self._row_bytes[move.table])

    def _record(
        self,
        now_s: float,
        needed: dict[BucketKey, float],
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
        counts = tuple((*key, count) for key, count in sorted(needed.items()) if count)
        write(BalanceLooked(now_s, counts, known, speeds, busiest, kind, moves, was_begun))

    def _arenas(self, hosts: dict[int, int]) -> dict[int, Arena]:
        """PS -> the arena with its rows, or the replica of that arena."""
        found = {server: self._memory.gauge_of(host) for server, host in hosts.items()}
        return {server: gauge.arena for server, gauge in found.items() if gauge is not None}

    def _asked(self, owners: dict[BucketKey, int], arenas: dict[int, Arena]) -> dict[BucketKey, float]:
        """Bucket -> keys requested of its PS since the last call."""
        counts = {key: int(arenas[owner].header(*key)[HEAT]) for key, owner in owners.items()}
        asked = {key: float(max(0, count - self._counted.get(key, count))) for key, count in counts.items()}
        self._counted = counts
        return asked


def _blindness(run: RunContext, askers: Requesters) -> str:
    """Why request counts do not show the load, as a sentence for the journal; "" when they do."""
    if run.plan.access == "direct":
        return "with direct access workers read rows in place, and a PS receives requests for new ids only"
    if askers.workers and any(askers.share(server) <= 0 for server in askers.hosts):
        return "all workers are on one host and read its rows in place"
    return ""


def _owners(shard_map: ShardMap) -> dict[BucketKey, int]:
    return {(t, b): owner for t, row in enumerate(shard_map.owners) for b, owner in enumerate(row)}


def _shard_map(present: ShardMap, decision: Rebalance) -> ShardMap:
    owners = tuple(tuple(decision.owners[t, b] for b in range(len(row))) for t, row in enumerate(present.owners))
    return msgspec.structs.replace(present, owners=owners)
