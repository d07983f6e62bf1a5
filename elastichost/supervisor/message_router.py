"""Passes each message of a process to the controller that handles it. Each phase of a run has its own router."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from elastichost.errors import IllegalTransitionError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.runs.events import (
    MessageRefused,
    ProcessConnected,
    ProcessReady,
    ProcessRepinned,
    SourceRecovered,
    SourceTroubled,
)
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.processes import ProcessController
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent, State, next_state
from elastichost.supervisor.launch.events import Exited, Started
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
    SourceTroubleMsg,
    UnmappedMsg,
    UnsettledMsg,
)
from elastichost.wire.security.refusals import Refusals

__all__ = ["Described", "MessageRouter", "ProbeRouter", "TrainingRouter"]

MESSAGES_PER_TURN = 1000  # a process that floods the socket must not keep the loop from its other work

Described = tuple[ModelDescribedMsg, "np.ndarray[tuple[int], np.dtype[np.float32]]"]


class MessageRouter(ABC):
    """Common to all phases: identifies the sender, and handles Hello, heartbeats and failure reports."""

    def __init__(self, run: RunContext, processes: ProcessController) -> None:
        self._run, self._processes = run, processes
        self._refusals = Refusals()
        self._exits: list[Exited] = []

    # --- defined by each phase ----------------------------------------------------------------------------------------

    @abstractmethod
    def _connected(self, record: ProcessRecord) -> None:
        """A process has sent Hello and is not being stopped."""

    @abstractmethod
    def _route(self, record: ProcessRecord, message: ControlMessage, frames: tuple[memoryview, ...]) -> None:
        """Handles any other message of a live process. Raises ProtocolError when its sender may not send it now."""

    @abstractmethod
    def _last_words(self, record: ProcessRecord, message: ControlMessage) -> None:
        """Handles a message that arrives after its sender has ended."""

    # --- every turn ---------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Handles the messages that have arrived. A refused message is dropped, with an event."""
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

    def take_exits(self) -> list[Exited]:
        """The exits that were heard of while a message was handled."""
        found, self._exits = self._exits, []
        return found

    def handle(self, envelope: Envelope[ControlMessage]) -> None:
        """Handles one message. Raises ProtocolError when its sender may not send it now."""
        if envelope.sender is None:
            raise ProtocolError("a message has the supervisor as its sender")
        record = self._run.fleet.find(envelope.sender)
        if record is None:
            return  # from an older incarnation: it is fenced, or will be
        if not record.is_live:
            self._last_words(record, envelope.message)
            return
        with self._run.caused_by(record.cause):
            match envelope.message:
                case HelloMsg() as hello:
                    self._hello(record, hello)
                case HeartbeatMsg() as beat:
                    self._run.fleet.heartbeat(record, beat, self._run.now_s())
                case FailureReportMsg() as report:
                    self._report(record, report)
                case message:
                    self._route(record, message, envelope.frames)

    def _report(self, record: ProcessRecord, report: FailureReportMsg) -> None:
        if record.failure is not None:
            raise ProtocolError(f"{record.process} sent a second failure report")
        _require(record, LifecycleEvent.REPORT)
        self._processes.reported(record, report)

    def _hello(self, record: ProcessRecord, hello: HelloMsg) -> None:
        if record.state == State.REQUESTED:  # its Hello arrived before the fork server's answer
            for event in self._run.launcher.events():
                if isinstance(event, Exited) and event.process != record.process:
                    self._exits.append(event)  # its last words may still be on their way
                else:
                    self._processes.launch_event(event)
            if not record.is_live:  # its exit was among these events
                return
        if record.state == State.REQUESTED and self._run.place_elsewhere(record.process) is not None:
            self._processes.launch_event(Started(record.process, hello.pid))  # its agent's answer has not arrived yet
        _require(record, LifecycleEvent.HELLO)
        if hello.pid != record.pid:
            raise ProtocolError(f"{record.process} sent Hello with pid {hello.pid} instead of {record.pid}")
        record.address, record.outer = hello.address, hello.outer
        self._run.fleet.apply(record, LifecycleEvent.HELLO, self._run.now_s())
        self._run.note(ProcessConnected(record.process), record.cause)
        if record.state == State.CONNECTED:
            self._connected(record)


class ProbeRouter(MessageRouter):
    """For the first phase: the probe is the only process, and describes the user's model. described: its description;
    None: not received yet."""

    def __init__(self, run: RunContext, processes: ProcessController) -> None:
        super().__init__(run, processes)
        self.described: Described | None = None

    def _connected(self, record: ProcessRecord) -> None:
        """Sends nothing: the probe describes the model without a request."""

    def _last_words(self, record: ProcessRecord, message: ControlMessage) -> None:
        """Ignores the message: a probe that has ended is not used."""

    def _route(self, record: ProcessRecord, message: ControlMessage, frames: tuple[memoryview, ...]) -> None:
        if not isinstance(message, ModelDescribedMsg):
            raise ProtocolError(f"{record.process} sent {type(message).__name__} before training began")
        self._described(record, message, frames)

    def _described(self, record: ProcessRecord, message: ModelDescribedMsg, frames: tuple[memoryview, ...]) -> None:
        if record.process.role != "probe" or len(frames) != 1:
            raise ProtocolError(f"{record.process} sent a model description with {len(frames)} frames instead of 1")
        if frames[0].nbytes != 4 * message.model.dense.elements:
            raise ProtocolError(
                f"the initial dense vector has {frames[0].nbytes} bytes instead of {4 * message.model.dense.elements}"
            )
        now_s = self._run.now_s()
        self.described = (message, np.frombuffer(frames[0], dtype="<f4").astype(np.float32, copy=True))
        self._run.fleet.apply(record, LifecycleEvent.READY, now_s)
        self._run.fleet.apply(record, LifecycleEvent.STOP, now_s)  # it exits by itself


class TrainingRouter(MessageRouter):
    """For the phase in which the job trains. A message of an incarnation that has ended is dropped, except lease
    progress, which the ledger checks against the lease."""

    def __init__(self, run: RunContext, processes: ProcessController, components: Components) -> None:
        super().__init__(run, processes)
        self._components = components

    def _connected(self, record: ProcessRecord) -> None:
        if record.process.role == "server":
            self._components.sharding.server_connected(record)
        elif record.process.role == "worker":
            self._components.sharding.worker_connected(record)

    def _last_words(self, record: ProcessRecord, message: ControlMessage) -> None:
        """Takes lease progress, and ignores any other message."""
        if isinstance(message, LeaseProgressMsg):
            self._components.leases.progressed(record.process, message)

    def _route(self, record: ProcessRecord, message: ControlMessage, frames: tuple[memoryview, ...]) -> None:
        components = self._components
        match message:
            case ReadyMsg() as ready:
                self._ready(record, ready)
            case RepinnedMsg(cores=cores):
                self._repinned(record, cores)
            case LeaseRequestMsg(samples_per_s=rate, leases_ahead=ahead) if record.process.role == "worker":
                components.leases.requested(record, rate, ahead)
            case LeaseProgressMsg() as progress if record.process.role == "worker":
                self._progressed(record, progress)
            case EvaluationScoresMsg() as scores if record.process.role == "worker":
                components.scored(record, scores, frames)
            case PausedMsg(cut=cut) if record.process.role == "worker":
                components.checkpoints.paused(record, cut)
            case DrainedMsg() if record.process.role == "worker":
                _require(record, LifecycleEvent.DRAINED)
                self._run.fleet.apply(record, LifecycleEvent.DRAINED, self._run.now_s())
                if record.state == State.DRAINED:  # otherwise it is being killed, and is settled as a lost worker
                    components.drained(record)
            case SnapshotCutMsg() as copied if record.process.role == "server":
                components.checkpoints.copied(record, copied)
            case SnapshotWrittenMsg() as written if record.process.role == "server":
                components.checkpoints.written(record, written, frames)
            case FencedMsg() as fenced if record.process.role == "server":
                if record.process.index != components.sharding.shard_map.dense_owner:
                    raise ProtocolError(f"{record.process} answered a fence but does not own the dense vector")
                components.leases.fenced(fenced)
            case AdmittedMsg(number=number) if record.process.role == "server":
                if self._run.keyring is not None:
                    self._run.keyring.admitted(record.process, number)
                    components.sharding.admitted()
            case SourceTroubleMsg() as trouble if record.process.role in ("worker", "reader"):
                self._run.note(source_event(record.process, trouble))
                if trouble.trouble == "gone":
                    self._run.lost_source = trouble.source
            case UnmappedMsg(shard_map_epoch=epoch) if record.process.role == "worker":
                components.sharding.unmapped(record.process, epoch)
            case (BucketsMeasuredMsg() | CopiedMsg() | ForgottenMsg()) as answer if record.process.role == "server":
                components.sharding.moving(record, answer)
            case SettledMsg() as settled if record.process.role == "server":
                components.leases.rows_settled(record.process, settled)
            case UnsettledMsg() as unsettled if record.process.role == "server":
                components.leases.rows_unsettled(record.process, unsettled)
            case other:
                raise ProtocolError(f"{record.process} may not send {type(other).__name__}")

    def _progressed(self, record: ProcessRecord, message: LeaseProgressMsg) -> None:
        """A worker that reports impossible progress is killed. The parameter server's record settles its lease."""
        try:
            self._components.leases.progressed(record.process, message)
        except ProtocolError as error:
            self._processes.kill_invalid(record.process, error.message)

    def _ready(self, record: ProcessRecord, message: ReadyMsg) -> None:
        components = self._components
        _require(record, LifecycleEvent.READY)
        was_new = record.state == State.CONNECTED
        self._run.fleet.apply(record, LifecycleEvent.READY, self._run.now_s())
        if was_new:
            self._run.note(ProcessReady(record.process), record.cause)
        if record.process.role == "server":
            if was_new:
                components.leases.server_ready(record.process)
            published = components.sharding.server_ready(record, message)
            if published is not None and published.remade:
                components.made_anew()
            if published is not None and (owner := components.sharding.dense_owner) is not None:
                components.leases.server_ready(owner)  # requests to the previous dense owner may be unanswered
        elif record.process.role == "reader":
            if record.state == State.READY:  # its worker gives it work
                self._run.fleet.apply(record, LifecycleEvent.WORK, self._run.now_s())
        elif was_new and record.state == State.READY:
            components.leases.worker_ready(record)
            components.evaluations.serve()

    def _repinned(self, record: ProcessRecord, cores: tuple[int, ...]) -> None:
        if self._run.fleet.repinned(record, cores):
            self._run.note(ProcessRepinned(record.process, cores, record.spec.threads), self._run.plan_cause)


def source_event(process: ProcessId, message: SourceTroubleMsg) -> SourceTroubled | SourceRecovered:
    """The event of a worker's message about its source."""
    waited_s, requests = message.waited_s, message.requests
    if message.trouble == "recovered":
        return SourceRecovered(process, message.source, waited_s, requests)
    return SourceTroubled(process, message.trouble, message.source, message.error, waited_s, requests)


def _require(record: ProcessRecord, event: LifecycleEvent) -> None:
    """Raises ProtocolError when this event cannot happen in the state of the process; changes nothing."""
    try:
        next_state(str(record.process), record.state, event)
    except IllegalTransitionError as error:
        raise ProtocolError(error.message) from error
