"""The verb `log`: sends what is missing to loggers, after the run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from elastichost.ps.applied_log import AppliedLog
from elastichost.runs.learning_curve import CurveWriter
from elastichost.wire.applied import NONE_LEFT_OUT
from tests.cli.conftest import Elastichost, write_status


def trained(run: Path, numbers: range) -> None:
    """Commits batches of ten samples with a mean loss of their number."""
    log = AppliedLog(run)
    for number in numbers:
        fields = (0, 1, number, 1, 0, 0, 10 * number, 10 * number + 10, 10, 0, 10.0 * number, NONE_LEFT_OUT)
        log.write(number, fields)
    log.close()
    CurveWriter(run, 10).close(1000.0)


def losses(run: Path) -> list[tuple[int, float]]:
    with (run / "log.csv").open(newline="") as file:
        return [(int(row["samples"]), float(row["value"])) for row in csv.DictReader(file)]


def test_what_is_missing_is_sent_once(elastichost: Elastichost, run_directory: Path) -> None:
    write_status(run_directory, "stopped", 0)
    trained(run_directory, range(1, 4))
    outcome = elastichost("log", str(run_directory), "--to", "csv", "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.last_line)["sent_to"] == ["csv"]
    assert losses(run_directory) == [(10, 1.0), (20, 2.0), (30, 3.0)]
    trained(run_directory, range(4, 6))
    elastichost("log", str(run_directory), "--to", "csv")
    assert losses(run_directory) == [(10, 1.0), (20, 2.0), (30, 3.0), (40, 4.0), (50, 5.0)]


def test_a_run_that_trains_and_unknown_loggers_are_refused(elastichost: Elastichost, running_directory: Path) -> None:
    assert "still trains" in elastichost("log", str(running_directory), "--to", "csv").stderr
    write_status(running_directory, "done", 0)
    assert "there is no logger 'tensorbord'" in elastichost("log", str(running_directory), "--to", "tensorbord").stderr
    outcome = elastichost("log", str(running_directory))
    assert outcome.code == 2 and "names no logger" in outcome.stderr
