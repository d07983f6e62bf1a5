"""`elastichost report` as a user calls it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from elastichost.cli import run_command_line
from tests.reporting.host_remains import write_batch
from tests.reporting.remains import write_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path / "runs" / "shop")


def test_the_page_is_written_into_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", "shop"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "runs/shop/report.html"
    assert [line.partition(":")[0] for line in out[1:]] == ["problem with result.json", "problem with decisions.jsonl"]
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_json_prints_the_figures_and_writes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir(run))
    assert run_command_line(["report", "shop", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["schema"], facts["run_dir"], facts["output"]) == ("elastichost/v1", str(run), None)
    assert facts["overview"]["samples_trained"] == 1000
    assert len(facts["course"]["at_s"]) == len(facts["course"]["counted_per_s"])
    assert sorted(os.listdir(run)) == before


def test_json_and_a_page_if_output_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", "shop", "--json", "--output", "page.html"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["output"] == "page.html"
    assert Path("page.html").exists()
    assert not (run / "report.html").exists()


def test_the_remaining_files_of_a_run_are_enough(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in run.iterdir():
        if path.name != "journal.jsonl":
            path.unlink()
    assert run_command_line(["report", str(run)]) == 0
    assert "problem with job.resolved.toml" in capsys.readouterr().out
    assert (run / "report.html").exists()


def test_two_runs_are_compared(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(run.parent / "other")
    assert run_command_line(["report", "shop", "other"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "comparison.html"
    assert "problem with shop/result.json" in out[1]
    assert "Comparison of 2 runs" in Path("comparison.html").read_text()
    assert not (run / "report.html").exists()


def test_json_of_a_comparison_has_the_runs_and_writes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_run(run.parent / "other")
    assert run_command_line(["report", "shop", "other", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["run_dirs"], facts["output"]) == ([str(run), str(other)], None)
    assert [one["name"] for one in facts["runs"]] == ["shop", "other"]
    assert not Path("comparison.html").exists()


def test_a_run_that_cannot_be_compared_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", "shop", "shoq"]) == 2
    assert "shoq" in capsys.readouterr().err
    write_batch(run.parent / "batch-1")
    assert run_command_line(["report", "shop", "batch-1"]) == 2
    assert "batch-1 is the directory of many jobs" in capsys.readouterr().err


def test_no_run_is_an_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", "shoq"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_an_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", "shop", "-o", "nowhere/page.html"]) == 3
    assert "--output" in capsys.readouterr().err
