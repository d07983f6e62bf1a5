"""The life of a checkpoint: one consistent cut through ledger, rows, optimizer state and dense vector. Pure.

    idle -> pausing -> copying -> writing -> committed
               |          |          |-----> aborted     (a PS died: its file will not come)
               |----------|----------------> aborted     (a process died: the workers proceed, tried again later)

Workers stand still only while buckets are copied; the copies are written while training goes on.
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
    # it is time: Pause goes to every worker that may hold a lease
    (CutState.IDLE, "begin"): CutState.PAUSING,
    # all Paused: the ledger is exact now; Snapshot goes to every PS
    (CutState.PAUSING, "all paused"): CutState.COPYING,
    # all SnapshotCutMsg: ProceedMsg goes to the workers
    (CutState.COPYING, "all copied"): CutState.WRITING,
    # all SnapshotWrittenMsg: the manifest may be committed
    (CutState.WRITING, "all written"): CutState.COMMITTED,
    # somebody died, or the cut takes too long
    (CutState.PAUSING, "abandon"): CutState.ABORTED,
    (CutState.COPYING, "abandon"): CutState.ABORTED,
    (CutState.WRITING, "abandon"): CutState.ABORTED,
}


class SendPause(msgspec.Struct, frozen=True):
    cut: int
    workers: tuple[ProcessId, ...]


class TakeCopies(msgspec.Struct, frozen=True):
    """Record the ledger now, and send Snapshot to these."""

    cut: int
    servers: tuple[ProcessId, ...]


class SendProceed(msgspec.Struct, frozen=True):
    cut: int
    workers: tuple[ProcessId, ...]


class Commit(msgspec.Struct, frozen=True):
    cut: int
    dense_version: int


class Abandon(msgspec.Struct, frozen=True):
    """Remove what was written."""

    cut: int
    reason: str


CutEffect = SendPause | TakeCopies | SendProceed | Commit | Abandon


class Cut:
    """One checkpoint. Every method returns the effects to perform, in order; late answers have none."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = CutState.IDLE
        self.began_s = 0.0
        self.paused_s: float | None = None  # from all paused ...
        self.proceeded_s: float | None = None  # ... to proceed: how long training stood still at most
        self.rows = 0
        self.bytes = 0
        self._workers: frozenset[ProcessId] = frozenset()
        self._servers: frozenset[ProcessId] = frozenset()
        self._waiting: set[ProcessId] = set()  # for PausedMsg, then for SnapshotCutMsg
        self._writing: frozenset[ProcessId] = frozenset()  # a PS may have written before another has copied
        self._dense_version = 0

    @property
    def is_open(self) -> bool:
        return self.state in (CutState.PAUSING, CutState.COPYING, CutState.WRITING)

    @property
    def holds_workers(self) -> bool:
        """No lease may be granted: an answer would cross the Pause."""
        return self.state in (CutState.PAUSING, CutState.COPYING)

    def _move(self, event: str) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransitionError(f"checkpoint {self.number}", self.state.value, event) from None

    def begin(self, workers: Iterable[ProcessId], servers: Iterable[ProcessId], now_s: float) -> tuple[CutEffect, ...]:
        self._move("begin")
        self.began_s = now_s
        self._workers, self._servers = frozenset(workers), frozenset(servers)
        self._waiting = set(self._workers)
        pause = (SendPause(self.number, tuple(sorted(self._workers))),) if self._workers else ()
        return (*pause, *self._all_paused(now_s))

    def paused(self, worker: ProcessId, cut: int, now_s: float) -> tuple[CutEffect, ...]:
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
        """`dense_version` is that of the dense owner; other PS report 0."""
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
        """A process is gone. While the copies are being written, only a PS matters."""
        matters = process in self._servers or (self.holds_workers and process in self._workers)
        self._workers -= {process}
        return self.abandon(f"{process} was lost while the checkpoint was {self.state.value}") if matters else ()

    def abandon(self, reason: str) -> tuple[CutEffect, ...]:
        if not self.is_open:
            return ()
        workers = tuple(sorted(self._workers)) if self.holds_workers else ()
        self._move("abandon")
        proceed = (SendProceed(self.number, workers),) if workers else ()
        return (*proceed, Abandon(self.number, reason))
