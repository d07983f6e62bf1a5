"""The rows read the output of each part; the parts run in their smallest settings, or their output is constructed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.harness.aggregates import Interval
from benchmarks.harness.aims import bounds_of
from benchmarks.tuner import accuracy, coverage, real, stay, stay_live
from benchmarks.tuner.emulated import benchmark as emulated
from benchmarks.tuner.memory import benchmark as memory
from benchmarks.tuner.memory.real_runs import RealRun
from benchmarks.tuner.results import page as results
from benchmarks.tuner.results.rows import rows_of
from benchmarks.tuner.search import benchmark as search
from benchmarks.tuner.search.runs import Options
from benchmarks.tuner.search.simulated_worlds import SIMULATED
from elastichost.emulation.scenarios import scenario
from elastichost.tuner.facts import Configuration

PRECISE, COMPLETE = Interval(0.98, 0.9, 1.0), Interval(0.97, 0.96, 1.0)
ARM = memory.ArmFigures("", 360, 150, 151, PRECISE, COMPLETE, 200, 8, 250.0, (1.2, 14.0), 5e4, {"heaps": 0.95})
REAL = RealRun("with the tuner", "done", 1000, 2.0, 3.0, 2.5, "", (), 7.5)


def printed(figures: object) -> msgspec.Raw:
    """The figures as read from the file that keeps them."""
    return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(figures))))


def verdicts(name: str, figures: object) -> list[str]:
    return [row.reached for row in rows_of({name: printed(figures)})]


def test_memory_has_a_row_for_each_arm_and_each_real_run_that_acted() -> None:
    arms = {name: dataclasses.replace(ARM, arm=name) for name in memory.ARMS}
    assert verdicts("memory", memory.Figures(arms)) == ["yes"] * 3
    late = dataclasses.replace(ARM, recall=Interval(0.9, 0.8, 1.0))
    idle = msgspec.structs.replace(REAL, lead_s=None)
    short = msgspec.structs.replace(REAL, lead_s=1.0)
    figures = memory.Figures({**arms, "known": late}, (idle, REAL, short))
    assert verdicts("memory", figures) == ["yes", "**no**", "yes", "once", "**no**"]


def test_an_aim_that_only_the_mean_reaches_is_not_called_reached() -> None:
    unsure = dataclasses.replace(ARM, recall=Interval(0.97, 0.93, 1.0))
    figures = memory.Figures({name: dataclasses.replace(unsure, arm=name) for name in memory.ARMS})
    assert verdicts("memory", figures) == ["not each time"] * 3


def test_accuracy_is_read_with_the_aims_beside_it() -> None:
    options = accuracy.Options(seeds=1, keep_every=16, iterations=200, scenarios=(scenario("server_bound"),))
    figures = accuracy.measure(options)
    row, fixed = rows_of({"accuracy": printed({**dataclasses.asdict(figures), "aims": bounds_of(accuracy.AIMS)})})
    assert f"{figures.cases['elastichost'].mape_median:.1%}" in row.ours and (row.reached == "yes") is accuracy.reaches(
        figures
    )
    assert f"Optimus {figures.cases['optimus, cores fixed'].mape_median:.1%}" in fixed.others


def test_intervals_on_unseen_jobs_are_judged_by_every_job() -> None:
    def job(name: str, covered: float) -> coverage.JobCoverage:
        found = dict.fromkeys(coverage.COUNTS, coverage.Coverage(covered, 1.5))
        return coverage.JobCoverage(name, 2.5, found, found)

    def of(*covered: float) -> str:
        jobs = tuple(job(f"job-{number}", value) for number, value in enumerate(covered))
        return verdicts("coverage", coverage.Figures(jobs))[0]

    assert (of(0.9, 0.9), of(0.8, 1.0), of(0.8, 0.8)) == ("yes", "not each time", "**no**")


def stay_run(start: str, changes: int, until_s: float | None, final: float) -> stay.Stay:
    return stay.Stay("a world", start, "empty", 0, 100.0, changes, 0.9, until_s, final, 0.0, ("2x1",))


def test_runs_from_good_and_bad_plans_have_a_row_each() -> None:
    runs = [*[stay_run("best", 0, 0.0, 1.0)] * 9, stay_run("best", 1, 0.0, 1.0), stay_run("bad", 2, None, 0.8)]
    good, bad = rows_of({"stay": printed(stay.Figures(tuple(runs)))})
    assert (good.reached, good.ours, bad.ours) == ("once", "0.90; 1.00", "0.800, 0.800")
    assert rows_of({"stay": printed(stay.Figures((*runs, stay_run("best", 3, 0.0, 1.0))))})[0].reached == "**no**"


def test_real_runs_from_the_best_plan_are_shown_beside_runs_without_a_tuner() -> None:
    def row(start: str, history: str, changes: tuple[int, ...], slowest: tuple[float, ...]) -> stay_live.Row:
        return stay_live.Row(start, history, 2, 2, changes, slowest, (0.0, None), (1.0, 1.0), ("2x1", "2x1"))

    calm, wild = row("best", "empty", (0, 0), (0.9, 0.95)), row("best", "unlike", (0, 3), (0.9, 0.5))
    bad, alone = row("bad", "empty", (1, 1), (1.8, 1.9)), row("off", "empty", (0, 0), (0.7, 0.9))
    found = rows_of({"stay_live": printed(stay_live.Figures((calm, wild, bad, alone)))})
    assert [one.reached for one in found] == ["yes", "**no**"]
    assert [one.others for one in found] == ["without a tuner 0.80 (0.70-0.90)"] * 2


def test_search_has_rows_also_where_no_grid_was_recorded() -> None:
    worlds = tuple(one for one in SIMULATED if one.name == "server_bound")
    options = Options(seeds=1, rival_seeds=1, looks_s=30.0, lengths_s=(300.0,), worlds=worlds, arms=("elastichost",))
    figures = search.measure(options, ())
    assert [row.aim for row in rows_of({"search": printed(figures)})] == [">= 0.9", ">= 0.9", "<= 50 ms"]


def test_emulated_has_rows_for_what_was_measured() -> None:
    figures = emulated.Figures(
        emulated.ScaleOut(10, 60, 1.0, 2.0, 3.0),
        emulated.Steady(4.0, 60, 4, 900, 0.01, 0.2, 0.3, 0.2, {"worker": 1.0}, 0.1, 0, {"worker": 10**7}),
        (),
        (emulated.Tuned("server_bound", Configuration(1, 1), Configuration(4, 2), Configuration(4, 2), 1.0, 9.0, 4),),
    )
    assert verdicts("emulated", figures) == ["**no**", "once"]


@pytest.mark.thorough
def test_figures_of_a_quick_part_go_to_the_given_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in (results.PAGE, results.RESULTS, results.KEPT)}
    assert results.main(["--run", "real", "--quick"]) == 2 and "--into" in capsys.readouterr().err
    monkeypatch.setattr(real, "QUICK_SEEDS", 1)

    spawn = subprocess.run

    def run(command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
        """Runs a part in this process, which is faster. Commands that read facts of the machine are run normally."""
        if command[1:3] != ["-m", "benchmarks.tuner.real"]:
            return spawn(command, **how)
        code = real.main(command[3:])
        return subprocess.CompletedProcess(command, code, capsys.readouterr().out)

    monkeypatch.setattr(results.subprocess, "run", run)
    out = tmp_path / "out"
    assert results.main(["--run", "real", "--quick", "--into", str(out)]) == 0
    kept = json.loads((out / "results" / "real.json").read_bytes())
    assert kept["part"] == "real" and "Held-out error" in kept["tables"] and "models" in kept["figures"]
    assert "Held-out error" in (out / "tuner.md").read_text()
    assert "real runs: median" in (out / "RESULTS.md").read_text()
    assert (out / "tuner_real.png").exists()
    assert {path: path.stat().st_mtime_ns for path in before} == before
