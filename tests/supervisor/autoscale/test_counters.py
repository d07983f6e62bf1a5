"""The tuner's totals of what processes did: each heartbeat counts once."""

from __future__ import annotations

import pytest

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.supervisor.autoscale.counters import Counter
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import State
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import StageSample, StepSample


@pytest.mark.parametrize(("reported", "summed"), [(0.25, 0.75), (None, 0.0)])
def test_cpu_time_of_training_threads_is_summed_and_zero_if_workers_do_not_report_it(
    reported: float | None, summed: float
) -> None:
    fleet = Fleet()
    counter = Counter(fleet, 0, False)
    record = fleet.request(ProcessId("worker", 0, 1), ProcessSpec("worker", 0, (), 1), 0.0)
    record.pid, record.state = 1, State.RUNNING
    for number in range(1, 4):
        sample = StepSample(steps=10, seconds=0.5, compute_s=0.4, training_cpu_s=reported, cpu_s=0.3)
        fleet.heartbeat(record, HeartbeatMsg(number, sample), 0.5 * number)
        totals = counter.totals()
    assert (totals.batches, totals.compute_s) == pytest.approx((30.0, 1.2))
    assert totals.training_cpu_s == pytest.approx(summed)


def test_the_cpu_time_of_a_reader_is_that_of_workers() -> None:
    fleet, used_s = Fleet(), {"worker": 1.0, "reader": 2.0, "server": 4.0}
    counter = Counter(fleet, 0, False, lambda record: used_s[record.process.role])
    for role in ("worker", "reader", "server"):
        record = fleet.request(ProcessId(role, 0, 1), ProcessSpec(role, 0, (), 1), 0.0)  # type: ignore[arg-type]
        record.pid, record.state = 1, State.RUNNING
    counter.totals()
    used_s.update(worker=1.5, reader=4.0, server=4.25)
    totals = counter.totals()
    assert (totals.worker_cpu_s, totals.server_cpu_s) == pytest.approx((2.5, 0.25))


@pytest.mark.parametrize(("counts_source", "reader_s"), [(True, 0.4), (False, 0.1)])
def test_waiting_for_the_source_counts_as_reading_only_where_nothing_else_brings_connections(
    counts_source: bool, reader_s: float
) -> None:
    fleet = Fleet()
    counter = Counter(fleet, 0, False, counts_source=counts_source)
    record = fleet.request(ProcessId("worker", 0, 1), ProcessSpec("worker", 0, (), 1), 0.0)
    record.pid, record.state = 1, State.RUNNING
    stages = (StageSample("source", source_s=2.0), StageSample("decode", source_s=0.3))
    fleet.heartbeat(record, HeartbeatMsg(1, StepSample(seconds=0.5, read_s=0.4, cpu_s=0.1, stages=stages)), 0.5)
    totals = counter.totals()
    assert totals.reader_s == pytest.approx(reader_s)
    assert totals.source_wait_s == pytest.approx(0.3)


def test_the_times_of_gpu_workers_are_not_mixed_with_those_of_cpu_workers() -> None:
    fleet = Fleet()
    counter = Counter(fleet, 0, False)
    records = {}
    for index, gpu in enumerate((0, None)):
        spec = ProcessSpec("worker", index, (), 1, gpu=gpu)
        records[gpu] = fleet.request(ProcessId("worker", index, 1), spec, 0.0)
        records[gpu].pid, records[gpu].state = 1 + index, State.RUNNING
    of_gpu = StepSample(samples=1000, steps=10, seconds=0.5, compute_s=0.01, cpu_s=0.5)
    of_cpu = StepSample(samples=20, steps=2, seconds=0.5, compute_s=0.4, cpu_s=0.3)
    fleet.heartbeat(records[0], HeartbeatMsg(1, of_gpu), 0.5)
    fleet.heartbeat(records[None], HeartbeatMsg(1, of_cpu), 0.5)
    both = counter.totals()
    assert (both.batches, both.compute_s, both.worker_cpu_s) == pytest.approx((2.0, 0.4, 0.3))
    assert (both.gpu_samples, both.cpu_samples) == (1000.0, 20.0)
    records[None].state = State.EXITED
    fleet.heartbeat(records[0], HeartbeatMsg(2, of_gpu), 1.0)
    alone = counter.totals()
    assert alone.batches - both.batches == pytest.approx(10.0), "without CPU workers the times are those of the GPU"
    assert (alone.gpu_samples, alone.cpu_samples) == (2000.0, 20.0)
