"""The comparison of policies is paired, and says what load it had."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from benchmarks.tuner import simulated
from benchmarks.tuner.simulated import Plan, bootstrap, loaded_jobs, run
from elastichost.simulator.engine import simulate_jobs
from elastichost.simulator.jobs import Mix
from elastichost.simulator.policies.registry import make_policy

PLAN = Plan(policies=("static", "tuned"), seeds=3, jobs=8, hosts=4, mix=Mix(families=4, median_s=1200.0))


def test_bootstrap() -> None:
    values = np.random.default_rng(0).normal(5.0, 1.0, 400)
    found = bootstrap(values)
    assert found.mean == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 / 20, rel=0.15)
    same = bootstrap(np.full(20, 3.0))
    assert (same.low, same.mean, same.high) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_come_as_densely_as_asked(seed: int) -> None:
    plan = msgspec.structs.replace(PLAN, jobs=30)
    jobs = loaded_jobs(plan, seed)
    found = simulate_jobs(jobs, make_policy("tuned", jobs, seed), plan.settings("tuned"), seed)
    assert 0.6 < found.busy_share < 0.8


def test_figures_are_paired_by_seed() -> None:
    found = run(PLAN)
    static, tuned = found.figures["static"], found.figures["tuned"]
    assert len(static) == len(tuned) == 3
    expected = np.exp(
        np.mean([np.log(b.completion_mean_s / a.completion_mean_s) for a, b in zip(static, tuned, strict=True)])
    )
    assert found.ratios["tuned"]["static"].mean == pytest.approx(expected)
    assert found.ratios["static"]["static"].high == 1.0
    assert found.best_rival == "static" and not found.decisions_by_size
    for one in (*static, *tuned):
        assert 0 < one.cpu_used <= 1 and 0 < one.memory_used <= 1 and 0 <= one.allocated <= 1
        assert one.events_per_s > 0 and one.completion_mean_s <= one.completion_p95_s
    again = run(PLAN)
    for name, rows in again.figures.items():
        assert [one.completion_mean_s for one in rows] == [one.completion_mean_s for one in found.figures[name]]


def test_one_json_object_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    simulated.main(
        ["--policies", "static,oracle", "--seeds", "1", "--jobs", "4", "--hosts", "2", "--sizes", "3", "--json"]
    )
    found = json.loads(capfd.readouterr().out)
    assert found["benchmark"] == "tuner-simulated"
    results = found["results"]
    assert set(results["figures"]) == {"static", "oracle"}
    assert set(results["decisions_by_size"]["oracle"]) == {"3"}
    assert results["plan"]["moving"] == "same"


def test_tables_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    simulated.main(["--policies", "static,tuned", "--seeds", "1", "--jobs", "4", "--hosts", "2", "--moving", "own"])
    shown = capsys.readouterr().out
    assert "mean JCT, s" in shown and "moving: own" in shown and "70% of them" in shown


def test_stopping_systems_stop_when_told_to() -> None:
    own = Plan(moving="own")
    assert own.settings("optimus").style.stops and not own.settings("dlrover_rm").style.stops
    assert not Plan().settings("optimus").style.stops
