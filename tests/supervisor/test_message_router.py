"""Messages of processes to the supervisor: which process may send which message, when, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.events import MessageRefused
from elastichost.supervisor.core.fleet import MOST_BEATS, Fleet, ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent, State
from elastichost.supervisor.launch.events import Exited, LaunchEvent, Started
from elastichost.supervisor.message_router import MESSAGES_PER_TURN, MessageRouter, TrainingRouter
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    AdmittedMsg,
    ControlMessage,
    DrainedMsg,
    FailureReportMsg,
    FencedMsg,
    HeartbeatMsg,
    HelloMsg,
    LeaseGrantMsg,
    LeaseProgressMsg,
    LeaseRequestMsg,
    ReadyMsg,
    SettledMsg,
    StopMsg,
)
from elastichost.wire.facts import AppliedBatch, Lease, StepSample
from elastichost.wire.security.refusals import MOST_TOLD, WINDOW_S
from tests.supervisor.noted import Noted

WORKER, SERVER, OTHER = ProcessId("worker", 0, 1), ProcessId("server", 0, 1), ProcessId("server", 1, 1)
WAY = (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO, LifecycleEvent.READY, LifecycleEvent.WORK)
FENCED = FencedMsg(worker=0, incarnation=1, applied=AppliedBatch(1, 1, 128, 128, 0))
REPORT = FailureReportMsg("DataError", "no such row", "", "")


@dataclass(slots=True)
class Scene:
    """A worker and two PS at work. calls: of the components; queue: messages that arrive; expelled: processes to be
    killed."""

    fleet: Fleet = field(default_factory=Fleet)
    calls: list[str] = field(default_factory=list)
    noted: Noted = field(default_factory=Noted)
    queue: list[Envelope[ControlMessage]] = field(default_factory=list)
    expelled: list[ProcessId] = field(default_factory=list)
    now_s: float = 1.0

    def __post_init__(self) -> None:
        for process in (WORKER, SERVER, OTHER):
            record = self.fleet.request(process, ProcessSpec(process.role, process.index, (0,), 1), 0.0)
            record.pid = 100
            for event in WAY:
                self.fleet.apply(record, event, 0.0)

    def record(self, process: ProcessId) -> ProcessRecord:
        found = self.fleet.find(process)
        assert found is not None
        return found

    def progressed(self, process: ProcessId, message: LeaseProgressMsg) -> None:
        if message.samples > 128:
            raise ProtocolError("more than there are")
        self.calls.append("progress")

    def router(self) -> MessageRouter:
        """The router under test; the components are stand-ins."""

        def reported(record: ProcessRecord, report: FailureReportMsg) -> None:
            record.failure = report  # type: ignore[assignment]
            self.calls.append("failure")

        leases = SimpleNamespace(
            progressed=self.progressed,
            fenced=lambda message: self.calls.append("fenced"),
            requested=lambda record, rate: self.calls.append("request"),
        )
        sharding: Any = SimpleNamespace(shard_map=SimpleNamespace(dense_owner=0))
        components: Any = SimpleNamespace(leases=leases, sharding=sharding)
        control = SimpleNamespace(receive=lambda: self.queue.pop(0) if self.queue else None)
        run: Any = SimpleNamespace(
            fleet=self.fleet,
            control=control,
            keyring=None,
            now_s=lambda: self.now_s,
            **self.noted.attributes,
        )
        processes: Any = SimpleNamespace(
            reported=reported, kill_invalid=lambda process, reason: self.expelled.append(process)
        )
        return TrainingRouter(run, processes, components)


def sent_by(sender: ProcessId, message: ControlMessage) -> Envelope[ControlMessage]:
    """A message as it arrives."""
    return Envelope(sender, 1, message, ())


@pytest.mark.parametrize(
    ("sender", "message", "why"),
    [
        (WORKER, FENCED, "may not send Fenced"),
        (WORKER, SettledMsg(0, 1), "may not send Settled"),
        (WORKER, AdmittedMsg(5), "may not send Admitted"),
        (WORKER, StopMsg(), "may not send Stop"),
        (WORKER, LeaseGrantMsg(Lease(1, 0, 0, 0, 128), -1), "may not send LeaseGrantMsg"),
        (SERVER, LeaseRequestMsg(1000.0), "may not send LeaseRequestMsg"),
        (SERVER, LeaseProgressMsg(1, 128, 128, 0), "may not send LeaseProgressMsg"),
        (SERVER, DrainedMsg(), "may not send Drained"),
        (OTHER, FENCED, "does not own the dense vector"),
        (WORKER, HelloMsg("worker", 0, 1, 100), "'hello' is not allowed in state 'running'"),
        (WORKER, DrainedMsg(), "'drained' is not allowed in state 'running'"),
    ],
)
def test_a_message_that_a_process_may_not_send_changes_nothing(
    sender: ProcessId, message: ControlMessage, why: str
) -> None:
    scene = Scene()
    router = scene.router()
    with pytest.raises(ProtocolError, match=why):
        router.handle(sent_by(sender, message))
    assert scene.calls == [] and scene.expelled == []
    assert [record.state for record in scene.fleet] == [State.RUNNING] * 3


def test_a_process_is_ready_only_after_its_hello() -> None:
    scene = Scene()
    late = scene.fleet.request(ProcessId("worker", 1, 1), ProcessSpec("worker", 1, (0,), 1), 0.0)
    scene.fleet.apply(late, LifecycleEvent.SPAWNED, 0.0)
    with pytest.raises(ProtocolError, match="'ready' is not allowed in state 'started'"):
        scene.router().handle(sent_by(late.process, ReadyMsg(1)))
    assert late.state == State.STARTED


def test_fenced_from_the_dense_owner_is_passed_on() -> None:
    scene = Scene()
    scene.router().handle(sent_by(SERVER, FENCED))
    assert scene.calls == ["fenced"]


def test_only_the_worker_that_reports_impossible_progress_is_killed() -> None:
    scene = Scene()
    router = scene.router()
    router.handle(sent_by(WORKER, LeaseProgressMsg(1, 128, 128, 0)))
    assert (scene.calls, scene.expelled) == (["progress"], [])
    router.handle(sent_by(WORKER, LeaseProgressMsg(1, 129, 129, 0)))
    assert (scene.calls, scene.expelled) == (["progress"], [WORKER])


def test_a_second_failure_report_is_refused() -> None:
    scene = Scene()
    router = scene.router()
    router.handle(sent_by(WORKER, REPORT))
    with pytest.raises(ProtocolError, match="second failure report"):
        router.handle(sent_by(WORKER, REPORT))
    assert scene.calls == ["failure"]


def test_a_flood_of_messages_extends_neither_a_turn_nor_the_journal() -> None:
    scene = Scene()
    router = scene.router()
    scene.queue = [sent_by(WORKER, StopMsg())] * (MESSAGES_PER_TURN + 500)
    router.take()
    assert len(scene.queue) == 500, "the rest of the loop must get its turn"
    assert 0 < len(scene.noted.of(MessageRefused)) < 50
    router.take()
    assert scene.queue == [] and len(scene.noted.events) < 50


def test_the_journal_has_the_number_of_flooded_messages() -> None:
    scene = Scene()
    router = scene.router()
    scene.queue = [sent_by(WORKER, StopMsg())] * 100
    router.take()
    scene.now_s += WINDOW_S
    scene.queue = [sent_by(WORKER, StopMsg())]
    router.take()
    assert [event.count for event in scene.noted.of(MessageRefused)] == [1] * MOST_TOLD + [101 - MOST_TOLD]


def test_the_number_of_kept_heartbeats_is_bounded() -> None:
    scene = Scene()
    router = scene.router()
    for number in range(10 * MOST_BEATS):
        router.handle(sent_by(WORKER, HeartbeatMsg(number, StepSample(seconds=0.5))))
    assert len(scene.record(WORKER).window) == MOST_BEATS


DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ControlMessage)


@pytest.mark.parametrize(
    "message",
    [
        LeaseRequestMsg(float("nan")),
        LeaseRequestMsg(float("inf")),
        LeaseRequestMsg(-1.0),
        LeaseProgressMsg(1, -1, 0, 0),
        LeaseProgressMsg(1, 1 << 63, 0, 0),
        HeartbeatMsg(1 << 63, StepSample()),
        HeartbeatMsg(1, StepSample(seconds=float("nan"))),
        HeartbeatMsg(1, StepSample(samples=-(1 << 60))),
        HeartbeatMsg(1, StepSample(), state="x" * 10_000),
        ReadyMsg(-1),
    ],
)
def test_numbers_out_of_range_are_refused_when_decoded(message: ControlMessage) -> None:
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(msgspec.msgpack.encode(message))


def test_an_exit_that_is_heard_of_with_another_hello_waits_for_its_last_words() -> None:
    """Regression: its error, still on its way, was dropped, and a DataError counted as a plain death."""
    scene, taken = Scene(), list[LaunchEvent]()
    late = ProcessId("worker", 1, 1)
    scene.fleet.request(late, ProcessSpec("worker", 1, (0,), 1), 0.0)
    router = scene.router()
    exited, started = Exited(WORKER, 100, 1), Started(late, 101)

    def took(event: LaunchEvent) -> None:
        taken.append(event)
        scene.fleet.apply(scene.record(late), LifecycleEvent.SPAWNED, 1.0)
        scene.record(late).pid = 101

    router._run.launcher = SimpleNamespace(events=lambda: [exited, started])  # type: ignore[misc, assignment]
    router._processes.launch_event = took  # type: ignore[method-assign]
    router._connected = lambda record: None  # type: ignore[method-assign]
    scene.queue = [sent_by(late, HelloMsg("worker", 1, 1, 101)), sent_by(WORKER, REPORT)]
    router.take()
    assert taken == [started] and "failure" in scene.calls
    assert router.take_exits() == [exited] and router.take_exits() == []
