"""A host is lost while its run trains. The run goes on without it, and reports exactly which updates are lost.

Rows of other hosts and the dense part stay unchanged, and no sample is trained twice. PS of host 0 rebuild the buckets
of the lost host from the newest checkpoint, or from the one that the run started from; then the buckets are divided
among all PS as usual. In sync mode every bit of the result depends on all rows, so the whole run goes back to the
checkpoint instead (`supervisor.rollback`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.checkpoint.places import CheckpointSource
from elastichost.errors import CheckpointError
from elastichost.runs.events import RowsRolledBack
from elastichost.runs.result import LostHost
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.checkpoints import CheckpointController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.ledger.checkpoint_record import find_checkpoint, read_record
from elastichost.supervisor.memory.monitor import MemoryWatch

__all__ = ["HostLosses"]

Key = tuple[int, int]  # (table, bucket)


class HostLosses:
    """The losses of hosts in one run. arena: of host 0. started_from: the checkpoint that its buckets were filled from,
    which may be of another run. trains_anew: the run has taken rows and dense part from it, but no samples.
    """

    def __init__(
        self,
        run: RunContext,
        arena: Arena,
        sharding: ShardMapController,
        checkpoints: CheckpointController,
        memory: MemoryWatch,
        started_from: Path | None = None,
        *,
        trains_anew: bool = False,
    ) -> None:
        self._run, self._arena, self._sharding = run, arena, sharding
        self._checkpoints, self._memory = checkpoints, memory
        self._started_from, self._trains_anew = started_from, trains_anew
        self._open: list[tuple[int, tuple[Key, ...], FoundCheckpoint | None, str]] = []  # buckets being rebuilt

    def lose(self, event: AgentLost) -> None:
        """Stops using the host and begins to rebuild its buckets. Call it when the plan has no process of this host any
        more. The events with the ends of its processes follow."""
        run, sharding, memory = self._run, self._sharding, self._memory
        for record in run.fleet:
            if record.spec.host == event.host and record.is_live:
                record.kill_reason = f"host {event.name} is lost"
                self._checkpoints.lost(record)  # aborts an open checkpoint now, before the ends of the processes
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
        """The newest intact checkpoint of the run, else the one that it started from; None if there is none."""
        with contextlib.suppress(CheckpointError):
            return find_checkpoint(self._run.directory.checkpoint_source)
        if self._started_from is not None:
            with contextlib.suppress(CheckpointError):
                return find_checkpoint(CheckpointSource((self._started_from,)))
        return None

    def _samples_before(self, found: FoundCheckpoint | None) -> int:
        """How many of the samples that this run has trained are in the checkpoint."""
        if found is None or (self._trains_anew and found.directory == self._started_from):
            return 0
        return read_record(found.manifest).samples_applied

    def made_anew(self, samples_applied: int) -> None:
        """Reports the losses of hosts whose buckets are rebuilt. Call it when workers get the new shard map.
        samples_applied: number of samples trained until then."""
        for place, buckets, found, cause in self._open:
            before = self._samples_before(found)
            lost, restored = self._run.lost_hosts[place], _rows_of(self._arena, buckets)
            # the count of the lost host was as old as its last report, so the checkpoint may know of more rows
            loss = msgspec.structs.replace(
                lost, rows=max(lost.rows, restored), rows_restored=restored, samples=samples_applied - before
            )
            self._run.lost_hosts[place] = loss
            self._run.note(RowsRolledBack(loss), cause)
        self._open.clear()


def _rows_of(arena: Arena, buckets: tuple[Key, ...]) -> int:
    return sum(int(arena.header(table, bucket)[index.LIVE_ROWS]) for table, bucket in buckets)
