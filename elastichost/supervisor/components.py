"""The parts of a run that exist once the model is known and the arena is made."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.host import used_bytes
from elastichost.datasets.sources.settings import decoded_directory
from elastichost.runs.events import EarlyStopped
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.checkpoints import CheckpointController
from elastichost.supervisor.controllers.evaluations import EvaluationController
from elastichost.supervisor.controllers.leases import LeaseController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.elastic_hosts.loss import HostLosses
from elastichost.supervisor.ledger.early_stopping import EarlyStopVerdict
from elastichost.supervisor.memory.lookups import LookupCount
from elastichost.supervisor.memory.monitor import MemoryWatch
from elastichost.supervisor.rebalancer import Rebalancer
from elastichost.wire.control import EvaluationScoresMsg

__all__ = ["Components"]


@dataclass(frozen=True, slots=True)
class Components:
    """All components. A method here passes on an event that concerns several of them."""

    run: RunContext
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
        """Bytes of the arenas of all hosts: rows, row state and index."""
        return self.arena.touched_bytes() + self.memory.used_elsewhere_bytes()

    def cached_bytes(self) -> int:
        """Bytes of the decoded units that the workers of this machine keep in the arena's directory."""
        try:
            return used_bytes(decoded_directory(self.arena.directory))
        except FileNotFoundError:  # nothing is kept
            return 0

    def copies_bytes(self) -> int:
        """Bytes that PS keep in shared pages outside the arena for snapshots of checkpoints."""
        servers = [record.process.index for record in self.run.fleet.live("server")]
        return sum(arena.board.server(index).copies for arena in self.memory.arenas for index in servers)

    def ended(self, record: ProcessRecord, *, asked: bool) -> None:
        """An incarnation has ended; asked: because the supervisor stopped it. A worker that ended otherwise may have
        applied batches that it never reported. A reader holds nothing."""
        if record.process.role == "reader":
            return
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
        """Other PS have rebuilt the buckets of a lost host, and workers are being sent the new shard map."""
        self.losses.made_anew(DenseStore(self.arena).samples_applied())

    def drained(self, record: ProcessRecord) -> None:
        """A worker has given its leases back."""
        self.evaluations.lost(record.process)
        self.leases.drained(record.process)
        self.checkpoints.drained(record)

    def scored(self, record: ProcessRecord, message: EvaluationScoresMsg, frames: tuple[memoryview, ...]) -> None:
        """A worker has scored a part of the test data. The result of a whole evaluation may end training early."""
        self._judge(self.evaluations.scored(record, message, frames))

    def finish_evaluation(self) -> None:
        """Ends an evaluation whose scores are complete, once the user's metric functions have computed."""
        self._judge(self.evaluations.turn())

    def _judge(self, verdict: EarlyStopVerdict | None) -> None:
        if verdict is not None and verdict.stop and not self.leases.ledger.is_finished:
            dropped = self.leases.ledger.stop_early()
            self.run.note(EarlyStopped(verdict.reason, dropped), self.evaluations.cause)

    def serve(self) -> None:
        """Answers workers that wait for work: after a pause, at a new epoch, when an evaluation begins."""
        self.evaluations.serve()
        self.leases.serve()
