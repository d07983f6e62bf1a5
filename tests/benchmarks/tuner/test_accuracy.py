"""The accuracy benchmark: all cases get the same observations, and the figures follow from its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.simulator.queueing.configuration_grid import grid
from benchmarks.tuner import accuracy
from benchmarks.tuner.accuracy import CASES, LIKE_JOBS, SEEN, Options, measure, runs_of
from elastichost.emulation.scenarios import SCENARIOS, Scenario, scenario
from elastichost.tuner.facts import Configuration, as_array

TINY = Options(seeds=2, keep_every=16, iterations=200, scenarios=(scenario("server_bound"), scenario("hot_server")))


def test_tried_configurations_are_distinct_and_spread() -> None:
    candidates = as_array(grid(scenario("server_bound")))
    tried = accuracy._tried(candidates, np.random.default_rng(0))
    assert len(set(tried)) == SEEN
    assert set(tried) != set(accuracy._tried(candidates, np.random.default_rng(1)))
    spread = candidates[tried]
    assert spread[:, 0].max() / spread[:, 0].min() >= 8 and spread[:, 2].max() >= 4 > spread[:, 2].min()


def test_history_is_of_other_jobs_or_other_runs_than_those_that_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, observed = TINY.scenarios[0], []
    observe = accuracy._observe

    def watched(of: Scenario, configurations: Sequence[Configuration], random: np.random.Generator) -> Any:
        observed.append((of, observe(of, configurations, random)))
        return observed[-1][1]

    monkeypatch.setattr(accuracy, "_observe", watched)
    list(runs_of(judged, Options(1, 16, 200, (judged,))))
    (_, seen), *earlier = observed[: 2 + LIKE_JOBS]
    others = [of for of, _ in earlier if of != judged]
    assert len(others) == LIKE_JOBS, "similar jobs besides the job itself"
    for name in ("sample_s", "pull_sample_s"):
        assert len({getattr(of, name) for of in (judged, *others)}) == LIKE_JOBS + 1, "costs differ"
    assert {of.workload for of in others} == {judged.workload}
    speeds = {one.samples_per_s for one in seen}
    assert not any(one.samples_per_s in speeds for _, more in earlier for one in more)


def test_differing_similar_jobs_give_a_wider_prior_than_the_job_itself() -> None:
    judged, random = TINY.scenarios[0], np.random.default_rng(0)
    space = accuracy.space_of(judged, grid(judged)[::8], 200)
    others = accuracy.prior_of(judged, [accuracy.like(judged, random) for _ in range(LIKE_JOBS)], space, random)
    itself = accuracy.prior_of(judged, [judged], space, random)
    assert set(others.mean) == set(itself.mean) and others.mean != itself.mean
    assert max(others.sd[name] / itself.sd[name] for name in itself.sd) > 1.5, "the costs of similar jobs differ"


def test_with_cores_fixed_only_workers_and_ps_vary() -> None:
    for one in SCENARIOS:
        found = as_array(accuracy.cores_fixed(one))
        assert len(found) > 2 * SEEN
        assert len(np.unique(found[:, 2:], axis=0)) == 1 and (np.ptp(found[:, :2], axis=0) > 0).all()


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
