"""The fit of the `elastichost` model: warm and cold starts, determined directions, errors, and arbitrary input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.queueing.configuration_grid import grid
from benchmarks.simulator.queueing.fork_join import simulate, throughputs
from elastichost.emulation.scenarios import Scenario, scenario
from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.base import Prior
from elastichost.tuner.models.queueing import QueueingSettings, fit
from tests.effort import examples

SERVED = scenario("server_bound").workload
TRIED = (
    Configuration(1, 1),
    Configuration(8, 2, 2, 1),
    Configuration(32, 16, 8, 8),
    Configuration(4, 1, 4, 4),
    Configuration(16, 3, 1, 2),
    Configuration(32, 2, 2, 2),
    Configuration(2, 8, 8, 1),
    Configuration(24, 12, 4, 1),
)


def observed(of: Scenario, tried: Sequence[Configuration] = TRIED, error: float = 0.02) -> list[Observation]:
    found = [simulate(of, one, max(30, 400 // one.workers), index) for index, one in enumerate(tried)]
    return [msgspec.structs.replace(one, log_error=error) for one in found]


def silent(observation: Observation) -> Observation:
    """The observation without its timings."""
    speed = Observation(observation.configuration, observation.samples_per_s, observation.log_error)
    return msgspec.structs.replace(speed, hot_share=observation.hot_share)


def held_out_error(of: Scenario, fitted: object) -> float:
    some = grid(of)[::16]
    found = fitted.predict(as_array(some)).samples_per_s  # type: ignore[attr-defined]
    return float(np.mean(np.abs(found / throughputs(of, some, 600, 0) - 1.0)))


@pytest.mark.parametrize("name", ["server_bound", "hot_server", "sync_stragglers", "bounded_noisy", "reader_bound"])
def test_eight_configurations_predict_hundreds(name: str) -> None:
    of = scenario(name)
    fitted = fit(of.workload, observed(of))
    assert held_out_error(of, fitted) < 0.10
    assert fitted.observations == fitted.configurations == 8


@pytest.mark.parametrize("name", ["direct_small_host", "served_small_host"])
def test_shared_hosts_are_predicted_too(name: str) -> None:
    of = scenario(name)
    tried = [
        Configuration(*one) for one in ((1, 1), (8, 1), (2, 2, 4), (1, 1, 8), (12, 4), (3, 1, 2, 2), (5, 3, 3), (6, 2))
    ]
    assert held_out_error(of, fit(of.workload, observed(of, tried))) < 0.10


def test_timings_determine_their_parameters() -> None:
    of = scenario("server_bound")
    fitted = fit(of.workload, observed(of))
    assert fitted.parameters["server_sample_s"] == pytest.approx(9e-6, rel=0.1)
    assert 0.0 <= fitted.parameters["overlap"] <= 1.0 and 1.0 <= fitted.parameters["sharpness"] <= 10.0
    assert fitted.predict(as_array([TRIED[0]])).samples_per_s[0] == pytest.approx(
        observed(of)[0].samples_per_s, rel=0.05
    )


def test_direct_timings_determine_directions_that_speeds_do_not() -> None:
    full = observed(scenario("server_bound"), TRIED[:2])
    with_timings, without = fit(SERVED, full), fit(SERVED, [silent(one) for one in full])
    assert without.rank <= 2 < with_timings.rank <= with_timings.parameters_total
    switched_off = fit(SERVED, full, settings=QueueingSettings(direct_timings=False))
    candidates = as_array(grid(scenario("server_bound"))[::50])
    np.testing.assert_array_equal(
        switched_off.predict(candidates).samples_per_s, without.predict(candidates).samples_per_s
    )
    narrow, wide = with_timings.predict(candidates).log_error, without.predict(candidates).log_error
    assert np.max(narrow) < 0.4 * np.max(wide)


# --- priors -----------------------------------------------------------------------------------------------------------


def test_without_observations_and_history_the_interval_is_very_wide() -> None:
    fitted = fit(SERVED, [])
    found = fitted.predict(as_array(TRIED))
    assert (found.samples_per_s > 0).all() and np.isfinite(found.samples_per_s).all()
    assert (found.high / found.low > 10).all() and found.is_extrapolated.all()
    assert (fitted.rank, fitted.observations, fitted.configurations) == (0, 0, 0)
    assert fitted.confidence < 0.1


def test_a_warm_start_predicts_without_measurements() -> None:
    of = scenario("server_bound")
    history = fit(of.workload, observed(of)).posterior()
    warm = fit(of.workload, [], history)
    assert held_out_error(of, warm) < 0.15
    found = warm.predict(as_array(TRIED))
    assert not found.is_extrapolated.any()
    assert warm.confidence > 0.6 and (found.high / found.low < 4).all()


def test_measurements_outweigh_the_history_of_a_different_job() -> None:
    of, other = scenario("server_bound"), scenario("compute_bound")
    misled = fit(of.workload, observed(of), fit(other.workload, observed(other)).posterior())
    assert held_out_error(of, misled) < 0.25
    # a history that no data contradict is used
    hint = Prior(mean={"server_sample_s": math.log(9e-6)}, sd={"server_sample_s": 0.05})
    found = fit(of.workload, [silent(one) for one in observed(of)[:1]], hint)
    assert found.parameters["server_sample_s"] == pytest.approx(9e-6, rel=0.1)


def test_a_posterior_is_never_narrower_than_jobs_differ() -> None:
    prior = fit(SERVED, observed(scenario("server_bound")) * 5).posterior()
    assert set(prior.mean) == set(prior.sd) and min(prior.sd.values()) >= 0.05


def test_times_scale_with_the_job() -> None:
    """If all times are ten times as long, all speeds are a tenth, also without history."""
    times = ("compute_s", "reader_s", "exchange_s", "server_cpu_s", "worker_cpu_s")
    first = observed(scenario("unpipelined"))
    slow = []
    for one in first:
        changes = {name: 10 * value for name in times if (value := getattr(one, name)) is not None}
        slow.append(msgspec.structs.replace(one, samples_per_s=one.samples_per_s / 10, **changes))
    workload = scenario("unpipelined").workload
    slowed = msgspec.structs.replace(workload, bandwidth_bytes_per_s=workload.bandwidth_bytes_per_s / 10)
    candidates = as_array(grid(scenario("unpipelined"))[::40])
    fast_found, slow_found = fit(workload, first).predict(candidates), fit(slowed, slow).predict(candidates)
    np.testing.assert_allclose(10 * slow_found.samples_per_s, fast_found.samples_per_s, rtol=1e-3)
    np.testing.assert_allclose(slow_found.log_error, fast_found.log_error, rtol=1e-2)


# --- errors of predictions --------------------------------------------------------------------------------------------


def test_unobserved_directions_are_extrapolated_until_a_prior_determines_them() -> None:
    of = scenario("compute_bound")
    only_workers = [Configuration(workers, 2, 1, 2) for workers in (1, 2, 4, 8)]
    seen = [silent(one) for one in observed(of, only_workers)]
    cold = fit(of.workload, seen)
    near, far = as_array([Configuration(6, 2, 1, 2)]), as_array([Configuration(6, 2, 8, 2)])
    assert not cold.predict(near).is_extrapolated.any()
    assert cold.predict(far).is_extrapolated.all()
    assert cold.predict(far).log_error[0] > 3 * cold.predict(near).log_error[0]
    warm = fit(of.workload, seen, fit(of.workload, observed(of)).posterior())
    assert not warm.predict(far).is_extrapolated.any()


def test_intervals_have_their_nominal_coverage() -> None:
    inside = []
    for name in ("server_bound", "network_bound", "bounded_noisy", "compute_bound"):
        of = scenario(name)
        some = grid(of)[5::24]
        truth = throughputs(of, some, 600, 0)
        for seed in range(3):
            generator = np.random.default_rng(seed)
            tried = [grid(of)[index] for index in generator.choice(768, 10, replace=False)]
            seen = [
                msgspec.structs.replace(one, samples_per_s=one.samples_per_s * math.exp(0.05 * generator.normal()))
                for one in observed(of, tried, error=0.05)
            ]
            found = fit(of.workload, seen).predict(as_array(some))
            inside.append(np.mean((found.low <= truth) & (truth <= found.high)))
    assert 0.82 <= np.mean(inside) <= 0.995


def test_more_observations_reduce_the_errors() -> None:
    of = scenario("server_bound")
    fits = [fit(of.workload, observed(of)[:count]) for count in (0, 1, 3, 8)]
    candidates = as_array(grid(of)[::30])
    spreads = [float(np.median(one.predict(candidates).log_error)) for one in fits]
    assert spreads == sorted(spreads, reverse=True)
    assert [one.confidence for one in fits] == sorted(one.confidence for one in fits)


# --- the busiest PS ---------------------------------------------------------------------------------------------------


def test_a_hot_server_stays_hot_with_any_number_of_servers() -> None:
    of = scenario("hot_server")
    fitted = fit(of.workload, observed(of))
    blind = fit(of.workload, observed(of), settings=QueueingSettings(hot_share=False))
    assert held_out_error(of, fitted) < 0.5 * held_out_error(of, blind)
    # the effect of rebalancing; the last observation has 12 PS
    many = as_array([Configuration(32, 12, 8, 1)])
    assert fitted.predict(many, hot_share=1 / 12).samples_per_s[0] > 2 * fitted.predict(many).samples_per_s[0]
    assert fitted.predict(many, hot_share=0.9).samples_per_s[0] < 0.5 * fitted.predict(many).samples_per_s[0]


def test_with_direct_access_the_number_of_ps_has_no_effect() -> None:
    """With direct access one PS owns the dense vector, and the requests of PS are not counted."""
    workload = Workload(512, host_cores=2, dense_bytes=100_000, row_bytes=1664)
    timings = {"compute_s": 2.5e-3, "reader_s": 0.6e-3, "exchange_s": 0.5e-3, "server_cpu_s": 0.5e-3}
    seen = [Observation(Configuration(2, 1), 320_000.0, 0.03, worker_cpu_s=2.6e-3, **timings)]
    for workers in (1, 2, 4):
        found = fit(workload, seen).predict(as_array([Configuration(workers, servers) for servers in (1, 2, 4)]))
        assert np.ptp(np.log(found.samples_per_s)) < 0.03


# --- any input --------------------------------------------------------------------------------------------------------

configurations = st.builds(
    Configuration, st.integers(1, 64), st.integers(1, 32), st.integers(1, 16), st.integers(1, 16)
)
seconds = st.one_of(st.none(), st.floats(1e-9, 1e3), st.just(0.0))
observations = st.builds(
    Observation,
    configuration=configurations,
    samples_per_s=st.floats(1e-3, 1e9),
    log_error=st.floats(0.0, 1.0),
    hot_share=st.one_of(st.none(), st.floats(0.0, 1.0)),
    compute_s=seconds,
    reader_s=seconds,
    exchange_s=seconds,
    server_cpu_s=seconds,
    worker_cpu_s=seconds,
    bytes_moved=st.one_of(st.none(), st.floats(0.0, 1e12)),
)
workloads = st.builds(
    Workload,
    batch_size=st.integers(1, 10**6),
    mode=st.sampled_from(["async", "bounded", "sync"]),
    access=st.sampled_from(["direct", "served"]),
    host_cores=st.sampled_from([0, 2, 64]),
    dense_bytes=st.sampled_from([0, 10**6]),
    row_bytes=st.sampled_from([0, 1664]),
    bandwidth_bytes_per_s=st.sampled_from([0.0, 1e9]),
)


@settings(deadline=None, max_examples=examples(80))
@given(workload=workloads, seen=st.lists(observations, max_size=6), times=st.integers(1, 3))
def test_every_valid_observation_can_be_fitted(workload: Workload, seen: list[Observation], times: int) -> None:
    """Few, repeated and contradicting observations give finite numbers, never nan."""
    fitted = fit(workload, seen * times)
    found = fitted.predict(as_array(TRIED))
    for column in (found.samples_per_s, found.low, found.high, found.log_error):
        assert np.isfinite(column).all() and (column >= 0).all()
    assert (found.low <= found.samples_per_s).all() and (found.samples_per_s <= found.high).all()
    assert 0.0 <= fitted.confidence <= 1.0 and 0 <= fitted.rank <= fitted.parameters_total
    prior = fitted.posterior()
    assert all(math.isfinite(value) for value in (*prior.mean.values(), *prior.sd.values()))
    assert np.isfinite(fit(workload, [], prior).predict(as_array(TRIED)).samples_per_s).all()


def test_the_same_observations_give_the_same_fit_in_any_order() -> None:
    seen = observed(scenario("server_bound"))
    seen = [msgspec.structs.replace(one, at_s=float(number)) for number, one in enumerate(seen)]
    first, second = fit(SERVED, seen), fit(SERVED, seen[::-1])
    candidates = as_array(TRIED)
    np.testing.assert_allclose(
        first.predict(candidates).samples_per_s, second.predict(candidates).samples_per_s, rtol=1e-6
    )


def test_predictions_do_not_depend_on_the_number_of_configurations() -> None:
    fitted = fit(SERVED, observed(scenario("server_bound")))
    many = np.repeat(as_array(TRIED), 3000, axis=0)
    found, alone = fitted.predict(many), fitted.predict(as_array(TRIED))
    np.testing.assert_allclose(found.samples_per_s.reshape(8, 3000)[:, 0], alone.samples_per_s, rtol=1e-12)
    np.testing.assert_allclose(found.log_error.reshape(8, 3000)[:, -1], alone.log_error, rtol=1e-9)
    assert len(fitted.predict(np.empty((0, 4))).samples_per_s) == 0


def test_variances_agree_with_the_posterior() -> None:
    """The decomposition into directions adds up to j Sigma j'."""
    of = scenario("server_bound")
    history = fit(scenario("compute_bound").workload, observed(scenario("compute_bound"))).posterior()
    fitted = fit(of.workload, observed(of), history)
    wide = fitted.predict(as_array(TRIED)).log_error / fitted.factor
    sampled = np.random.default_rng(0).multivariate_normal(
        fitted.estimate.theta, 1e-4 * fitted.estimate.covariance, 1500
    )
    logs = []
    for theta in sampled:
        estimate = dataclasses.replace(fitted.estimate, theta=theta)
        logs.append(np.log(dataclasses.replace(fitted, estimate=estimate).predict(as_array(TRIED)).samples_per_s))
    deviation = 100 * np.std(logs, axis=0)
    np.testing.assert_allclose(np.sqrt(deviation**2 + fitted.estimate.discrepancy[0] ** 2), wide, rtol=0.08)
