"""Sums of the input of all workers: each heartbeat counts once; the status shows shares and rates."""

from __future__ import annotations

import pytest

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.supervisor.autoscale.input_counter import InputCounter, stages_of
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import State
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import StageSample, StepSample

SOURCE = StageSample("source", source_s=1.5, first_byte_s=0.1, bytes=1000, items=4, p50_s=0.2, p99_s=0.4, occupancy=0.5)
DECODE = StageSample("decode", cpu_s=0.2, source_s=0.25, other_s=0.01)
TRAIN = StageSample("train", empty_s=0.2)
BEAT = StepSample(samples=100, seconds=0.5, training_cpu_s=0.1, stages=(SOURCE, DECODE, TRAIN))


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    for index in range(2):
        record = made.request(ProcessId("worker", index, 1), ProcessSpec("worker", index, (), 1), 0.0)
        record.state = State.RUNNING
    return made


def beat(fleet: Fleet, number: int) -> None:
    for record in fleet.live("worker"):
        fleet.heartbeat(record, HeartbeatMsg(number, BEAT), 0.5 * number)


def test_each_heartbeat_of_each_worker_counts_once(fleet: Fleet) -> None:
    counter = InputCounter(fleet)
    beat(fleet, 1)
    first = counter.take()
    assert (first.samples, first.seconds, first.source_bytes, first.requests) == (200, 1.0, 2000, 8)
    assert (first.source_s, first.decode_cpu_s, first.empty_s) == (3.0, 0.4, 0.4)
    assert (first.request_p50_s, first.request_p99_s) == (0.2, 0.4)
    assert counter.take().samples == 0
    beat(fleet, 2)
    assert counter.take() == first


def test_the_status_has_seconds_per_second_of_all_workers(fleet: Fleet) -> None:
    for number in range(1, 5):
        beat(fleet, number)
    source, decode, train = stages_of(fleet.working("worker"))
    assert (source.stage, source.waits_source, source.bytes_per_s) == ("source", pytest.approx(6.0), 4000)
    assert (decode.cpu, decode.waits_source) == (pytest.approx(0.8), pytest.approx(1.0))
    assert train.waits_input == pytest.approx(0.8)
    assert (source.p99_s, source.occupancy) == (0.4, 0.5)


def test_workers_that_tell_nothing_have_no_stages(fleet: Fleet) -> None:
    assert stages_of(fleet.working("worker")) == ()
