"""The learning curve of a run in its report."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.curve import curve_of, reported_curve
from elastichost.reporting.run.facts import Course, SupervisorSession
from elastichost.reporting.run.sessions import Axis
from elastichost.runs.learning_curve import CurvePoint
from tests.reporting.remains import NOW, write_run

AXIS = Axis(
    (
        SupervisorSession("2026-01-01T00:00:00.000Z", 5.0, 0.0, 10.0),
        SupervisorSession("2026-01-02T00:00:00.000Z", 5.0, 10.0, 20.0),
    )
)
DAY_S = 86_400.0
FIRST_UNIX_S = 1_767_225_600.0  # 2026-01-01


def point(samples: int, unix_s: float, loss: float = 0.5, of_samples: int = 100) -> CurvePoint:
    return CurvePoint(samples // 100, samples, of_samples, loss, unix_s)


def test_points_are_on_the_axis_of_running_time() -> None:
    curve = curve_of([point(100, FIRST_UNIX_S + 4.0), point(200, FIRST_UNIX_S + DAY_S + 1.5)], AXIS)
    assert curve.at_s == (4.0, 11.5)
    assert (curve.samples, curve.every_samples, curve.is_exact) == ((100.0, 200.0), 100.0, True)


def test_the_time_before_all_sessions_is_not_known() -> None:
    assert curve_of([point(100, FIRST_UNIX_S - 1.0)], AXIS).at_s == (None,)


def test_of_reports_only_what_was_trained_after_a_roll_back_is_kept() -> None:
    course = Course(at_s=(1.0, 2.0, 3.0, 4.0), samples=(100.0, 200.0, 150.0, None), loss=(0.9, 0.8, 0.7, 0.6))
    curve = reported_curve(course)
    assert (curve.samples, curve.loss, curve.at_s) == ((100.0, 150.0), (0.9, 0.7), (1.0, 3.0))
    assert not curve.is_exact


def with_curve(run: Path, losses: list[float]) -> Path:
    write_run(run)
    connection = sqlite3.connect(run / "metrics.db")
    connection.execute("CREATE TABLE curve (id INTEGER PRIMARY KEY, batches, samples, of_samples, loss, unix_s)")
    rows = [(number, number, 100 * number, 100, loss, FIRST_UNIX_S + number) for number, loss in enumerate(losses, 1)]
    connection.executemany("INSERT INTO curve VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return run


def test_the_exact_curve_of_a_run_is_read(tmp_path: Path) -> None:
    curve = read_report(with_curve(tmp_path / "run", [0.7, 0.6, 0.5]), is_running=False, now_utc=NOW).curve
    assert (curve.samples, curve.loss) == ((100.0, 200.0, 300.0), (0.7, 0.6, 0.5))
    assert curve.at_s == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("losses", [[], [0.0, 0.0]])
def test_without_losses_in_the_curve_the_reports_of_workers_are_read(tmp_path: Path, losses: list[float]) -> None:
    curve = read_report(with_curve(tmp_path / "run", losses), is_running=False, now_utc=NOW).curve
    assert not curve.is_exact and set(curve.loss) == {0.5}


def test_a_curve_that_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    connection = sqlite3.connect(run / "metrics.db")
    connection.execute("CREATE TABLE curve (id INTEGER PRIMARY KEY)")
    connection.close()
    report = read_report(run, is_running=False, now_utc=NOW)
    assert [gap.source for gap in report.gaps].count("metrics.db") == 1
    assert not report.curve.is_exact
