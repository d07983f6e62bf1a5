"""Jobs that share a host slow each other down, and are advanced together as each would be alone."""

from __future__ import annotations

import math

import pytest

from benchmarks.simulator.cluster.crowding import Crowding
from benchmarks.simulator.cluster.hosts import Cluster, ClusterHost, ProcessDemand
from benchmarks.simulator.cluster.job_run import JobRun
from benchmarks.simulator.cluster.progress.columns import CROWDING, ROWS, JobColumns
from benchmarks.simulator.cluster.progress.event_queue import EventQueue
from benchmarks.simulator.cluster.settings import ClusterSettings
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import job

GB = 10**9
END = 3


class Host:
    """One host on which jobs are placed."""

    def __init__(self, cores: int = 8) -> None:
        self.settings = ClusterSettings(hosts=(ClusterHost(cores, 4 * cores * GB),), interference=0.2)
        self.cluster, self.columns = Cluster(self.settings.hosts), JobColumns(48)
        self.queue = EventQueue(self.columns, END)
        self.resumed: list[tuple[int, int]] = []
        resumes = lambda run, order: self.resumed.append((run.spec.job, order))  # noqa: E731
        self.crowding = Crowding(self.cluster, self.columns, self.settings, self.queue, resumes)
        self.runs: dict[int, JobRun] = {}

    def add(self, number: int, configuration: Configuration) -> JobRun:
        """Starts a job at time 0."""
        run = self.runs[number] = JobRun(job(number), self.settings, None)
        if not self.columns.has_room:
            self.columns.grow()
            for one in self.runs.values():
                one.row = self.columns.rows[one.index] if one.index >= 0 else one.row
        run.join(self.columns)
        run.configuration, run.granted_bytes = configuration, 8 * GB
        run.need = ProcessDemand(configuration, GB, GB)
        run.placement = self.cluster.place(number, run.need) or {}
        self.crowding.place(run)
        run.look_up()
        run.refresh(0.0)
        run.begin_block(0.0)
        return run


def test_crowding_is_the_share_of_other_jobs() -> None:
    host = Host()
    first = host.add(1, Configuration(1, 1, 1, 1))
    host.crowding.update([0], host.runs, 0.0)
    assert first.row[CROWDING] == 0.0
    second = host.add(2, Configuration(1, 1, 2, 2))
    host.crowding.update([0], host.runs, 0.0)
    assert (first.row[CROWDING], second.row[CROWDING]) == (4 / 8, 2 / 8)
    first.placement = {}
    host.crowding.place(first)
    host.crowding.update([0], host.runs, 0.0)
    assert first.row[CROWDING] == 0.0, "a job without hosts has no neighbours"


def test_jobs_are_advanced_before_their_rate_changes() -> None:
    host = Host()
    first = host.add(1, Configuration(1, 1, 1, 1))
    rate = first.rate
    first.changing_until_s, first.change_share = 100.0, 0.5
    first.refresh(0.0)
    host.queue.order = 10
    host.add(2, Configuration(1, 1, 2, 2))
    host.crowding.update([0], host.runs, 70.0)
    assert first.trained == pytest.approx(70.0 * rate / 2) and first.settled_s == 70.0
    assert first.rate == pytest.approx(rate / 2 / (1 + 0.2 * 4 / 8))
    assert first.blocks.count == 2 and first.block_ends_s == 90.0
    assert first.blocks.block(1).work == pytest.approx(30.0 * rate / 2)
    assert host.resumed == [(1, 12)] and host.queue.order == 13, "the end of the job is scheduled before"
    end_s = 70.0 + (first.spec.samples - first.trained) / first.rate
    assert host.columns.ends_s[first.index] == pytest.approx(end_s) and end_s < math.inf
    alone = JobRun(job(3), host.settings, None)
    alone.configuration, alone.granted_bytes = first.configuration, 8 * GB
    alone.changing_until_s, alone.change_share = 100.0, 0.5
    alone.speed = first.speed
    alone.refresh(0.0)
    alone.settle(70.0)
    for name in ("trained", "work", "core_s", "used_core_s", "memory_byte_s", "used_byte_s"):
        assert getattr(alone, name) == getattr(first, name), name


def test_more_jobs_of_one_change_than_the_buffers_hold() -> None:
    host = Host(cores=400)
    runs = [host.add(number, Configuration(1, 1, 1, 1)) for number in range(ROWS + 6)]
    host.crowding.update([0], host.runs, 0.0)
    assert {float(run.row[CROWDING]) for run in runs} == {(2 * len(runs) - 2) / 400}
