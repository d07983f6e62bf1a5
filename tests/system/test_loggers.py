"""Experiment loggers of whole runs: every value arrives, and a logger that is blocked or broken delays nothing."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from elastichost.runs.events import LoggerFailed, RunEnded
from elastichost.runs.learning_curve import read_curve
from tests.system.test_run import JOB, Supervised, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough]

__all__ = ["folder"]

ROWS = 100_000


def logged(file: Path, finish_s: float) -> str:
    settings = f'[logging]\nto = ["csv"]\nfinish_s = {finish_s}\ncsv = {{{{ file = "{file}" }}}}\n'
    return JOB.replace("[checkpoint]\n", f"{settings}[checkpoint]\n")


def losses(lines: list[str]) -> list[tuple[int, float]]:
    rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    return [(int(row["samples"]), float(row["value"])) for row in rows if row["name"] == "train/loss"]


def test_a_blocked_logger_delays_no_training_and_gets_every_value(folder: Path) -> None:
    """The file is a pipe that nobody reads until the run has trained all of its samples."""
    pipe = folder / "log.csv"
    os.mkfifo(pipe)
    run = Supervised(folder, template=logged(pipe, 60.0), rows=ROWS)
    run.wait_trained(ROWS)
    run.wait_until(lambda: run.status().get("state") == "done")
    with pipe.open() as file:
        lines = file.read().splitlines()
    code, errors = run.finish()
    assert code == 0, errors
    assert losses(lines) == [(point.samples, point.loss) for point in read_curve(run.run_dir)]
    assert {line.partition(",")[0] for line in lines} == {"name", "train/loss", "test/auc", "test/logloss"}
    assert run.events(LoggerFailed) == []


def test_a_logger_that_does_not_finish_is_ended_and_reported(folder: Path) -> None:
    pipe = folder / "log.csv"
    os.mkfifo(pipe)
    run = Supervised(folder, template=logged(pipe, 1.0), rows=ROWS)
    code, errors = run.finish()
    assert code == 0, errors
    (failed,) = run.events(LoggerFailed)
    assert failed.logger == "csv" and "1 s after the end" in failed.problem
    assert len(run.events(RunEnded)) == 1


def test_a_broken_logger_is_reported_and_the_run_is_done(folder: Path) -> None:
    (folder / "log.csv").mkdir()
    run = Supervised(folder, template=logged(folder / "log.csv", 1.0), rows=ROWS)
    code, errors = run.finish()
    assert code == 0, errors
    (failed,) = run.events(LoggerFailed)
    assert failed.logger == "csv"
    assert "IsADirectoryError" in (run.run_dir / "logs" / "logger-csv.log").read_text()
    assert run.result()["samples"]["trained"] == ROWS


def test_a_resumed_run_continues_its_log(folder: Path) -> None:
    settings = {"template": logged(folder / "log.csv", 30.0), "rows": 4 * ROWS}
    first = Supervised(folder, **settings)
    first.wait_trained(20_000)
    first.process.send_signal(2)
    code, _ = first.finish()
    assert code == 75
    again = Supervised(folder, resume=True, **settings)
    code, errors = again.finish()
    assert code == 0, errors
    found = losses((folder / "log.csv").read_text().splitlines())
    assert found == [(point.samples, point.loss) for point in read_curve(again.run_dir)]
    assert found[-1][0] == 4 * ROWS
