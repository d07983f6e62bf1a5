"""Messages of processes, each to whom it concerns. A message of an incarnation that is over is dropped, except what the
ledger can still judge by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from elastichost.errors import IllegalTransitionError, ProtocolError
from elastichost.runs.events import MessageRefused, ProcessConnected, ProcessReady, ProcessRepinned
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.processes import ProcessController
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent, State, next_state
from elastichost.supervisor.launch.events import Started
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    AdmittedMsg,
    BucketsMeasuredMsg,
    ControlMessage,
    CopiedMsg,
    DrainedMsg,
    EvaluationScoresMsg,
    FailureReportMsg,
    FencedMsg,
    ForgottenMsg,
    HeartbeatMsg,
    HelloMsg,
    LeaseProgressMsg,
    LeaseRequestMsg,
    ModelDescribedMsg,
    PausedMsg,
    ReadyMsg,
    RepinnedMsg,
    SettledMsg,
    SnapshotCutMsg,
    SnapshotWrittenMsg,
    UnmappedMsg,
    UnsettledMsg,
)
from elastichost.wire.security.refusals import Refusals

__all__ = ["Described", "MessageRouter"]

MESSAGES_PER_TURN = 1000  # whoever floods the socket keeps nobody from the rest of the loop

Described = tuple[ModelDescribedMsg, "np.ndarray[tuple[int], np.dtype[np.float32]]"]


class MessageRouter:
    """`parts` gives the run's parts, None before the arena exists (the probe is the only process then)."""

    def __init__(self, run: Run, recovery: ProcessController, parts: Callable[[], Components | None]) -> None:
        self._run, self._recovery, self._parts = run, recovery, parts
        self.described: Described | None = None
        self._refusals = Refusals()

    def take(self) -> None:
        """Handles what has come. What must be refused is noted and dropped."""
        for _ in range(MESSAGES_PER_TURN):
            try:
                envelope = self._run.control.receive()
                if envelope is None:
                    return
                self.handle(envelope)
            except ProtocolError as error:
                told = self._refusals.note(str(error), self._run.now_s())
                if told is not None:
                    self._run.note(MessageRefused(told.error, told.count))

    def handle(self, envelope: Envelope[ControlMessage]) -> None:
        """Raises ProtocolError for a message its sender may not send now."""
        if envelope.sender is None:
            raise ProtocolError("a message claims to come from the supervisor")
        record = self._run.fleet.find(envelope.sender)
        if record is None:
            return  # an older incarnation: fenced, or about to be
        if not record.is_live:
            self._last_words(record, envelope.message)
            return
        with self._run.caused_by(record.cause):
            self._heard(record, envelope)

    def _heard(self, record: ProcessRecord, envelope: Envelope[ControlMessage]) -> None:
        match envelope.message:
            case HelloMsg() as hello:
                self._hello(record, hello)
            case HeartbeatMsg() as beat:
                self._run.fleet.heartbeat(record, beat, self._run.now_s())
            case FailureReportMsg() as report:
                if record.failure is not None:
                    raise ProtocolError(f"{record.process} has said before why it will end")
                _require(record, LifecycleEvent.REPORT)
                self._recovery.reported(record, report)
            case ModelDescribedMsg() as described:
                self._described(record, described, envelope.frames)
            case message:
                parts = self._parts()
                if parts is None:
                    raise ProtocolError(f"{record.process} sent {type(message).__name__} before training was set up")
                self._part(parts, record, message, envelope.frames)

    def _last_words(self, record: ProcessRecord, message: ControlMessage) -> None:
        """What was still on its way when the process was buried: only progress is worth anything."""
        parts = self._parts()
        if isinstance(message, LeaseProgressMsg) and parts is not None:
            parts.training.progressed(record.process, message)

    def _hello(self, record: ProcessRecord, hello: HelloMsg) -> None:
        if record.state == State.REQUESTED:  # its Hello was faster than the fork server's answer
            for event in self._run.launcher.events():
                self._recovery.launch_event(event)
            if not record.is_live:  # they told of its end, too
                return
        if record.state == State.REQUESTED and self._run.place_elsewhere(record.process) is not None:
            self._recovery.launch_event(Started(record.process, hello.pid))  # its agent's words are still on their way
        _require(record, LifecycleEvent.HELLO)
        if hello.pid != record.pid:
            raise ProtocolError(f"{record.process} says Hello with pid {hello.pid} instead of {record.pid}")
        record.address, record.outer = hello.address, hello.outer
        self._run.fleet.apply(record, LifecycleEvent.HELLO, self._run.now_s())
        self._run.note(ProcessConnected(record.process), record.cause)
        parts = self._parts()
        if parts is None or record.state != State.CONNECTED:
            return
        if record.process.role == "server":
            parts.roster.server_connected(record)
        elif record.process.role == "worker":
            parts.roster.worker_connected(record)

    def _described(self, record: ProcessRecord, message: ModelDescribedMsg, frames: tuple[memoryview, ...]) -> None:
        if record.process.role != "probe" or len(frames) != 1:
            raise ProtocolError(f"{record.process} describes a model with {len(frames)} frames")
        if frames[0].nbytes != 4 * message.model.dense.elements:
            raise ProtocolError(f"the initial dense vector has {frames[0].nbytes} bytes")
        now_s = self._run.now_s()
        self.described = (message, np.frombuffer(frames[0], dtype="<f4").astype(np.float32, copy=True))
        self._run.fleet.apply(record, LifecycleEvent.READY, now_s)
        self._run.fleet.apply(record, LifecycleEvent.STOP, now_s)  # it exits by itself

    def _part(
        self, parts: Components, record: ProcessRecord, message: ControlMessage, frames: tuple[memoryview, ...]
    ) -> None:
        match message:
            case ReadyMsg() as ready:
                self._ready(parts, record, ready)
            case RepinnedMsg(cores=cores):
                self._repinned(record, cores)
            case LeaseRequestMsg(samples_per_s=rate) if record.process.role == "worker":
                parts.training.requested(record, rate)
            case LeaseProgressMsg() as progress if record.process.role == "worker":
                self._progressed(parts, record, progress)
            case EvaluationScoresMsg() as scores if record.process.role == "worker":
                parts.scored(record, scores, frames)
            case PausedMsg(cut=cut) if record.process.role == "worker":
                parts.checkpointer.paused(record, cut)
            case DrainedMsg() if record.process.role == "worker":
                _require(record, LifecycleEvent.DRAINED)
                self._run.fleet.apply(record, LifecycleEvent.DRAINED, self._run.now_s())
                if record.state == State.DRAINED:  # else it is being killed: it is settled as a lost one
                    parts.drained(record)
            case SnapshotCutMsg() as copied if record.process.role == "server":
                parts.checkpointer.copied(record, copied)
            case SnapshotWrittenMsg() as written if record.process.role == "server":
                parts.checkpointer.written(record, written, frames)
            case FencedMsg() as fenced if record.process.role == "server":
                if record.process.index != parts.roster.shard_map.dense_owner:
                    raise ProtocolError(f"{record.process} does not own the dense vector: it settles nobody")
                parts.training.fenced(fenced)
            case AdmittedMsg(number=number) if record.process.role == "server":
                if self._run.keyring is not None:
                    self._run.keyring.admitted(record.process, number)
                    parts.roster.admitted()
            case UnmappedMsg(shard_map_epoch=epoch) if record.process.role == "worker":
                parts.roster.unmapped(record.process, epoch)
            case (BucketsMeasuredMsg() | CopiedMsg() | ForgottenMsg()) as answer if record.process.role == "server":
                parts.roster.moving(record, answer)
            case SettledMsg() as settled if record.process.role == "server":
                parts.training.rows_settled(record.process, settled)
            case UnsettledMsg() as unsettled if record.process.role == "server":
                parts.training.rows_unsettled(record.process, unsettled)
            case other:
                raise ProtocolError(f"{record.process} may not send {type(other).__name__}")

    def _progressed(self, parts: Components, record: ProcessRecord, message: LeaseProgressMsg) -> None:
        """Whose account cannot be must not go on: its end is settled by what the PS have applied of it."""
        try:
            parts.training.progressed(record.process, message)
        except ProtocolError as error:
            self._recovery.kill_invalid(record.process, error.message)

    def _ready(self, parts: Components, record: ProcessRecord, message: ReadyMsg) -> None:
        _require(record, LifecycleEvent.READY)
        was_new = record.state == State.CONNECTED
        self._run.fleet.apply(record, LifecycleEvent.READY, self._run.now_s())
        if was_new:
            self._run.note(ProcessReady(record.process), record.cause)
        if record.process.role == "server":
            if was_new:
                parts.training.server_ready(record.process)
            published = parts.roster.server_ready(record, message)
            if published is not None and published.remade:
                parts.made_anew()
            if published is not None and (owner := parts.roster.dense_owner) is not None:
                parts.training.server_ready(owner)  # what was asked of the owner before may be unanswered
        elif was_new and record.state == State.READY:
            parts.training.worker_ready(record)
            parts.judge.serve()

    def _repinned(self, record: ProcessRecord, cores: tuple[int, ...]) -> None:
        if self._run.fleet.repinned(record, cores):
            self._run.note(ProcessRepinned(record.process, cores, record.spec.threads), self._run.plan_cause)


def _require(record: ProcessRecord, event: LifecycleEvent) -> None:
    """Raises ProtocolError for what cannot happen to a process in its state: it only says so."""
    try:
        next_state(str(record.process), record.state, event)
    except IllegalTransitionError as error:
        raise ProtocolError(error.message) from error
