"""Counts of what PS are asked for, read from the arenas every few seconds; buckets change hands as `tuner.rebalance`
decides, also between hosts.

Not with direct access: PS see new ids only. The counts are words of the bucket headers that only their owners write, so
reading them here needs no message; those of other machines are in the doubles of their arenas. With access by place PS
are asked by workers of other hosts only, and `tuner.host_heat` tells from that what all need.
"""

from __future__ import annotations

import msgspec

from elastichost.arena.index import HEAT
from elastichost.sharding import ShardMap
from elastichost.supervisor.memory_watch import MemoryWatch
from elastichost.supervisor.mover import moves_between
from elastichost.supervisor.roster import Roster
from elastichost.supervisor.run import Run
from elastichost.tuner.heat import BucketKey, HeatState, fold
from elastichost.tuner.host_heat import Askers, askers_of, busiest_link, keys_needed
from elastichost.tuner.rebalance import BalanceState, Rebalance, Stay, decide
from elastichost.tuner.records import BalanceLooked, BalanceOpened, moves_of

__all__ = ["Balancer"]

EVERY_S = 3.0
HALF_LIFE_S = 6.0
FLOAT_BYTES = 4


class Balancer:
    """`look` does nothing until a few seconds have passed, nor with one PS. memory: has the arenas of all hosts."""

    def __init__(self, run: Run, memory: MemoryWatch, roster: Roster) -> None:
        self._run, self._memory, self._roster = run, memory, roster
        self._row_bytes: dict[int, int] = {}  # of each table
        for embedding in memory.arenas[0].model.embeddings:
            self._row_bytes[embedding.table] = self._row_bytes.get(embedding.table, 0) + FLOAT_BYTES * embedding.dim
        self._counted: dict[BucketKey, int] = {}
        self._looked_s: float | None = None  # when these counts were read
        self._speeds: dict[int, float] = {}
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
            loads[owner] = loads.get(owner, 0.0) + heat.get(key, 0.0) / self._speeds.get(owner, 1.0)
        return max(loads.values()) / sum(loads.values())

    def look(self, now_s: float) -> None:
        """Call it while no checkpoint is open."""
        run, servers = self._run, self._run.fleet.working("server")
        if now_s < self._next_s or len(servers) < 2:
            return
        self._next_s = now_s + EVERY_S
        hosts = {record.process.index: record.spec.host for record in servers}
        workers = [record.spec.host for record in run.fleet.working("worker")]
        askers = askers_of(hosts, workers, is_by_place=run.plan.access == "mixed")
        if blind := _blindness(run, askers):
            if not self._said_blind:
                run.note("decision", f"buckets are not moved by load: {blind}")
            self._said_blind = True
            return
        owners = _owners(self._roster.shard_map)
        are_there = set(owners.values()) <= set(hosts) and self._roster.is_published
        if not workers or not are_there or not all(map(self._memory.gauge_of, hosts.values())):
            return
        # A PS that a part of the workers asks can own so much more before it has as much to do.
        speeds = self._speeds = {server: 1.0 / askers.share(server) for server in hosts}
        needed = keys_needed(self._asked(owners, hosts), owners, askers)
        self._heat = fold(self._heat, needed, now_s, HALF_LIFE_S)
        busiest = max(self._link_use(needed, owners, askers, now_s), *(1.0 - one.wait_fraction for one in servers))
        before = self._state
        self._state, decision = decide(before, self._heat.heat, owners, speeds, busiest, now_s)
        was_begun = not isinstance(decision, Rebalance) or self._begin(decision, hosts)
        if not was_begun:
            self._state = before  # something else is on its way: with the next report again
        elif isinstance(decision, Stay) and decision.is_news:
            run.note("decision", f"buckets stay: {decision.reason}", data={"kind": decision.kind})
        self._record(now_s, needed, owners, speeds, busiest, decision, was_begun=was_begun)

    def _begin(self, decision: Rebalance, hosts: dict[int, int]) -> bool:
        """Within hosts at once; between them rows are copied first, if memory is left there."""
        roster = self._roster
        target = _shard_map(roster.shard_map, decision)
        moves = moves_between(roster.shard_map, target, hosts)
        if not moves:
            return roster.rebalance(target, decision.reason)
        if not all(roster.may_take(host) for host in {hosts[move.target] for move in moves}):
            return False
        return roster.relocate(target, decision.reason)

    def _link_use(
        self, needed: dict[BucketKey, float], owners: dict[BucketKey, int], askers: Askers, now_s: float
    ) -> float:
        since_s, self._looked_s = self._looked_s, now_s
        if since_s is None or self._run.machines is None:
            return 0.0
        per_s = {key: keys / (now_s - since_s) for key, keys in needed.items()}
        links = self._run.machines.links
        speeds = {host: links[host].slowest_bytes_per_s for host in self._run.elsewhere if host in links}
        return min(1.0, busiest_link(per_s, owners, askers, self._row_bytes, speeds))

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

    def _asked(self, owners: dict[BucketKey, int], hosts: dict[int, int]) -> dict[BucketKey, float]:
        """Keys that PS were asked for since the last look."""
        gauges = {host: self._memory.gauge_of(host) for host in set(hosts.values())}
        arenas = {server: gauge.arena for server, host in hosts.items() if (gauge := gauges[host]) is not None}
        counts = {key: int(arenas[owner].header(*key)[HEAT]) for key, owner in owners.items()}
        asked = {key: float(max(0, count - self._counted.get(key, count))) for key, count in counts.items()}
        self._counted = counts
        return asked


def _blindness(run: Run, askers: Askers) -> str:
    """Why nothing is known of the load, in words; "" when it is."""
    if run.plan.access == "direct":
        return "with direct access workers read rows themselves, and a PS is asked for new ids only"
    if askers.workers and any(askers.share(server) <= 0 for server in askers.hosts):
        return "all workers are on one host, and read its rows themselves"
    return ""


def _owners(shard_map: ShardMap) -> dict[BucketKey, int]:
    return {(t, b): owner for t, row in enumerate(shard_map.owners) for b, owner in enumerate(row)}


def _shard_map(present: ShardMap, decision: Rebalance) -> ShardMap:
    owners = tuple(tuple(decision.owners[t, b] for b in range(len(row))) for t, row in enumerate(present.owners))
    return msgspec.structs.replace(present, owners=owners)
