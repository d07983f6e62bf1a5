"""The charts of a run show what was measured, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.reporting.render.chart import Chart
from elastichost.reporting.run.facts import Course, Curve, ProcessCourse, Report, Story
from elastichost.reporting.run.view.charts import (
    evaluation_charts,
    load_chart,
    loss_chart,
    memory_chart,
    plan_chart,
    process_charts,
    speed_chart,
)
from elastichost.reporting.run.view.model_charts import candidates_chart, measured_bars


def names(chart: Chart | None) -> list[str]:
    assert chart is not None
    return [one.name for one in chart.series]


def test_marks_spans_and_losses_have_tips(full: Report) -> None:
    chart = speed_chart(full)
    assert chart is not None
    assert [(mark.label, mark.tip) for mark in chart.marks][1] == ("2", "3 workers, 2 PS: try 3 workers")
    written = "checkpoint step-400 written: 500 rows, 1.0 MiB in 1.00 s; training was paused for 0.10 s"
    tips = [span.tip for span in chart.spans]
    assert f"checkpoint, 1.0 s: {written}" in tips
    assert "evaluation, 2.0 s: evaluation finished: the best so far; 100 samples scored in 0.4 s" in tips
    assert [point.tip for point in chart.points] == ["worker-0.1 exited in state running: signal 9"]


def test_the_last_plan_lasts_until_the_end(full: Report) -> None:
    chart = plan_chart(full)
    assert chart is not None
    workers = chart.series[0]
    assert (list(workers.x), list(workers.y)) == ([0.5, 30.0, 120.0], [2.0, 3.0, 3])


def test_evaluations_are_points_over_samples(full: Report) -> None:
    (auc,) = evaluation_charts(full)
    assert (list(auc.series[0].x), list(auc.series[0].y)) == ([5000.0, 11900.0], [0.7, 0.75])


def test_an_exact_curve_says_so(full: Report) -> None:
    places = tuple(float(at) for at in range(1, 201))
    exact = Curve(places, tuple(1 / at for at in places), places, 512.0, is_exact=True)
    chart = loss_chart(msgspec.structs.replace(full, curve=exact))
    assert names(chart) == ["loss", "mean"]
    assert chart is not None and "every 512 samples" in chart.about
    reported = loss_chart(full)
    assert reported is not None and "no exact curve" in reported.about


def test_what_was_not_measured_has_no_chart(full: Report) -> None:
    nothing = msgspec.structs.replace(
        full, course=Course(), curve=Curve((1.0,), (0.0,), (1.0,)), processes=(), story=Story(), heat=None, model=None
    )
    charts = [make(nothing) for make in (loss_chart, speed_chart, plan_chart, memory_chart, load_chart)]
    assert charts == [None] * 5
    assert (evaluation_charts(nothing), process_charts(nothing)) == ((), ())
    assert (candidates_chart(nothing), measured_bars(nothing)) == (None, None)


def test_many_processes_share_two_entries_of_the_legend(full: Report) -> None:
    one = full.processes[0]
    many = tuple(
        ProcessCourse(f"{role}-{index}", 1, one.at_s, one.cpu_percent, one.memory_bytes, 1.0, 1, 0.0)
        for role in ("worker", "server")
        for index in range(8)
    )
    cpu, _ = process_charts(msgspec.structs.replace(full, processes=many))
    assert {series.group for series in cpu.series} == {"workers", "PS"}


def test_rows_of_configurations_are_within_their_axis(full: Report) -> None:
    table = measured_bars(full)
    assert table is not None and full.model is not None
    names_of_rows = [row.name.removesuffix(" *") for row in table.rows]
    assert names_of_rows == [str(one.configuration) for one in full.model.measured]
    for bar in (bar for row in table.rows for bar in row.bars):
        assert 0 <= bar.left <= bar.left + bar.width <= 100.001
        assert bar.dot is not None and bar.left - 1e-9 <= bar.dot <= bar.left + bar.width + 1e-9


def test_the_ranking_marks_measured_configurations(full: Report) -> None:
    chart = candidates_chart(full)
    assert chart is not None and chart.points
    assert all(point.name == "measured" and "measured:" in point.tip for point in chart.points)


def test_shares_of_the_load_add_up(full: Report) -> None:
    chart = load_chart(full)
    assert chart is not None
    for shares in zip(*(one.y for one in chart.series), strict=True):
        assert sum(share or 0 for share in shares) == pytest.approx(1.0)
    assert [mark.tip for mark in chart.marks] == ["1 bucket handed over"]
