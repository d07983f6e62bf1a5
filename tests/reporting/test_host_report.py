"""The report of a batch, read from its directory."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from elastichost.errors import PreflightError
from elastichost.reporting.host import story as host_story
from elastichost.reporting.host.assemble import QUIET, read_host_report
from elastichost.reporting.host.facts import HostReport, JobRow
from elastichost.runs.events import EVENT_CLASSES, JobDone, JobSubmitted, JournalLine
from tests.reporting.host_remains import (
    MIB,
    began,
    host,
    host_line,
    job,
    write_batch,
    write_host,
    write_timeline,
)
from tests.reporting.remains import NOW, line, write_journal


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_batch(tmp_path_factory.mktemp("host") / "batch-1")


@pytest.fixture(scope="module")
def report(batch: Path) -> HostReport:
    return read(batch)


def read(directory: Path) -> HostReport:
    return read_host_report(directory, is_running=False, now_utc=NOW)


def row(report: HostReport, name: str) -> JobRow:
    return next(one for one in report.jobs if one.job == name)


def spans(report: HostReport, name: str) -> list[tuple[str, float, float]]:
    """The states of a job: (state, begin in seconds, end in seconds)."""
    return [(one.state, round(one.at_s, 6), round(one.until_s, 6)) for one in row(report, name).spans]


def test_jobs_are_listed_in_the_order_of_their_starts(report: HostReport) -> None:
    assert [one.job for one in report.jobs] == ["ads", "news", "lies", "toys"]
    assert report.gaps == ()


def test_states_of_a_job_have_no_gaps(report: HostReport) -> None:
    assert spans(report, "ads") == [
        ("waiting", 1.0, 2.0),
        ("starting", 2.0, 3.0),
        ("running", 3.0, 11.0),
        ("stopping", 11.0, 12.0),
    ]
    assert spans(report, "news") == [
        ("waiting", 1.0, 4.0),
        ("running", 4.0, 8.0),
        ("waiting", 8.0, 13.0),
        ("starting", 13.0, 14.0),
        ("running", 14.0, 15.0),
        ("paused", 15.0, 16.0),
        ("running", 16.0, 19.0),
    ]


def test_a_job_that_ended_between_two_looks_is_shown_as_running(report: HostReport) -> None:
    assert spans(report, "lies") == [("waiting", 1.0, 14.0), ("running", 14.0, 16.0)]


def test_a_job_that_never_started_is_shown_as_waiting(report: HostReport) -> None:
    assert spans(report, "toys") == [("waiting", 6.0, 7.0)]


def test_the_reason_is_that_of_the_failure_or_of_the_last_start(report: HostReport) -> None:
    assert row(report, "lies").why == "DataError: no such file"
    assert row(report, "news").why == "alone"
    assert row(report, "ads").why == "nothing runs"


def test_slowdown_is_the_time_of_training_over_the_time_it_would_take_alone(report: HostReport) -> None:
    assert row(report, "ads").slowdown == pytest.approx(8.0 / (900 / 120))
    assert row(report, "news").slowdown == pytest.approx(8.0 / (500 / 100))
    assert row(report, "lies").slowdown is None


def test_sizes_and_charges_of_jobs_that_ended_are_those_of_the_timeline(report: HostReport) -> None:
    assert (row(report, "news").workers, row(report, "news").charged_bytes) == (2, 100 * MIB)
    assert row(report, "ads").charged_bytes == 400 * MIB


def test_the_host_is_the_sum_of_its_jobs(report: HostReport) -> None:
    summary = report.summary
    assert summary.states == {"done": 2, "failed": 1, "cancelled": 1}
    assert summary.samples_trained == 1400
    assert summary.samples_per_s == pytest.approx(1400 / 17)
    assert summary.peak_bytes == 450 * MIB
    assert summary.peak_charged_bytes == 500 * MIB
    assert summary.most_together == 2
    # ads uses 2 cores for ten seconds, news half a core for ten; they overlap for four; each row covers a second
    assert summary.busy_cores == pytest.approx((10 * 2 + 10 * 0.5) / 16, rel=0.05)


def test_stacked_lines_are_zero_while_no_job_runs(tmp_path: Path) -> None:
    rows = [host(tmp_path, job("a", "running", cpu_cores=1.0), elapsed_s=at_s) for at_s in (5.0, 6.0, 40.0, 41.0)]
    write_timeline(tmp_path / "timeline.db", rows)
    write_host(tmp_path, host(tmp_path, job("a", started_s=4.0, ended_s=42.0), elapsed_s=42.0))
    write_journal(tmp_path, host_line(1.0, JobSubmitted("a")))
    course = read(tmp_path).course
    assert course.at_s == (4.0, 5.0, 6.0, 6.0, 39.0, 40.0, 41.0, 41.0)
    assert course.lines[0].cores == (0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0)


def test_the_timeline_of_a_long_batch_is_thinned(tmp_path: Path) -> None:
    rows = [
        host(tmp_path, job("a", "running", cpu_cores=1.0 + at_s % 2), elapsed_s=float(at_s)) for at_s in range(1, 4000)
    ]
    write_timeline(tmp_path / "timeline.db", rows)
    write_host(tmp_path, host(tmp_path, job("a", started_s=0.0, ended_s=4000.0), elapsed_s=4000.0))
    report = read(tmp_path)
    assert 400 < len(report.course.at_s) < 520
    assert report.summary.busy_cores == pytest.approx(1.5, abs=0.02)
    assert [one.state for one in report.jobs[0].spans] == ["running"]


def test_speeds_are_compared_while_the_same_jobs_run(report: HostReport) -> None:
    beside = {(one.job, one.others): one for one in report.together}
    ads = beside["ads", ("news",)]
    assert ads.predicted == pytest.approx(0.8)
    assert ads.measured == pytest.approx(0.75)
    assert ads.kind == "dense"
    assert ads.seconds == pytest.approx(4.0)
    assert beside["news", ("ads",)].measured == pytest.approx(0.95)
    assert beside["ads", ()].measured == pytest.approx(1.0)


def test_decisions_have_their_reasons(report: HostReport) -> None:
    told = [(round(one.at_s, 3), one.kind, one.process) for one in report.decisions]
    assert told[:3] == [(2.0, "job_started", "ads"), (4.0, "job_started", "news"), (7.0, "job_cancelled", "toys")]
    assert not {"job_submitted", "job_examined"} & {one.kind for one in report.decisions}
    assert "it starts once more, alone" in {one.text for one in report.decisions if one.kind == "job_requeued"}.pop()


def test_event_kinds_that_the_report_names_exist() -> None:
    assert {one.__struct_config__.tag for one in EVENT_CLASSES} >= {host_story.STARTS, *host_story.ENDS, *QUIET}


def after(directory: Path, *earlier: JournalLine) -> Path:
    """Writes the batch with earlier lines in its journal."""
    write_batch(directory)
    journal = (directory / "journal.jsonl").read_bytes()
    write_journal(directory, *earlier)
    with (directory / "journal.jsonl").open("ab") as file:
        file.write(journal)
    return directory


def test_an_earlier_dispatcher_of_the_directory_is_left_out(tmp_path: Path, report: HostReport) -> None:
    directory = tmp_path / "batch"
    directory.mkdir()
    before = [host(directory, job("ads", "running", cpu_cores=9.0), elapsed_s=100.0 + at_s) for at_s in range(9)]
    write_timeline(directory / "timeline.db", before)
    after(directory, line(-500.0, JobSubmitted("ads")), line(-499.0, began("ads", "of before")))
    found = read(directory)
    assert (found.course, found.jobs, found.decisions) == (report.course, report.jobs, report.decisions)


def test_a_resumed_batch_is_told_on_the_clock_of_its_last_dispatcher(tmp_path: Path) -> None:
    """The first dispatcher completed `a` and was killed while `b` ran; the second one lists both."""
    write_journal(
        tmp_path,
        host_line(-3600.0, JobSubmitted("a")),
        host_line(-3600.0, JobSubmitted("b")),
        host_line(-3599.0, began("a", "nothing runs")),
        host_line(-3590.0, JobDone("a", 9.0)),
        host_line(-3589.0, began("b", "of before")),
        host_line(1.0, JobSubmitted("b")),
        host_line(2.0, began("b", "it continues")),
        host_line(9.0, JobDone("b", 7.0)),
    )
    first = job("a", submitted_s=0.5, started_s=1.5, ended_s=10.5)
    second = job("b", submitted_s=1.0, started_s=2.0, ended_s=9.0)
    write_host(tmp_path, host(tmp_path, first, second, elapsed_s=12.0))
    report = read(tmp_path)
    assert all(until_s <= report.summary.elapsed_s for _, _, until_s in spans(report, "b"))
    assert spans(report, "b") == [("waiting", 1.0, 2.0), ("running", 2.0, 9.0)]
    assert [(round(one.at_s, 3), one.kind) for one in report.decisions] == [(2.0, "job_started"), (9.0, "job_done")]


def test_a_journal_from_before_a_reboot_is_left_out(tmp_path: Path, report: HostReport) -> None:
    earlier = line(90_000.0, JobSubmitted("ads")), line(90_001.0, began("ads", "of before"))
    assert read(after(tmp_path / "batch", *earlier)).decisions == report.decisions


def test_results_of_runs_complete_the_last_status(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    samples = {"planned": 1000, "trained": 1000, "skipped": 0, "quarantined": 0}
    figures = {"auc": 0.7, "logloss": 0.5, "normalised_entropy": 0.9, "calibration": 1.0, "samples": 10}
    result = {"samples": samples, "test": {**figures, "truth_auc": None}}
    (run / "result.json").write_bytes(msgspec.json.encode(result))
    write_host(tmp_path, host(tmp_path, job("a", run_dir=str(run), samples_trained=900), elapsed_s=9.0))
    found = read(tmp_path).jobs[0]
    assert (found.samples_trained, found.auc) == (1000, 0.7)


def test_the_remaining_files_of_a_directory_are_reported(tmp_path: Path) -> None:
    directory = write_batch(tmp_path / "batch")
    whole = read(directory)
    for name in ("journal.jsonl", "timeline.db"):
        os.unlink(directory / name)
    report = read(directory)
    assert {gap.source for gap in report.gaps} == {"journal.jsonl", "timeline.db"}
    assert spans(report, "ads") == [("waiting", 1.0, 2.0), ("running", 2.0, 12.0)]
    assert report.summary.samples_trained == whole.summary.samples_trained
    (directory / "host.json").write_text("{")
    shutil.copy(directory / "host.json", directory / "timeline.db")
    report = read(directory)
    assert {gap.source for gap in report.gaps} == {"host.json", "journal.jsonl", "timeline.db"}
    assert report.jobs == ()


def test_jobs_that_the_status_leaves_out_are_counted(tmp_path: Path) -> None:
    left_out = {"done": 40, "failed": 2}
    write_host(tmp_path, host(tmp_path, job("a"), job("b", "running"), left_out=left_out, elapsed_s=9.0))
    summary = read(tmp_path).summary
    assert (summary.states, summary.left_out) == ({"done": 41, "failed": 2, "running": 1}, 42)


def test_a_timeline_whose_oldest_rows_were_deleted_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "timeline.db"
    write_timeline(path, [host(tmp_path, job("a", "running"), elapsed_s=float(at_s)) for at_s in range(1, 100)])
    write_host(tmp_path, host(tmp_path, job("a", started_s=0.0, ended_s=100.0), elapsed_s=100.0))
    assert "timeline.db" not in {gap.source for gap in read(tmp_path).gaps}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM job WHERE rowid < 30")
    report = read(tmp_path)
    (gap,) = (gap for gap in report.gaps if gap.source == "timeline.db")
    assert "keeps its newest rows only" in gap.text and gap.text.endswith("in the first 30s")
    assert report.course.at_s
    write_timeline(path, [host(tmp_path, job("a", "running"), elapsed_s=float(at_s)) for at_s in range(1, 9)])
    assert "timeline.db" not in {gap.source for gap in read(tmp_path).gaps}, "they were of an earlier dispatcher"


def test_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no such directory"):
        read(tmp_path / "nowhere")
