"""A host is lost while its run trains: the run goes on without it, and says exactly what that cost.

Rows of other hosts and the dense part stay as they are, and no sample is trained twice: the buckets of the lost host
are made anew on host 0, from the newest checkpoint, and shared out from there as any others. In sync mode, where every
bit depends on all of them, the whole run goes back instead (`rollback`).
"""

from __future__ import annotations

import msgspec

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.errors import CheckpointError
from elastichost.runs.events import RowsRolledBack
from elastichost.runs.result import LostHost
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.checkpoints import CheckpointController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.ledger.checkpoint_record import find_checkpoint, read_record
from elastichost.supervisor.memory.monitor import MemoryWatch

__all__ = ["HostLosses"]

Key = tuple[int, int]  # (table, bucket)


class HostLosses:
    """Of one run. arena: of host 0."""

    def __init__(
        self,
        run: Run,
        arena: Arena,
        sharding: ShardMapController,
        checkpoints: CheckpointController,
        memory: MemoryWatch,
    ) -> None:
        self._run, self._arena, self._sharding = run, arena, sharding
        self._checkpoints, self._memory = checkpoints, memory
        self._open: list[tuple[int, tuple[Key, ...], FoundCheckpoint | None, str]] = []  # places in run.lost_hosts

    def lose(self, event: AgentLost) -> None:
        """The host is used no more; the plan is without it already. What becomes of its processes follows."""
        run, sharding, memory = self._run, self._sharding, self._memory
        for record in run.fleet:
            if record.spec.host == event.host and record.is_live:
                record.kill_reason = f"host {event.name} is lost"
                self._checkpoints.lost(record)  # nothing that it still says of its file counts
        servers = frozenset(server for server, host in sharding.hosts.items() if host == event.host)
        buckets = tuple(key for server in sorted(servers) for key in sharding.shard_map.buckets_of(server))
        gauge = memory.gauge_of(event.host)
        rows = _rows_of(gauge.arena, buckets) if gauge is not None else 0
        found = self._newest()
        name = found.directory.name if found is not None else ""
        run.lost_hosts.append(LostHost(event.name, event.reason, len(buckets), rows, name))
        if buckets:
            self._open.append((len(run.lost_hosts) - 1, buckets, found, run.cause))
        memory.lose(event.host)
        sharding.lose(servers, found.directory if found is not None else None, f"host {event.name} is lost")

    def _newest(self) -> FoundCheckpoint | None:
        """Verified: a bad one is passed over."""
        try:
            return find_checkpoint(self._run.directory.checkpoint_source)
        except CheckpointError:
            return None

    def made_anew(self, samples_applied: int) -> None:
        """Workers learn where the rows are now. samples_applied: trained before that."""
        for place, buckets, found, cause in self._open:
            before = read_record(found.manifest).samples_applied if found is not None else 0
            loss = msgspec.structs.replace(
                self._run.lost_hosts[place],
                rows_restored=_rows_of(self._arena, buckets),
                samples=samples_applied - before,
            )
            self._run.lost_hosts[place] = loss
            self._run.note(RowsRolledBack(loss), cause)
        self._open.clear()


def _rows_of(arena: Arena, buckets: tuple[Key, ...]) -> int:
    return sum(int(arena.header(table, bucket)[index.LIVE_ROWS]) for table, bucket in buckets)
