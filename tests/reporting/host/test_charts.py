"""The charts of a host show its jobs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from elastichost.reporting.host.assemble import read_host_report
from elastichost.reporting.host.charts import core_chart, host_memory_chart, job_bars, together_chart
from elastichost.reporting.host.facts import HostReport
from elastichost.reporting.render.chart import Chart
from tests.reporting.host_remains import write_batch
from tests.reporting.remains import NOW


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> HostReport:
    directory: Path = write_batch(tmp_path_factory.mktemp("host") / "batch-1")
    return read_host_report(directory, is_running=False, now_utc=NOW)


def series(chart: Chart | None) -> dict[str, list[float]]:
    """name -> values."""
    assert chart is not None
    return {one.name: [value for value in one.y if value is not None] for one in chart.series}


def test_bars_match_the_times_of_their_jobs(report: HostReport) -> None:
    table = job_bars(report)
    assert table is not None
    assert [row.name for row in table.rows] == ["ads", "news", "lies", "toys"]
    bars = {bar.tip: bar for row in table.rows for bar in row.bars}
    assert len(bars) == sum(len(one.spans) for one in report.jobs)
    runs = next(bar for tip, bar in bars.items() if tip.startswith("ads (dense): running"))
    waits = next(bar for tip, bar in bars.items() if tip.startswith("ads (dense): waiting"))
    # of twenty seconds
    assert (runs.left, runs.left + runs.width) == (pytest.approx(15.0), pytest.approx(55.0))
    assert (waits.left, waits.left + waits.width) == (pytest.approx(5.0), pytest.approx(10.0))
    assert waits.height < runs.height / 4
    assert [text for _, text in table.ticks] == ["0:00", "0:05", "0:10", "0:15", "0:20"]


def test_jobs_are_stacked_with_their_own_values(report: HostReport) -> None:
    chart = core_chart(report)
    assert chart is not None
    assert [one.kind for one in chart.series] == ["stacked", "stacked", "line"]
    assert max(series(chart)["ads"]) == 2.0
    assert max(series(chart)["news"]) == 0.5
    assert series(chart)["cores of the host"] == [4.0, 4.0]


def test_charges_and_limit_are_beside_memory_in_use(report: HostReport) -> None:
    lines = series(host_memory_chart(report))
    assert max(lines["charged"]) == 500 << 20
    assert max(lines["limit of all jobs"]) == 1000 << 20
    much = msgspec.structs.replace(report.summary, memory_bytes=10**12)
    assert "limit of all jobs" not in series(host_memory_chart(msgspec.structs.replace(report, summary=much)))


def test_points_are_at_predicted_and_measured_speeds(report: HostReport) -> None:
    chart = together_chart(report)
    assert chart is not None
    point = next(one for one in chart.points if one.tip.startswith("ads beside news"))
    assert (point.x, point.y) == (pytest.approx(0.8), pytest.approx(0.75))
