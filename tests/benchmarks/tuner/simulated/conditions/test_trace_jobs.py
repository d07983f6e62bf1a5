"""A plan with a trace has the jobs of the trace, and no load of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulator.cluster.jobs import JobMix
from benchmarks.tuner.simulated import benchmark as simulated
from benchmarks.tuner.simulated.conditions.trace_jobs import TraceChoice, jobs_of_trace, period_for_load
from benchmarks.tuner.simulated.plan import Plan, loaded_jobs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "trace.csv"
    rows = "a,0,900,8\nb,40,600,16\nc,5000,700,8\nd,9000,650,24\n"
    found.write_text("job_id,submit_s,duration_s,cores\n" + rows)
    return found


def test_jobs_arrive_as_in_the_trace(path: Path) -> None:
    plan = Plan(jobs=3, hosts=2, mix=JobMix(families=2), trace=TraceChoice(str(path)))
    for load in (0.1, 0.9):
        assert [job.arrived_s for job in loaded_jobs(Plan(**{**plan_fields(plan), "load": load}), 1)] == [
            0.0,
            40.0,
            5000.0,
        ]
    jobs = loaded_jobs(plan, 1)
    assert period_for_load(jobs, 2, 0.5) == 0.0, "it has that load as it is"
    choice = TraceChoice(str(path), period_s=3600.0)
    limits = plan.settings("static").limits
    assert [job.arrived_s for job in jobs_of_trace(choice, 1, 4, plan.mix, limits)] == [0.0, 40.0, 1400.0, 1800.0]


def test_the_period_gives_the_load(tmp_path: Path) -> None:
    """200 jobs of 600 s and 8 cores, one every 100 s: about 48 cores at once."""
    path = tmp_path / "long.csv"
    path.write_text("job_id,submit_s,duration_s,cores\n" + "".join(f"{n},{100 * n},600,8\n" for n in range(200)))
    plan = Plan(jobs=200, mix=JobMix(families=2))
    limits = plan.settings("static").limits
    jobs = jobs_of_trace(TraceChoice(str(path)), 1, 200, plan.mix, limits)
    period_s = period_for_load(jobs, 960, 0.25)
    folded = jobs_of_trace(TraceChoice(str(path), period_s), 1, 200, plan.mix, limits)
    last_s = folded[-1].arrived_s
    asked = sum(8 * min(600.0, last_s - job.arrived_s) for job in folded)
    assert asked / last_s / 960 == pytest.approx(0.25, rel=0.1)
    assert 600 < period_s < 20_000


def plan_fields(plan: Plan) -> dict[str, object]:
    return {name: getattr(plan, name) for name in Plan.__struct_fields__}


def test_the_command_takes_a_trace_and_a_mix_of_hosts(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policies", "static", "--parts", "policies", "--seeds", "1", "--jobs", "4", "--hosts", "2"]
    assert simulated.main([*arguments, "--trace", str(path), "--trace-fold-h", "2", "--hosts-mix", "two"]) == 0
    shown = capsys.readouterr().out
    assert "arrivals of the trace trace.csv folded to 2.0 h" in shown and "32 cores of speed 0.8" in shown
