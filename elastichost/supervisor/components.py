"""The parts of a run that exist once the model is known and the arena is made."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.runs.events import EarlyStopped
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.checkpoints import CheckpointController
from elastichost.supervisor.controllers.evaluations import EvaluationController
from elastichost.supervisor.controllers.leases import LeaseController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.elastic_hosts.loss import HostLosses
from elastichost.supervisor.memory.lookups import LookupCount
from elastichost.supervisor.memory.monitor import MemoryWatch
from elastichost.supervisor.rebalancer import Rebalancer
from elastichost.wire.control import EvaluationScoresMsg

__all__ = ["Components"]


@dataclass(frozen=True, slots=True)
class Components:
    """What happens to one of them that the others must know of goes through here."""

    run: Run
    arena: Arena
    sharding: ShardMapController
    leases: LeaseController
    evaluations: EvaluationController
    checkpoints: CheckpointController
    rebalancer: Rebalancer
    memory: MemoryWatch
    losses: HostLosses
    lookups: LookupCount

    def arena_bytes(self) -> int:
        """What the rows and all that belongs to them take, on every host."""
        return self.arena.touched_bytes() + self.memory.used_elsewhere_bytes()

    def copies_bytes(self) -> int:
        """What PS keep for the copies of checkpoints, in shared pages of their own."""
        servers = [record.process.index for record in self.run.fleet.live("server")]
        return sum(arena.board.server(index).copies for arena in self.memory.arenas for index in servers)

    def ended(self, record: ProcessRecord, *, asked: bool) -> None:
        """An incarnation has ended. A worker that was not asked to may have applied batches that it never reported."""
        if not asked or record.process.role == "server":
            self.checkpoints.lost(record)
        if record.process.role == "server":
            self.sharding.server_gone(record.process)
            if asked or record.process.index not in self.sharding.holdings.owners:
                self.leases.server_gone(record.process)
        if record.process.role == "worker":
            self.evaluations.lost(record.process)
            self.sharding.worker_gone(record.process)
            if not asked:
                self.leases.lost(record.process)

    def made_anew(self) -> None:
        """Buckets of a lost host are there again, and workers learn where."""
        self.losses.made_anew(DenseStore(self.arena).samples_applied())

    def drained(self, record: ProcessRecord) -> None:
        self.evaluations.lost(record.process)
        self.leases.drained(record.process)
        self.checkpoints.drained(record)

    def scored(self, record: ProcessRecord, message: EvaluationScoresMsg, frames: tuple[memoryview, ...]) -> None:
        verdict = self.evaluations.scored(record, message, frames)
        if verdict is not None and verdict.stop and not self.leases.ledger.is_finished:
            dropped = self.leases.ledger.stop_early()
            self.run.note(EarlyStopped(verdict.reason, dropped), self.evaluations.cause)

    def serve(self) -> None:
        """After a pause, at a new epoch, when an evaluation begins: whoever waits is answered."""
        self.evaluations.serve()
        self.leases.serve()
