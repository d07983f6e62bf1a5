"""The benchmark of predictions: all cases on the same observations, figures that follow from its runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.tuner import accuracy
from benchmarks.tuner.accuracy import CASES, SEEN, Options, measure, runs_of
from elastichost.simulator.scenarios import grid, scenario
from elastichost.tuner.facts import as_array

TINY = Options(seeds=2, keep_every=16, iterations=200, scenarios=(scenario("server_bound"), scenario("hot_server")))


def test_tried_configurations_are_distinct_and_spread() -> None:
    candidates = as_array(grid(scenario("server_bound")))
    tried = accuracy._tried(candidates, np.random.default_rng(0))
    assert len(set(tried)) == SEEN
    assert set(tried) != set(accuracy._tried(candidates, np.random.default_rng(1)))
    spread = candidates[tried]
    assert spread[:, 0].max() / spread[:, 0].min() >= 8 and spread[:, 2].max() >= 4 > spread[:, 2].min()


def test_runs_are_the_same_for_the_same_seed_and_cover_every_case() -> None:
    first, second = list(runs_of(TINY.scenarios[0], TINY)), list(runs_of(TINY.scenarios[0], TINY))
    assert len(first) == TINY.seeds * len(CASES)
    assert [(run.case, run.mape, run.coverage) for run in first] == [
        (run.case, run.mape, run.coverage) for run in second
    ]
    assert first[0].mape != first[len(CASES)].mape  # another seed


def test_figures_show_what_each_part_is_worth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "Options", lambda **_: TINY)
    code = accuracy.main(["--quick", "--json"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures["runs"] == 4 and set(figures["by_scenario"]) == {"server_bound", "hot_server"}
    cases = {name: one["mape_median"] for name, one in figures["cases"].items()}
    assert set(cases) == {case.name for case in CASES}
    assert cases["elastichost"] < min(cases["dlrover_rm"], cases["optimus"], cases["pollux"])
    hot = figures["by_scenario"]["hot_server"]
    assert hot["elastichost"]["mape_median"] < hot["- hot share"]["mape_median"]
    assert cases["elastichost"] < cases["- maxima (sum)"]
    assert figures["fit_ms_median"] > 0 and code in (0, 1)


def test_the_table_has_a_line_for_every_case() -> None:
    text = "\n".join(accuracy._lines(measure(TINY)))
    assert all(case.name in text for case in CASES) and "131,072 predictions" in text
