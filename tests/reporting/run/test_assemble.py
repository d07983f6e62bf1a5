"""Reports of whole run directories, constructed and from a real run."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import Report
from elastichost.reporting.run.view.page import page_of
from elastichost.runs.events import ProcessReady, RunEnded, RunFailed
from elastichost.tuner.facts import Configuration
from tests.reporting.remains import (
    NOW,
    STARTED,
    line,
    lost,
    plan,
    status,
    worker,
    write_journal,
    write_metrics,
    write_run,
)
from tests.reporting.render.seen import Seen


def read(run: Path, *, is_running: bool = False) -> Report:
    return read_report(run, is_running=is_running, now_utc=NOW)


def test_a_constructed_run(tmp_path: Path) -> None:
    report = read(write_run(tmp_path / "run"))
    assert (report.overview.job, report.overview.state, report.overview.running_s) == ("shop", "done", 10.0)
    assert (report.overview.samples_trained, report.overview.samples_planned) == (1000, 2000)
    assert [gap.source for gap in report.gaps] == ["result.json", "decisions.jsonl"]
    assert [plan.workers for plan in report.story.plans] == [1, 2]
    assert [fault.back_after_s for fault in report.story.faults] == [0.25]
    assert report.memory.budget_bytes == 1 << 30
    assert report.memory.peak_arena_bytes == 50 << 20
    assert (report.model, report.heat, report.tuner) == (None, None, ())


@pytest.mark.parametrize(
    "missing", ["job.resolved.toml", "versions.json", "journal.jsonl", "metrics.db", "status.json"]
)
def test_missing_files_are_gaps_and_the_rest_is_reported(tmp_path: Path, missing: str) -> None:
    run = write_run(tmp_path / "run")
    whole = read(run)
    (run / missing).unlink()
    report = read(run)
    assert missing in [gap.source for gap in report.gaps]
    assert report.overview.running_s == pytest.approx(whole.overview.running_s)
    assert report.overview.samples_trained == whole.overview.samples_trained
    assert page_of(report)


@pytest.mark.parametrize("name", ["job.resolved.toml", "versions.json", "journal.jsonl", "metrics.db", "status.json"])
def test_files_cut_anywhere_give_a_report(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    whole = (run / name).read_bytes()
    for share in (0.0, 0.1, 0.5, 0.9):
        (run / name).write_bytes(whole[: int(share * len(whole))])
        report = read(run)
        assert report.sessions
        assert msgspec.json.decode(msgspec.json.encode(report))["overview"]["run_dir"] == str(run)


def test_a_run_that_was_killed_and_resumed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    first = [line(0, STARTED), line(1, plan(2, 1, "cold start")), line(6, ProcessReady(worker()))]
    second = [line(500, STARTED), line(504, lost(worker(incarnation=3)))]
    write_journal(run, *first, *second)
    (run / "metrics.db").unlink()
    write_metrics(
        run / "metrics.db", [*(status(float(at), 10 * at) for at in range(7)), status(0.0, 0), status(5.0, 60)]
    )
    report = read(run)
    assert [(one.at_s, one.duration_s) for one in report.sessions] == [(0.0, 6.0), (6.0, 5.0)]
    assert report.story.faults[0].note.at_s == 10.0
    assert report.course.at_s[-2:] == (6.0, 11.0)
    assert page_of(report)


def test_the_error_of_a_failed_run_is_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", state="failed")
    failed = RunFailed("RestartBudgetError", "server-0 ended 4 times")
    write_journal(run, line(0, STARTED), line(1, failed), line(2, RunEnded("failed")))
    report = read(run)
    assert report.overview.message == "server-0 ended 4 times"
    assert "server-0 ended 4 times" in page_of(report)


def test_a_run_that_still_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "status.json").write_bytes(msgspec.json.encode(status(9.0, 900, state="training")))
    report = read(run, is_running=True)
    assert report.overview.is_running
    assert report.overview.ended_utc == ""
    assert "result.json" not in [gap.source for gap in report.gaps]


@pytest.mark.thorough
@pytest.mark.system
def test_a_real_run(real_run: Path) -> None:
    report = read(real_run)
    assert report.gaps == ()
    overview = report.overview
    assert (overview.job, overview.state, overview.machine.cores) == ("small", "stopped", 2)
    assert overview.samples_trained == report.course.samples[-1]
    assert overview.auc is not None
    assert [one.samples for one in report.story.evaluations]
    assert {span.kind for span in report.story.spans} >= {"evaluation"}
    assert report.tuner[0].reason
    assert report.model is not None
    assert not report.model.problem
    began_with = report.story.plans[0]
    sizes = [(one.configuration.workers, one.configuration.servers) for one in report.model.measured]
    assert (began_with.workers, began_with.servers) in sizes
    assert {one.configuration for one in report.model.candidates} >= {Configuration(1, 1), Configuration(2, 1)}
    assert {one.process for one in report.processes} >= {"worker-0", "server-0"}
    charts = Seen(page_of(report)).charts
    assert {"auc", "candidates", "cpu", "loss", "memory", "plan", "process-memory", "speed"} <= set(charts)
    assert "load" not in charts  # direct access has none


@pytest.mark.thorough
@pytest.mark.system
def test_a_run_without_records_has_the_decisions_of_its_journal(real_run: Path, tmp_path: Path) -> None:
    whole = read(real_run)
    left = tmp_path / "left"
    shutil.copytree(real_run, left, ignore=shutil.ignore_patterns("decisions.jsonl", "checkpoints"))
    report = read(left)
    assert [(one.kind, one.configuration) for one in report.tuner] == [
        (one.kind, one.configuration) for one in whole.tuner
    ]
    assert report.model is None
