"""The supervisor's records of its processes: incarnations, heartbeats, rates, states and errors."""

from __future__ import annotations

import pytest

from elastichost.errors import DataError, JobFailedError, ModelError
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import LifecycleEvent, State
from elastichost.supervisor.core.reconciler import Failure, error_of
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import WAITS_FOR_SOURCE, StepSample

SPEC = ProcessSpec("worker", 0, (0,), 1)


def test_a_newer_incarnation_takes_the_place_of_the_older() -> None:
    fleet = Fleet()
    first, second = ProcessId("worker", 0, 1), ProcessId("worker", 0, 2)
    fleet.request(first, SPEC, 0.0)
    fleet.request(second, SPEC, 1.0)
    assert fleet.find(first) is None
    assert fleet.find(second) is not None
    assert fleet.find(None) is None
    assert [record.process for record in fleet] == [second]


def test_a_heartbeat_counts_as_a_sign_of_life_only_if_its_progress_has_grown() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), SPEC, 0.0)
    fleet.heartbeat(record, HeartbeatMsg(5, StepSample()), 1.0)
    fleet.heartbeat(record, HeartbeatMsg(5, StepSample()), 2.0)
    assert record.moved_s == 1.0
    fleet.heartbeat(record, HeartbeatMsg(6, StepSample()), 3.0)
    assert record.moved_s == 3.0


def test_the_start_of_a_worker_that_waits_for_its_source_is_not_overdue() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), SPEC, 0.0)
    for event in (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO):
        fleet.apply(record, event, 1.0)
    fleet.heartbeat(record, HeartbeatMsg(1, StepSample(), state="starting"), 50.0)
    assert record.since_s == 1.0
    fleet.heartbeat(record, HeartbeatMsg(2, StepSample(), state=WAITS_FOR_SOURCE), 60.0)
    assert record.since_s == 60.0
    fleet.apply(record, LifecycleEvent.READY, 61.0)
    fleet.heartbeat(record, HeartbeatMsg(3, StepSample(), state=WAITS_FOR_SOURCE), 70.0)
    assert record.since_s == 61.0


def test_rates_are_averaged_over_the_last_seconds() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), SPEC, 0.0)
    assert (record.samples_per_s, record.wait_fraction, record.compute_ms) == (0.0, 0.0, 0.0)
    assert (record.input_wait_fraction, record.message_bytes_per_s) == (0.0, 0.0)
    given = {"wait_input_s": 0.075, "wait_peers_s": 0.025, "bytes_sent": 30, "bytes_received": 20}
    sample = StepSample(steps=4, samples=100, seconds=0.5, compute_s=0.2, loss_sum=50.0, **given)
    for tick in range(40):
        fleet.heartbeat(record, HeartbeatMsg(tick, sample), tick / 2)
    assert record.samples_per_s == pytest.approx(200)
    assert record.wait_fraction == pytest.approx(0.2)
    assert record.input_wait_fraction == pytest.approx(0.15)
    assert record.message_bytes_per_s == pytest.approx(100)
    assert (record.status().input_wait_fraction, record.status().message_bytes_per_s) == pytest.approx((0.15, 100))
    assert record.compute_ms == pytest.approx(50)
    loss, samples = record.losses
    assert loss / samples == pytest.approx(0.5)
    assert len(record.window) == 11


def test_a_process_can_work_when_it_is_ready_and_not_after_its_end() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), SPEC, 0.0)
    for event in (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO, LifecycleEvent.READY):
        fleet.apply(record, event, 2.0)
    assert fleet.working("worker") == (record,)
    assert fleet.live("worker") == (record,)
    assert fleet.observed()[0].state == State.READY
    assert record.status().state == "ready"
    fleet.apply(record, LifecycleEvent.EXIT_OTHER, 3.0)
    assert fleet.working("worker") == fleet.live("worker") == ()


def test_a_reported_error_keeps_its_type_message_and_hint() -> None:
    error = error_of(Failure("DataError", "file x", "mend it"))
    assert isinstance(error, DataError)
    assert (error.message, error.hint) == ("file x", "mend it")
    model = error_of(Failure("ModelError", "cannot build", traceback_text="their frames"))
    assert isinstance(model, ModelError)
    assert model.traceback_text == "their frames"
    other = error_of(Failure("KeyError", "'x'"))
    assert type(other) is JobFailedError
    assert "KeyError" in other.message


def test_workers_about_to_end_are_counted_until_they_end() -> None:
    """A checkpoint waits for them, because the last batches of such a worker are known only after its end."""
    fleet = Fleet()
    for index, events in enumerate(
        [
            [LifecycleEvent.SPAWNED, LifecycleEvent.HELLO, LifecycleEvent.READY, LifecycleEvent.WORK],
            [
                LifecycleEvent.SPAWNED,
                LifecycleEvent.HELLO,
                LifecycleEvent.READY,
                LifecycleEvent.WORK,
                LifecycleEvent.REPORT,
            ],
            [
                LifecycleEvent.SPAWNED,
                LifecycleEvent.HELLO,
                LifecycleEvent.READY,
                LifecycleEvent.WORK,
                LifecycleEvent.KILL,
            ],
            [
                LifecycleEvent.SPAWNED,
                LifecycleEvent.HELLO,
                LifecycleEvent.READY,
                LifecycleEvent.WORK,
                LifecycleEvent.KILL,
                LifecycleEvent.EXIT_OTHER,
            ],
        ]
    ):
        record = fleet.request(ProcessId("worker", index, 1), SPEC, 0.0)
        for event in events:
            fleet.apply(record, event, 0.0)
    assert fleet.ending("worker") == 2
    assert fleet.ending("server") == 0


def test_time_in_which_the_supervisor_was_stopped_does_not_count_as_silence() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), SPEC, 0.0)
    fleet.heartbeat(record, HeartbeatMsg(1, StepSample()), 1.0)
    fleet.extend_deadlines(60.0)
    (seen,) = fleet.observed()
    assert (seen.since_s, seen.moved_s) == (60.0, 61.0)


def test_new_cores_count_when_the_process_confirms_them() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), SPEC, 0.0)
    assert not fleet.repinned(record, (0,)), "no other cores were sent"
    record.asked = ProcessSpec("worker", 0, (1, 2), 2)
    assert not fleet.repinned(record, (7,)), "other cores were sent meanwhile"
    assert fleet.observed()[0].asked == record.asked
    assert fleet.repinned(record, (1, 2))
    assert (record.spec, record.asked) == (ProcessSpec("worker", 0, (1, 2), 2), None)


def test_the_error_of_a_process_that_is_not_wanted_any_more_is_forgotten() -> None:
    """Regression: a run that had gone on with fewer workers failed at its end with the error of one it had given up."""
    fleet = Fleet()
    records = [fleet.request(ProcessId("worker", index, 1), SPEC, 0.0) for index in range(3)]
    for record in records:
        record.failure = Failure("ModelError", "boom")
    for record in records[:2]:
        for event in (LifecycleEvent.SPAWNED, LifecycleEvent.EXIT_OTHER):
            fleet.apply(record, event, 1.0)
    fleet.accept_failures({"worker-0"})
    assert [record.failure is None for record in records] == [False, True, False], "the last one has not ended yet"
