"""Reports of runs, compared."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from elastichost.reporting.compare.assemble import comparison_of
from elastichost.reporting.compare.facts import SettingDifference
from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import Report
from tests.reporting.remains import NOW, write_run


@pytest.fixture
def reports(tmp_path: Path) -> list[Report]:
    """Two runs; the second has another batch size and no epochs."""
    runs = [write_run(tmp_path / "first"), write_run(tmp_path / "second")]
    job = runs[1] / "job.resolved.toml"
    job.write_text(job.read_text().replace("batch_size = 64\nepochs = 2\n", "batch_size = 128\n"))
    return [read_report(run, is_running=False, now_utc=NOW) for run in runs]


def test_only_settings_that_differ_are_told(reports: list[Report]) -> None:
    assert comparison_of(reports, NOW).differences == (
        SettingDifference("train.batch_size", ("64", "128")),
        SettingDifference("train.epochs", ("2", None)),
    )


def test_results_are_those_of_the_runs(reports: list[Report]) -> None:
    first, second = comparison_of(reports, NOW).runs
    assert (first.name, second.name, first.job) == ("first", "second", "shop")
    assert (first.samples_trained, first.running_s, first.faults) == (1000, 10.0, 1)
    assert first.peak_bytes == 200 << 20
    assert first.curve == reports[0].curve


def test_gaps_name_their_run(reports: list[Report]) -> None:
    assert "second/result.json" in [gap.source for gap in comparison_of(reports, NOW).gaps]


def test_names_are_unique(reports: list[Report]) -> None:
    twice = comparison_of([reports[0], reports[0]], NOW)
    directory = reports[0].overview.run_dir
    assert [run.name for run in twice.runs] == [directory, f"{directory} (2)"]
    elsewhere = msgspec.structs.replace(
        reports[1], overview=msgspec.structs.replace(reports[1].overview, run_dir="/other/first")
    )
    assert [run.name for run in comparison_of([reports[0], elsewhere], NOW).runs] == [directory, "/other/first"]
