"""The scenario of a job file: from its numbers, from a scenario's name, and slowed down."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulator.queueing.fork_join import simulate
from elastichost.config.job import JobSpec, load_job
from elastichost.emulation.costs import AUTOCORRELATION, scenario_of, slowed
from elastichost.emulation.scenarios import scenario
from elastichost.errors import ConfigError
from elastichost.tuner.facts import Configuration

EXAMPLE = Path(__file__).parents[2] / "examples" / "emulated.toml"


def job(*settings: str) -> JobSpec:
    """The example job with these settings."""
    return load_job(EXAMPLE, settings, environ={})


def test_the_numbers_of_the_job_file_are_the_costs_of_an_iteration() -> None:
    spec = job("train.batch_size=100", "emulate.compute_s=0.4", "emulate.server_s=0.04", "emulate.bytes=1000")
    found = scenario_of(spec)
    assert found.sample_s * 100 == pytest.approx(0.4)
    assert (found.pull_sample_s + found.push_sample_s) * 100 == pytest.approx(0.04)
    assert found.workload.dense_bytes == 500  # in each direction
    assert (found.compute_cov, found.autocorrelation, found.server_cov) == (0.1, AUTOCORRELATION, 0.0)
    assert not found.shares_host


def test_the_iteration_of_a_single_worker_takes_the_sum_of_its_costs() -> None:
    spec = job("emulate.noise=0", "emulate.compute_s=0.4", "emulate.serial_s=0.02", "emulate.server_s=0.04")
    seen = simulate(scenario_of(spec), Configuration(1, 1, 2, 1), 20, 1)
    iteration_s = 0.02 + 0.4 / 2 + 0.04 + 4e6 / 1.25e9 + 4 * 0.0005
    assert spec.train.batch_size / seen.samples_per_s == pytest.approx(iteration_s, rel=1e-6)


def test_a_named_scenario_keeps_its_costs_and_takes_the_jobs_batch_and_mode() -> None:
    spec = job("emulate.scenario=bounded_noisy", "train.mode=bounded", "train.staleness=7", "train.batch_size=512")
    found, named = scenario_of(spec), scenario("bounded_noisy")
    assert (found.workload.batch_size, found.workload.mode, found.staleness) == (512, "bounded", 7)
    assert (found.sample_s, found.overlap, found.compute_cov) == (named.sample_s, named.overlap, named.compute_cov)


@pytest.mark.parametrize("times", [0.5, 10.0])
def test_a_slowdown_multiplies_all_times_of_a_job(times: float) -> None:
    of = scenario("server_bound")
    configuration = Configuration(4, 2, 2, 1)
    plain, slow = (simulate(one, configuration, 50, 3) for one in (of, slowed(of, times)))
    assert slow.samples_per_s * times == pytest.approx(plain.samples_per_s, rel=1e-6)
    assert slow.compute_s == pytest.approx((plain.compute_s or 0) * times, rel=1e-6)


def test_a_scenario_that_cannot_be_emulated_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match='did you mean "server_bound"'):
        scenario_of(job("emulate.scenario=server_bond"))
    with pytest.raises(ConfigError, match="share the cores of one host"):
        scenario_of(job("emulate.scenario=direct_small_host"))
