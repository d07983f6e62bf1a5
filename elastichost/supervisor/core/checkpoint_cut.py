"""The life of one checkpoint: a consistent cut through ledger, rows, optimizer state and dense vector. Pure.

Rules:

1. The ledger is recorded only when every worker stands at a batch boundary and has reported its progress.
2. Workers stand still only in `pausing` and `copying`, while PS copy their buckets in memory. The copies are written to
   files while training goes on.
3. A checkpoint is committed only when every PS that took part has written its file.
4. An answer to another cut, or an answer that comes too late, has no effect.

States:

    idle -> pausing -> copying -> writing -> committed
               |          |          |
               +----------+----------+-----> aborted

Theory of operation. `begin` sends Pause to every worker that may hold a lease. When all have answered Paused, the
ledger is exact: the controller records it with the dense vector, and sends Snapshot to every PS. A PS copies its
buckets, answers SnapshotCutMsg, and writes the copy to a file. When all have copied, the workers get Proceed and train
on. When all have answered SnapshotWrittenMsg, the manifest may be committed. Each method returns these effects in the
order in which the controller must perform them.

A kill: the death of a worker aborts the cut while workers are held, because its last batches are not settled; later it
has no effect. The death of a PS always aborts the cut, because its file will not come. An aborted cut lets the workers
proceed, its files are removed, and the agenda begins another cut later. When the supervisor dies, its staging directory
has no manifest and is removed by the resumed run.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from elastichost.errors import IllegalTransitionError
from elastichost.plan import ProcessId

__all__ = ["Abandon", "Commit", "Cut", "CutEffect", "CutState", "SendPause", "SendProceed", "TakeCopies"]


class CutState(StrEnum):
    IDLE = "idle"
    PAUSING = "pausing"
    COPYING = "copying"
    WRITING = "writing"
    COMMITTED = "committed"
    ABORTED = "aborted"


TRANSITIONS: dict[tuple[CutState, str], CutState] = {
    # Pause is sent to every worker that may hold a lease
    (CutState.IDLE, "begin"): CutState.PAUSING,
    # every worker has answered Paused: the ledger is exact, and Snapshot is sent to every PS
    (CutState.PAUSING, "all paused"): CutState.COPYING,
    # every PS has answered SnapshotCutMsg: ProceedMsg is sent to the workers
    (CutState.COPYING, "all copied"): CutState.WRITING,
    # every PS has answered SnapshotWrittenMsg: the manifest may be committed
    (CutState.WRITING, "all written"): CutState.COMMITTED,
    # a process died, a PS could not write, or the cut takes too long
    (CutState.PAUSING, "abandon"): CutState.ABORTED,
    (CutState.COPYING, "abandon"): CutState.ABORTED,
    (CutState.WRITING, "abandon"): CutState.ABORTED,
}


class SendPause(msgspec.Struct, frozen=True):
    cut: int
    workers: tuple[ProcessId, ...]


class TakeCopies(msgspec.Struct, frozen=True):
    """Record the ledger and the dense vector now, and send Snapshot to these PS."""

    cut: int
    servers: tuple[ProcessId, ...]


class SendProceed(msgspec.Struct, frozen=True):
    cut: int
    workers: tuple[ProcessId, ...]


class Commit(msgspec.Struct, frozen=True):
    cut: int
    dense_version: int


class Abandon(msgspec.Struct, frozen=True):
    """Remove the files of this cut."""

    cut: int
    reason: str


CutEffect = SendPause | TakeCopies | SendProceed | Commit | Abandon


class Cut:
    """One checkpoint. Every method returns the effects to perform, in order; a late answer has none."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = CutState.IDLE
        self.began_s = 0.0
        self.paused_s: float | None = None  # when the last worker had paused
        self.proceeded_s: float | None = None  # when the workers were let go
        self.rows = 0
        self.bytes = 0
        self._workers: frozenset[ProcessId] = frozenset()
        self._servers: frozenset[ProcessId] = frozenset()
        self._waiting: set[ProcessId] = set()  # workers without PausedMsg, then PS without SnapshotCutMsg
        self._writing: frozenset[ProcessId] = frozenset()  # one PS may have written before another one has copied
        self._dense_version = 0

    @property
    def is_open(self) -> bool:
        return self.state in (CutState.PAUSING, CutState.COPYING, CutState.WRITING)

    @property
    def holds_workers(self) -> bool:
        """Workers are paused, or being paused. No lease may be granted: it could arrive after the Pause."""
        return self.state in (CutState.PAUSING, CutState.COPYING)

    def _move(self, event: str) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransitionError(f"checkpoint {self.number}", self.state.value, event) from None

    def begin(self, workers: Iterable[ProcessId], servers: Iterable[ProcessId], now_s: float) -> tuple[CutEffect, ...]:
        """Begins the cut with the workers that may hold a lease and the PS that own buckets."""
        self._move("begin")
        self.began_s = now_s
        self._workers, self._servers = frozenset(workers), frozenset(servers)
        self._waiting = set(self._workers)
        pause = (SendPause(self.number, tuple(sorted(self._workers))),) if self._workers else ()
        return (*pause, *self._all_paused(now_s))

    def paused(self, worker: ProcessId, cut: int, now_s: float) -> tuple[CutEffect, ...]:
        """A worker stands at a batch boundary, or has drained."""
        if cut != self.number or self.state != CutState.PAUSING:
            return ()
        self._waiting.discard(worker)
        return self._all_paused(now_s)

    def _all_paused(self, now_s: float) -> tuple[CutEffect, ...]:
        if self._waiting:
            return ()
        self._move("all paused")
        self.paused_s = now_s
        self._waiting, self._writing = set(self._servers), self._servers
        return (TakeCopies(self.number, tuple(sorted(self._servers))),)

    def copied(self, server: ProcessId, cut: int, rows: int, bytes_: int, now_s: float) -> tuple[CutEffect, ...]:
        """A PS has copied its buckets in memory."""
        if cut != self.number or self.state != CutState.COPYING or server not in self._waiting:
            return ()
        self._waiting.discard(server)
        self.rows += rows
        self.bytes += bytes_
        if self._waiting:
            return ()
        self._move("all copied")
        self.proceeded_s = now_s
        return (SendProceed(self.number, tuple(sorted(self._workers))),)

    def written(self, server: ProcessId, cut: int, dense_version: int) -> tuple[CutEffect, ...]:
        """The file of a PS is complete. dense_version: 0 for a PS that does not own the dense vector."""
        is_awaited = server in self._writing and server not in self._waiting
        if cut != self.number or not self.is_open or not is_awaited:
            return ()
        self._writing -= {server}
        self._dense_version = max(self._dense_version, dense_version)
        if self._writing:
            return ()
        self._move("all written")
        return (Commit(self.number, self._dense_version),)

    def lost(self, process: ProcessId) -> tuple[CutEffect, ...]:
        """A process has ended. While copies are being written, only the end of a PS aborts the cut."""
        matters = process in self._servers or (self.holds_workers and process in self._workers)
        self._workers -= {process}
        return self.abandon(f"{process} was lost while the checkpoint was {self.state.value}") if matters else ()

    def abandon(self, reason: str) -> tuple[CutEffect, ...]:
        """Aborts the cut; does nothing when it is not open."""
        if not self.is_open:
            return ()
        workers = tuple(sorted(self._workers)) if self.holds_workers else ()
        self._move("abandon")
        proceed = (SendProceed(self.number, workers),) if workers else ()
        return (*proceed, Abandon(self.number, reason))
