"""The table of jobs shows what each job would show, block by block."""

from __future__ import annotations

import math

from benchmarks.simulator.cluster.blocks.job_table import JobTable
from benchmarks.simulator.cluster.job_run import JobRun
from benchmarks.simulator.cluster.progress.columns import ROWS, JobColumns
from benchmarks.simulator.cluster.settings import ClusterSettings
from tests.benchmarks.simulator.closed_network import job

SETTINGS = ClusterSettings()


class Table(JobTable):
    """A table with the rows of its jobs."""

    def __init__(self) -> None:
        self.rows = JobColumns(48)
        super().__init__(30.0, self.rows)
        self.runs: dict[int, JobRun] = {}

    def end(self, number: int) -> None:
        self.remove(number)
        self.runs.pop(number).leave(self.rows)


def added(table: Table, number: int, started_s: float | None = 0.0) -> JobRun:
    """Adds a job; a started one runs on no host here."""
    spec = job(number)
    run = table.runs[number] = JobRun(spec, SETTINGS, None)
    if not table.rows.has_room:
        table.rows.grow()
        for one in table.runs.values():
            one.row = table.rows.rows[one.index] if one.index >= 0 else one.row
    run.join(table.rows)
    run.configuration = None if started_s is None else spec.request
    table.add(run.index, run.as_seen(0.0), run.blocks)
    return run


def test_a_block_that_has_ended_makes_a_new_view() -> None:
    table = Table()
    first, second = (added(table, number) for number in range(2))
    samples = second.spec.samples
    table.begin(1, 0, 40.0)
    second.settled_s, second.trained, second.rate = 10.0, 1000.0, 50.0
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
    table = Table()
    added(table, 0)
    table.begin(0, 3, 40.0)
    table.begin(0, 3, math.inf)
    table.renew(1000.0)
    assert table.views()[0].seen_s == 0.0


def test_rows_are_used_again_and_jobs_keep_their_order() -> None:
    table, count = Table(), 3 * ROWS
    for number in range(count):
        added(table, number)
        table.begin(number, 0, 30.0)
    for number in range(0, count, 2):
        table.end(number)
    for number in range(count, count + 10):
        added(table, number)
    table.renew(30.0)
    views = table.views()
    assert [one.job for one in views] == [*range(1, count, 2), *range(count, count + 10)]
    assert [len(one.observations) for one in views] == [1] * (count // 2) + [0] * 10, "new jobs have no blocks"


def test_views_of_an_earlier_decision_do_not_change_if_they_are_read_later() -> None:
    table = Table()
    run = added(table, 0)
    table.begin(0, 0, 30.0)
    run.rate = 10.0
    early, kept = [], []
    for now_s in (30.0, 60.0, 90.0):
        table.renew(now_s)
        kept.append(table.views())
        if now_s == 60.0:
            early.append(kept[-1][0])
    run.settled_s, run.trained, run.rate = 90.0, 5.0, 0.0
    assert [(one[0].seen_s, len(one[0].observations)) for one in kept] == [(30.0, 1), (60.0, 2), (90.0, 3)]
    assert [run.spec.samples - one[0].samples_left for one in kept] == [300.0, 600.0, 900.0]
    assert kept[1][0] is early[0] and table.views()[0] is not early[0]
    assert table.views()[0] == kept[2][0]


def test_waiting_jobs_are_known_without_the_views_of_the_others() -> None:
    table = Table()
    runs = [added(table, number, None if number % 2 else 0.0) for number in range(6)]
    before = table.views()
    assert [one.job for one in before.waiting] == [1, 3, 5]
    runs[3].configuration, runs[2].configuration = runs[3].spec.request, None  # one starts, one must wait again
    for number in (3, 2):
        table.put(runs[number].as_seen(60.0))
    table.end(5)
    assert [one.job for one in table.views().waiting] == [1, 2], "in order of arrival"
    assert [one.job for one in before.waiting] == [1, 3, 5]
    assert [one.job for one in table.views() if one.running is None] == [1, 2]
