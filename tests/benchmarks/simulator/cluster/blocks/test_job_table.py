"""The table of jobs shows what each job would show, block by block."""

from __future__ import annotations

import math

from benchmarks.simulator.cluster.blocks.job_table import ROWS, JobTable
from benchmarks.simulator.cluster.job_run import JobRun
from benchmarks.simulator.cluster.settings import ClusterSettings
from tests.benchmarks.simulator.closed_network import job

SETTINGS = ClusterSettings()


def added(table: JobTable, number: int) -> JobRun:
    spec = job(number)
    run = JobRun(spec, SETTINGS, None)
    table.add(number, float(spec.samples), run.as_seen(0.0), run.blocks)
    return run


def test_a_block_that_has_ended_makes_a_new_view() -> None:
    table = JobTable(30.0)
    first, second = (added(table, number) for number in range(2))
    samples = second.spec.samples
    table.begin(1, 0, 40.0)
    table.settle(1, 10.0, 1000.0, 50.0)
    table.renew(39.9)
    assert [len(one.observations) for one in table.views()] == [0, 0]
    before = table.views()
    table.renew(75.0)
    views = table.views()
    assert views[0] is before[0], "nothing is new of a job without blocks"
    assert [len(one.observations) for one in views] == [0, 2], "blocks end at 40 s and at 70 s"
    assert (views[1].seen_s, views[1].samples_left) == (75.0, samples - 1000.0 - 65 * 50.0)
    assert len(before[1].observations) == 0, "earlier views do not change"
    assert first.spec.job == 0


def test_blocks_that_are_void_do_not_count() -> None:
    table = JobTable(30.0)
    added(table, 0)
    table.begin(0, 3, 40.0)
    table.begin(0, 3, math.inf)
    table.renew(1000.0)
    assert table.views()[0].seen_s == 0.0


def test_rows_are_used_again_and_jobs_keep_their_order() -> None:
    table, count = JobTable(30.0), 3 * ROWS
    for number in range(count):
        added(table, number)
        table.begin(number, 0, 30.0)
    for number in range(0, count, 2):
        table.remove(number)
    for number in range(count, count + 10):
        added(table, number)
    table.renew(30.0)
    views = table.views()
    assert [one.job for one in views] == [*range(1, count, 2), *range(count, count + 10)]
    assert [len(one.observations) for one in views] == [1] * (count // 2) + [0] * 10, "new jobs have no blocks"
