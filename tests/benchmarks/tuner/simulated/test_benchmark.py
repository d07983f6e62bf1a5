"""The comparison of simulated policies is paired and reports its load."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import JobMix
from benchmarks.simulator.policy_registry import make_policy
from benchmarks.tuner.simulated import benchmark as simulated
from benchmarks.tuner.simulated.benchmark import Plan, loaded_jobs, run
from benchmarks.tuner.simulated.conditions.requests import KINDS
from benchmarks.tuner.simulated.plan import ABLATIONS, MIGRATION, NO_HEAT
from benchmarks.tuner.simulated.results import MISFIT, PARTS
from benchmarks.tuner.simulated.runs import play

MIX = JobMix(families=4, median_s=1200.0)
PLAN = Plan(policies=("static", "tuned"), seeds=3, jobs=8, hosts=4, mix=MIX, requests=("random",))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_arrive_as_densely_as_requested(seed: int) -> None:
    plan = msgspec.structs.replace(PLAN, jobs=30)
    jobs = loaded_jobs(plan, seed)
    found = simulate_jobs(jobs, make_policy("tuned", jobs, seed), plan.settings("tuned"), seed)
    assert 0.6 < found.busy_share < 0.8


@pytest.mark.thorough
def test_figures_are_paired_by_seed() -> None:
    found = run(PLAN)
    column = found.columns["random"]
    static, tuned = column.figures["static"], column.figures["tuned"]
    assert len(static) == len(tuned) == 3
    expected = np.exp(
        np.mean([np.log(b.completion_mean_s / a.completion_mean_s) for a, b in zip(static, tuned, strict=True)])
    )
    assert column.ratios["tuned"]["static"].mean == pytest.approx(expected)
    assert column.ratios["static"]["static"].high == 1.0
    assert column.best_rival == "tuned" and not found.decisions_by_size
    for one in (*static, *tuned):
        assert 0 < one.cpu_used <= 1 and 0 < one.memory_used <= 1 and 0 <= one.allocated <= 1
        assert one.events_per_s > 0 and one.completion_mean_s <= one.completion_p95_s
    again = run(PLAN)
    for name, rows in again.columns["random"].figures.items():
        assert [one.completion_mean_s for one in rows] == [one.completion_mean_s for one in column.figures[name]]


@pytest.mark.thorough
def test_the_last_line_is_json(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policies", "static,oracle", "--parts", "sizes", "--seeds", "1", "--jobs", "4", "--hosts", "2"]
    assert simulated.main([*arguments, "--sizes", "3", "--json"]) == 0
    *tables, last = capfd.readouterr().out.splitlines()
    assert any("mean JCT, s" in line for line in tables)
    found = json.loads(last)
    assert found["benchmark"] == "simulated" and found["machine"]["cores"] >= 1
    results = msgspec.convert(found["figures"], simulated.Results)
    assert set(results.columns) == {"random", "sensible", "tuned"}
    assert all(set(column.figures) == {"static", "oracle"} for column in results.columns.values())
    assert not results.is_for_tuning
    assert set(results.decisions_by_size["oracle"]) == {"3"}
    assert results.plan.moving == "same" and results.hot is None and not results.ablations


def test_tables_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policies", "static,tuned", "--parts", "policies", "--seeds", "1", "--jobs", "4", "--hosts", "2"]
    assert simulated.main([*arguments, "--moving", "own"]) == 0
    shown = capsys.readouterr().out
    assert "mean JCT, s" in shown and "moving: own" in shown and "70% of the cores" in shown
    assert "Requests: sensible, 1 seeds. Users ask for what a few short trials recommend" in shown
    assert "TUNING" not in shown


def test_tables_on_the_seeds_of_constants_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policies", "static,tuned", "--parts", "policies", "--seeds", "1", "--jobs", "3", "--hosts", "2"]
    assert simulated.main([*arguments, "--first-seed", "20", "--requests", "tuned"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("TUNING SEEDS") and "Requests: random" not in shown


def test_policies_that_follow_requests_are_simulated_with_each_kind() -> None:
    plan = msgspec.structs.replace(PLAN, seeds=1, jobs=5, requests=KINDS, policies=("static", "tuned", "oracle"))
    played = play(plan, 101)
    assert tuple(played) == KINDS
    assert all(kinds["tuned"] is played["random"]["tuned"] for kinds in played.values()), "it looks at no request"
    times = {kind: [job.completion_s for job in one["static"].result.jobs] for kind, one in played.items()}
    assert times["random"] != times["sensible"] != times["tuned"]
    assert times["tuned"] == [job.completion_s for job in played["tuned"]["tuned"].result.jobs]


def test_unknown_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated.main(["--parts", "weather"]) == 2
    assert "unknown part 'weather'" in capsys.readouterr().err
    assert simulated.main(["--requests", "modest"]) == 2
    assert "unknown requests 'modest'" in capsys.readouterr().err


@pytest.mark.thorough
def test_all_parts_of_our_policy() -> None:
    # every user asks for too little memory, so some jobs need more than their charge at admission
    mix = JobMix(families=2, median_s=900.0, memory_request=(0.5, 0.9))
    plan = msgspec.structs.replace(PLAN, policies=("static", "elastichost"), seeds=2, jobs=4, hosts=2, mix=mix)
    found = run(plan, parts=PARTS)
    assert set(found.columns) == {"random", MISFIT}
    for column in found.columns.values():
        assert set(column.figures) == set(column.ratios) == {"static", "elastichost"}, "arms are not policies"
    assert found.columns[MISFIT].misfit == 0.2 and found.columns[MISFIT].requests == "sensible"
    assert set(found.ablations) == set(ABLATIONS)
    assert found.care is not None and found.care.memory.count > 5
    assert found.care.memory.recall is not None and found.care.memory.recall.mean > 0.8, "charges follow the peaks"
    assert found.hot is not None and found.stragglers is not None
    if found.hot.jobs:
        assert 0.15 < found.hot.size < 0.45
        assert set(found.hot.over) == {"without hot servers", MIGRATION, NO_HEAT}
    assert set(found.stragglers.over) <= {"without health"}
    assert found.start is None, "no job arrives after twenty jobs have ended"


@pytest.mark.thorough
def test_several_processes_give_the_same_figures() -> None:
    plan = msgspec.structs.replace(PLAN, seeds=2, jobs=4)
    one, two = (run(plan, processes=processes) for processes in (1, 2))
    for name, rows in one.columns["random"].figures.items():
        for row, other in zip(rows, two.columns["random"].figures[name], strict=True):
            assert (row.completion_mean_s, row.memory_used, row.events) == (
                other.completion_mean_s,
                other.memory_used,
                other.events,
            )
    assert one.columns["random"].ratios == two.columns["random"].ratios


def test_stopping_systems_stop_if_the_plan_says_so() -> None:
    own = Plan(moving="own")
    assert own.settings("optimus").style.stops and not own.settings("dlrover_rm").style.stops
    assert not Plan().settings("optimus").style.stops
