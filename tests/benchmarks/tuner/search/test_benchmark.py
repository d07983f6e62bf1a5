"""The search benchmark: worlds with known speeds, reproducible runs, and figures that follow from them."""

from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import pytest

from benchmarks.tuner.recorded_grid import GridCase
from benchmarks.tuner.search import benchmark as search
from benchmarks.tuner.search import recorded_worlds as search_recorded
from benchmarks.tuner.search.arms import BayesianSearch, GaussianProcess, RandomSearch, Tuned
from benchmarks.tuner.search.course import Change, Policy, drive
from benchmarks.tuner.search.recorded_worlds import Recorded, recorded_worlds, window_cov
from benchmarks.tuner.search.runs import NEVER, NO_TIMERS, Options, Run, history, one_run, samples_of, settings_of
from benchmarks.tuner.search.simulated_worlds import SIMULATED, Simulated
from benchmarks.tuner.search.world import NEAR, Costs, Job, draw_family, draw_job
from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.policy.candidates import Bounds, contains
from elastichost.tuner.policy.profile import ProfileSample, log_error_of

CLUSTER, HOST = Simulated("server_bound"), Simulated("direct_small_host", host_cores=2)
TINY = Options(seeds=1, rival_seeds=1, looks_s=20.0, lengths_s=(1800.0,), worlds=(CLUSTER, HOST))


class Still(Policy):
    """A policy that never changes the configuration."""

    def look(self, look: ProfileSample, samples_left: int) -> Configuration | None:
        return None


def job_of(world: Simulated | Recorded, seed: int = 0) -> Job:
    return draw_job(draw_family(world, seed), 0, 0.03)


# --- worlds -----------------------------------------------------------------------------------------------------------


def test_worlds_are_of_all_kinds_and_each_has_its_name() -> None:
    assert len({one.name for one in SIMULATED}) == len(SIMULATED)
    assert {2, 16, 64} <= {one.host_cores for one in SIMULATED}
    for one in SIMULATED:
        assert contains(one.bounds, as_array([one.default])).all() or one.quota


def test_jobs_of_a_family_are_alike_and_not_equal() -> None:
    family = draw_family(CLUSTER, 3)
    first, second = draw_job(family, 0, 0.03), draw_job(family, 1, 0.03)
    apart = np.log(first.speeds / second.speeds)
    assert 0.0 < np.abs(apart).max() < 0.7
    assert draw_job(family, 0, 0.03).speeds.tolist() == first.speeds.tolist()
    dearer = draw_job(family, 0, 0.03, Costs(time=1.4))
    assert np.allclose(dearer.speeds * 1.4, first.speeds)


def test_the_best_plan_is_not_behind_and_some_plans_are_farther_than_near() -> None:
    job = job_of(HOST)
    assert job.behind(job.best) == pytest.approx(0.0, abs=1e-9)
    assert max(job.behind(Configuration(*row)) for row in job.space.astype(int).tolist()) > NEAR


def block(workers: int, servers: int, samples_per_s: float) -> Observation:
    timed = workers * 512 / samples_per_s
    return Observation(
        Configuration(workers, servers), samples_per_s, 0.02, 5.0, 100, compute_s=timed, worker_cpu_s=timed
    )


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """A world recorded in two rounds with 1 or 2 workers and 1 or 4 PS."""
    bounds = Bounds(Configuration(1, 1), Configuration(2, 4, 1), cores=2, oversubscription=2.0)
    speeds = {(1, 1): (100.0, 110.0), (2, 1): (180.0, 220.0), (1, 4): (90.0, 90.0), (2, 4): (200.0, 200.0)}
    blocks = tuple(block(w, p, speed) for (w, p), both in speeds.items() for speed in both)
    case = GridCase("small", "none.toml", {}, Workload(batch_size=512, host_cores=2), bounds, 2, blocks)
    monkeypatch.setattr(search_recorded, "_cases", lambda: {("grid-test", "small"): case})
    search_recorded._blocks.cache_clear()
    search_recorded._mean_log.cache_clear()
    return Recorded("grid-test", "small")


def test_the_truth_of_a_recorded_case_is_the_mean_of_its_rounds(recorded: Recorded) -> None:
    truth = recorded.truth(Costs())
    assert truth.speed(Configuration(1, 1)) == pytest.approx(math.sqrt(100 * 110))
    assert recorded.truth(Costs(time=2.0)).speed(Configuration(1, 1)) == pytest.approx(math.sqrt(100 * 110) / 2)
    assert recorded.default == Configuration(2, 1)
    assert truth.log_error == pytest.approx(math.sqrt((math.log(1.1) ** 2 + math.log(220 / 180) ** 2) / 2 / 2 / 4))
    with pytest.raises(KeyError, match="3 workers"):
        truth.speed(Configuration(3, 1))


def test_speeds_between_recorded_numbers_of_ps_are_interpolated(recorded: Recorded) -> None:
    truth = recorded.truth(Costs())
    assert truth.speed(Configuration(1, 2)) == pytest.approx(math.sqrt(math.sqrt(100 * 110) * 90))
    speeds = [truth.speed(Configuration(1, servers)) for servers in (1, 2, 3, 4)]
    assert speeds == sorted(speeds, reverse=True)
    assert truth.speeds(as_array([Configuration(1, servers) for servers in (1, 2, 3, 4)])).tolist() == speeds


def test_a_visit_gets_one_of_the_recorded_blocks(recorded: Recorded) -> None:
    truth, random = recorded.truth(Costs(time=2.0)), np.random.default_rng(0)
    met = [truth.met(Configuration(2, 1), random).speed for _ in range(20)]
    assert {round(one.samples_per_s) for one in met} == {90, 110}
    for one in met:
        assert one.compute_s == pytest.approx(2 * 512 / one.samples_per_s)
        assert one.reader_s == 0.0


def test_the_noise_of_windows_follows_from_the_error_of_a_block() -> None:
    random, cov, rho = np.random.default_rng(0), 0.2, 0.65
    found = []
    for _ in range(60):
        x = [random.standard_normal()]
        for _ in range(39):
            x.append(rho * x[-1] + math.sqrt(1 - rho * rho) * random.standard_normal())
        rates = tuple(float(one) for one in np.exp(cov * np.array(x)))
        found.append(window_cov(Observation(Configuration(1, 1), 1.0, log_error_of(rates), 20.0)))
    assert np.median(found) == pytest.approx(cov, rel=0.25)


def test_every_case_in_the_repository_is_a_world() -> None:
    for world in recorded_worlds():
        job = job_of(world)
        assert contains(world.bounds, as_array([world.default, job.best])).all()
        assert (job.speeds > 0).all() and 0.0 < job.family.cov < 1.0


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_with_the_best_plan_from_the_start_loses_nothing() -> None:
    job = job_of(HOST)
    course = drive(job, Still(), job.best, samples_of(job, 600.0), looks_s=60.0)
    assert course.final == job.best and len(course.visits) == 1
    assert course.seconds == pytest.approx(600.0, rel=0.05 + job.family.cov)


def test_a_run_is_the_same_for_the_same_seed() -> None:
    def told(run: Run) -> Run:
        return msgspec.structs.replace(run, decisions_s=())  # timings differ between runs

    first, second = (one_run(CLUSTER, "random", "elastichost", 1, TINY) for _ in range(2))
    assert told(first) == told(second)
    assert told(one_run(CLUSTER, "random", "elastichost", 2, TINY)) != told(first)


def test_changed_costs_affect_the_run_and_are_not_announced() -> None:
    job = job_of(HOST)
    slower = draw_job(job.family, 0, 0.03, Costs(time=2.0))
    samples = samples_of(job, 600.0)
    course = drive(job, Still(), job.best, samples, looks_s=60.0, change=Change(30.0, slower))
    unchanged = drive(job, Still(), job.best, samples, looks_s=60.0)
    assert course.seconds > 1.5 * unchanged.seconds


def test_without_timers_observations_have_no_times() -> None:
    job = job_of(CLUSTER)
    policy = Tuned(settings_of(CLUSTER))
    drive(job, policy, CLUSTER.default, samples_of(job, 600.0), looks_s=20.0, times=False)
    assert policy.state.observations
    assert all(one.compute_s is None and one.bytes_moved is None for one in policy.state.observations)
    assert one_run(CLUSTER, "default", NO_TIMERS, 0, TINY).arm == NO_TIMERS


@pytest.mark.parametrize("kind", [RandomSearch, BayesianSearch])
def test_rivals_stay_within_the_bounds_and_come_to_an_end(kind: type[RandomSearch] | type[BayesianSearch]) -> None:
    job = job_of(HOST, 1)
    settings = msgspec.structs.replace(settings_of(HOST), workload=job.truth.workload)
    policy = kind(settings, 1)
    course = drive(job, policy, HOST.default, samples_of(job, 7200.0), looks_s=400.0)
    assert contains(HOST.bounds, as_array([visit.configuration for visit in course.visits])).all()
    assert len({visit.configuration for visit in course.visits}) > 2
    assert course.final in {one.configuration for one in policy.observations}


def test_a_gaussian_process_goes_through_the_measured_values() -> None:
    seen = as_array([Configuration(workers, 1) for workers in (1, 2, 4, 8)])
    values = np.log(seen[:, 0])
    process = GaussianProcess(seen, values, np.full(4, 0.001))
    mean, deviation = process.at(seen)
    assert np.abs(mean - values).max() < 0.02
    assert (process.at(as_array([Configuration(1, 1, 8)]))[1] > deviation.max()).all()


def test_the_history_grows_by_one_job_at_a_time() -> None:
    family = draw_family(HOST, 0)
    assert history(family, 2, 15.0)[:1] == history(family, 1, 15.0)


# --- figures ----------------------------------------------------------------------------------------------------------


def run(tried: int, **changes: object) -> Run:
    one = Run(
        world=CLUSTER.name,
        start="default",
        arm="elastichost",
        seed=0,
        length_s=600.0,
        cov=0.1,
        tried=tried,
        until_s=10.0,
        behind=0.0 if tried < NEVER else 0.2,
        doubt=0.0,
        over=0.1,
        lowest=1.0,
        violations=0,
        trials=4,
        changes=5,
        accuracy={},
        start_speed=0.5,
        decisions_s=(0.01,),
    )
    return msgspec.structs.replace(one, **changes)


def test_runs_that_never_come_near_count_as_such() -> None:
    found = search.summary_of([run(2), run(7), run(NEVER), run(9)], 7)
    assert found.soon.value == 0.5
    assert found.near.value == found.nearly.value == 0.75
    assert search.summary_of([run(NEVER, doubt=0.16)], 7).nearly.value == 1.0
    assert found.tried_p90.value == NEVER
    assert found.soon.low <= 0.5 <= found.soon.high


def test_violations_are_counted_by_trial_and_by_run() -> None:
    found = search.summary_of([run(2, violations=2), run(2)], 7)
    assert found.violations.value == 0.25
    assert found.violating.value == 0.5


def test_an_interval_of_one_value_is_that_value() -> None:
    share = search.share_of([3.0], lambda rows: rows.mean(axis=1))
    assert (share.value, share.low, share.high) == (3.0, 3.0, 3.0)


def test_the_benchmark_prints_tables_and_one_json_object_if_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = msgspec.structs.replace(TINY, worlds=(HOST,), arms=("elastichost", "random"))
    monkeypatch.setattr(search, "_options", lambda is_quick: tiny)
    assert search.main(["--quick", "--json"]) in (0, 1)
    *tables, last = capsys.readouterr().out.splitlines()
    said = json.loads(last)
    figures = said["figures"]
    assert said["benchmark"] == "search" and "machine" in said and any("cold starts" in line for line in tables)
    assert set(figures["cold"]) == {"elastichost", "random"} and set(figures["warm"]) == {"elastichost"}
    assert figures["cold"]["elastichost"]["runs"] == 2
    assert figures["decisions"] > 0 and {one["what"] for one in figures["drifts"]} == {"all 1.4", "PS 2.5", "nothing"}
    search.main(["--quick"])
    shown = capsys.readouterr().out
    assert "cold starts" in shown and "random" in shown and HOST.name in shown and "{" not in shown
