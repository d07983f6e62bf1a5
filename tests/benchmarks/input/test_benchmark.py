"""The benchmark of the input: its cases, its grid, and the figures of its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.interleave import Measurement, Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.input import benchmark, figures
from benchmarks.input.arms import ArmSettings, Measured, grid, measure_auto, measure_fixed, speed_or_behind
from benchmarks.input.cases import CASES, Case, opened_case, served_case, write_files
from benchmarks.input.halved import halved
from benchmarks.input.live import LiveRun
from benchmarks.input.pipeline_run import Consumed, PipelineRun
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.settings import DataSettings
from elastichost.tuner.input.facts import InputTotals
from elastichost.wire.facts import InputKnobs

KNOBS = InputKnobs()


def arm_of(settings: DataSettings, *, is_remote: bool) -> ArmSettings:
    return ArmSettings(settings, is_remote, 1e6, 64 << 20, tune_s=1.5, window_s=0.3, cores=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write_files(made, 6_000)
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_can_be_read(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICHOST_CACHE", str(folder / "cache"))
    with opened_case(case, folder) as settings:
        run = PipelineRun(settings, InputKnobs(connections=4), 1e9)
        try:
            while not (found := run.consume(0.2)).samples:
                pass
        finally:
            run.close()
    assert found.totals.samples == found.samples
    assert run.control.knobs.connections == 4


def test_the_tuner_and_fixed_knobs_are_measured_within_their_memory(folder: Path) -> None:
    with opened_case(CASES[3], folder) as settings:
        arm = arm_of(settings, is_remote=True)
        for found in (measure_auto(arm), measure_fixed(arm, InputKnobs(8, 2, 4, 1 << 20, 1 << 16))):
            assert found.samples_per_s > 0 and found.over_bytes == 0


def test_the_bandwidth_halves_after_the_tuner_has_met_all_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factors: list[float] = []
    monkeypatch.setattr(SourceServer, "order", lambda server, order: factors.append(order.factor))
    case = CASES[5]
    with served_case(case, folder) as (server, settings):
        made = halved(case.name, arm_of(settings, is_remote=True), server, 1, 0.1, is_coarse=True, after_s=0.5)
        assert factors == [0.5], "the grid is measured at half of the bandwidth"
        made.arms["auto"](0)
        assert factors == [0.5, 1.0, 0.5]
        made.arms["exhaustive"](0)
        assert factors == [0.5, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("is_coarse", [True, False])
def test_the_grid_has_each_set_of_knobs_once_within_the_memory(is_coarse: bool) -> None:
    arm = ArmSettings(DataSettings("train", (), "parquet", (), (), ()), True, 1.0, 5000, 1.0, 1.0, 2)
    found = list(grid(arm, 1000, is_coarse=is_coarse))
    assert len(found) == len(set(found)) >= 9
    assert all(knobs.prefetch_bytes <= 5000 for knobs in found)
    assert {knobs.connections for knobs in found} >= {4, 16}


@pytest.mark.parametrize(("first", "is_behind"), [(300, True), (900, False)])
def test_knobs_that_are_behind_are_not_measured_to_the_end(first: int, is_behind: bool) -> None:
    times: list[float] = []

    def consume(seconds: float) -> Consumed:
        times.append(seconds)
        return Consumed(round(first * seconds) if len(times) == 1 else 0, seconds, InputTotals())

    speed, is_cut = speed_or_behind(consume, 3.0, best=1000.0)
    assert is_cut is is_behind
    assert sum(times) == pytest.approx(1.0 if is_behind else 3.0)
    assert speed == pytest.approx(first if is_behind else first / 3)


def outcome_of(**speeds: float) -> Outcome[Measured]:
    arms = {name: lambda number: Measured(0.0, KNOBS) for name in speeds}
    pairs = tuple(figures.ratio_to(name) for name in speeds if name != figures.AUTO)
    made = Benchmark("", arms, Rounds(1), (figures.SPEED, benchmark.OVER), pairs, case="a case")
    found = tuple(Measurement(name, 0, Measured(speed, KNOBS)) for name, speed in speeds.items())
    return Outcome(made, found)


def test_the_output_has_the_ratio_of_each_case_and_of_arms_that_were_measured_only() -> None:
    outcomes = [outcome_of(auto=90.0, exhaustive=100.0, rl=30.0)]
    assert benchmark.over(outcomes, figures.BEST) == {"a case": 0.9}
    assert benchmark.over(outcomes, benchmark.RL) == {"a case": 3.0}
    assert benchmark.over(outcomes, benchmark.TFDATA) is None
    assert benchmark.beyond_memory(outcomes) == 0


def test_the_output_of_whole_runs_has_the_best_of_the_fixed_connections() -> None:
    speeds = {figures.AUTO: 150.0, benchmark.OFF: 40.0, "4 connections": 155.0, "6 connections": 140.0}
    arms = {name: lambda number: LiveRun(0.0, 2) for name in speeds}
    made = Benchmark("", arms, Rounds(1), (benchmark.LIVE_SPEED, benchmark.WORKERS))
    found = Outcome(made, tuple(Measurement(name, 0, LiveRun(speed, 2)) for name, speed in speeds.items()))
    assert benchmark.live_figures(found) == {
        "auto": 150.0,
        "exhaustive_best": 155.0,
        "off": 40.0,
        "trainer_processes": 2.0,
    }
