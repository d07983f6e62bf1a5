"""Printed results: the last screen of a run, and reports of verbs."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from elastichost.cli.report import print_report
from elastichost.cli.runs import program
from elastichost.cli.train.summary import summary
from elastichost.runs import result

RESULT = result.RunResult(
    status="done",
    exit_code=0,
    run_dir="/elsewhere/runs/shop-1",
    samples=result.SampleCounts(planned=1_000_000, trained=999_990, skipped=10, quarantined=0),
    test=result.TestFigures(0.79, 0.45, 0.85, 1.01, 1000, truth_auc=0.8),
    samples_per_s=61_234.5,
    wall_s=75.0,
    processes=result.ProcessCounts(3, 1, 1),
    arena_bytes=3 << 30,
    epochs=1,
    torn_batches=0,
)


@pytest.fixture(autouse=True)
def called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the programs of the environment on the PATH."""
    script = tmp_path / "elastichost"
    script.touch(mode=0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_commands_use_a_name_that_the_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert program() == "elastichost"
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(tmp_path / "elastichost")
    monkeypatch.chdir(tmp_path.parent)
    assert program() == f"{tmp_path.name}/elastichost"
    (tmp_path / "elastichost").unlink()
    assert program() == f"{tmp_path.name}/python -m elastichost"


def test_the_last_screen_of_a_run_that_is_done() -> None:
    assert summary(RESULT).plain.splitlines() == [
        "done  in 1m15s",
        "AUC            0.7900  (the true probabilities reach 0.8000)",
        "log loss       0.4500",
        "norm. entropy  0.8500",
        "calibration    1.0100",
        "samples        1.0M of 1.0M trained, 10 skipped",
        "speed          61.2k samples/s",
        "processes      3 workers, 1 PS, 1 restart",
        "rows           3.0 GiB of shared memory",
        "run            /elsewhere/runs/shop-1",
        "next: elastichost export /elsewhere/runs/shop-1 DIR",
        "      elastichost predict /elsewhere/runs/shop-1 FILE",
    ]


def test_figures_undefined_for_one_class_of_labels() -> None:
    one_class = msgspec.structs.replace(RESULT, test=result.TestFigures(None, 0.69, None, None, 10))
    assert summary(one_class).plain.splitlines()[1:5] == [
        "AUC            not defined: the test set has labels of one class only",
        "log loss       0.6900",
        "norm. entropy  not defined",
        "calibration    not defined",
    ]


def test_an_emulated_run_has_no_model_to_export() -> None:
    assert summary(RESULT, is_emulated=True).plain.splitlines()[-1] == "run            /elsewhere/runs/shop-1"


@pytest.mark.parametrize(("status", "command"), [("stopped", "resume"), ("failed", "logs")])
def test_the_next_command_fits_the_ending(status: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    ended = msgspec.structs.replace(RESULT, status=status, test=None, torn_batches=2, message="asked to")
    lines = summary(ended).plain.splitlines()
    assert lines[0] == f"{status}  in 1m15s  asked to"
    assert "torn batches  2" in lines
    assert lines[-1] == f"next: elastichost {command} elsewhere/runs/shop-1"


@dataclass(frozen=True, slots=True)
class Report:
    """A report with every kind of fact."""

    output: Path
    model_bytes: int
    auc: float
    table_rows: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...] = ()
    note: str = ""


def test_reports_are_lines_or_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(Path("/out"), 3 << 20, 0.5, (("item", 7), ("shop", 8)))
    print_report(report, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "output      /out",
        "model       3.0 MiB",
        "AUC         0.5000",
        "table rows  item 7, shop 8",
    ]
    print_report(dataclasses.replace(report, auc=math.nan), as_json=False)
    assert "AUC         not defined" in capsys.readouterr().out.splitlines()
    converted = {"source": "a.csv", "source_bytes": 2048, "wall_s": 75.0, "quality": {"auc": 0.5, "logloss": 0.25}}
    print_report(converted, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "source       a.csv",
        "source size  2.0 KiB",
        "time         1m15s",
        "quality      AUC 0.5000, log loss 0.2500",
    ]
    print_report(report, as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema"], facts["output"], facts["model_bytes"]) == ("elastichost/v1", "/out", 3 << 20)
