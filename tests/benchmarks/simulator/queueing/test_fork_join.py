"""The queue simulator against known results: sums, saturation, the slowest of many workers, shared cores."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.queueing import queues
from benchmarks.simulator.queueing.configuration_grid import grid
from benchmarks.simulator.queueing.fork_join import _costs, simulate, throughputs
from elastichost.emulation.scenarios import SCENARIOS, Scenario
from elastichost.tuner.facts import Configuration, Workload
from tests.effort import examples

SERVED = Workload(batch_size=1000, access="served", row_bytes=400, dense_bytes=100_000, bandwidth_bytes_per_s=1e9)
SURE = Scenario(  # nothing varies
    name="sure",
    workload=SERVED,
    overlap="nothing",
    serial_s=2e-3,
    sample_s=20e-6,
    compute_cov=0.0,
    pull_sample_s=2e-6,
    push_sample_s=4e-6,
    request_s=100e-6,
    server_cov=0.0,
    latency_s=500e-6,
)


def but(scenario: Scenario, **changes: object) -> Scenario:
    """The scenario with other values of some fields."""
    return msgspec.structs.replace(scenario, **changes)


@pytest.mark.thorough
def test_one_worker_takes_the_sum_of_its_parts() -> None:
    found = simulate(SURE, Configuration(1, 1), 50, 0)
    compute_s = 2e-3 + 1000 * 20e-6
    wire_s = (1000 * 400 + 100_000) / 1e9
    exchange_s = 4 * 500e-6 + 2 * 100e-6 + 1000 * 6e-6 + 2 * wire_s
    assert found.samples_per_s == pytest.approx(1000 / (compute_s + exchange_s))
    assert found.compute_s == pytest.approx(compute_s)
    assert found.exchange_s == pytest.approx(exchange_s)
    assert found.server_cpu_s == pytest.approx(2 * 100e-6 + 1000 * 6e-6)
    assert found.worker_cpu_s == pytest.approx(compute_s)
    assert found.bytes_moved == pytest.approx(2 * (1000 * 400 + 100_000))
    assert found.hot_share == 1.0


def test_requests_go_to_all_servers_at_once_and_a_worker_waits_for_the_hottest() -> None:
    found = simulate(but(SURE, skew=0.25), Configuration(1, 4), 50, 0)
    share = 0.25 + 0.75 / 4
    wire_s = (1000 * 400 + 100_000) * share / 1e9
    assert found.exchange_s == pytest.approx(4 * 500e-6 + 2 * 100e-6 + 1000 * 6e-6 * share + 2 * wire_s)
    assert found.server_cpu_s == pytest.approx(4 * 2 * 100e-6 + 1000 * 6e-6)
    assert found.hot_share == pytest.approx((2 * 100e-6 + 6e-3 * share) / (8 * 100e-6 + 6e-3))


def test_more_cores_compute_faster_up_to_the_parallel_cores() -> None:
    scenario = but(SURE, parallel_cores=4, thread_loss=0.1)
    found = [simulate(scenario, Configuration(1, 1, cores), 20, 0) for cores in (1, 4, 8)]
    assert found[0].compute_s == pytest.approx(22e-3)
    assert found[1].compute_s == pytest.approx(2e-3 + 20e-3 * 1.3 / 4)
    assert found[2].compute_s == found[1].compute_s
    assert found[1].worker_cpu_s == pytest.approx(2e-3 + 20e-3 * 1.3)


def test_a_worker_does_not_wait_for_exchanges_that_overlap() -> None:
    compute_s, wire_s = 22e-3, 0.5e-3
    pull_s, push_s = 1e-3 + 100e-6 + 2e-3 + wire_s, 1e-3 + 100e-6 + 4e-3 + wire_s
    expected = {"nothing": compute_s + pull_s + push_s, "pulls": compute_s + push_s, "both": compute_s}
    for overlap, seconds in expected.items():
        found = simulate(but(SURE, overlap=overlap), Configuration(1, 1), 100, 0)
        assert found.samples_per_s == pytest.approx(1000 / seconds, rel=1e-3), overlap


def test_a_reader_that_is_slower_than_computing_sets_the_pace() -> None:
    found = simulate(but(SURE, overlap="both", reader_sample_s=50e-6, reader_cov=0.0), Configuration(3, 2), 60, 0)
    assert found.samples_per_s == pytest.approx(3 / 50e-6, rel=1e-2)
    assert found.reader_s == pytest.approx(50e-3)


def test_servers_serve_no_more_than_their_cores_can() -> None:
    busy = but(SURE, pull_sample_s=10e-6, push_sample_s=20e-6, server_cov=1.0)
    for server_cores in (1, 2):
        found = simulate(busy, Configuration(24, 2, 1, server_cores), 60, 0)
        of_each_s = 2 * 100e-6 + 1000 * 30e-6 / 2  # core-seconds of an iteration at each PS
        assert found.samples_per_s == pytest.approx(1000 * server_cores / of_each_s, rel=0.03)


def test_a_link_carries_no_more_than_its_bandwidth() -> None:
    thin = but(SURE, workload=msgspec.structs.replace(SERVED, bandwidth_bytes_per_s=1e8))
    found = simulate(thin, Configuration(24, 3, 1, 4), 60, 0)
    each_way = (1000 * 400 + 100_000) / 3
    assert found.samples_per_s == pytest.approx(1000 * 1e8 / each_way, rel=0.02)


@settings(max_examples=examples(40), deadline=None)
@given(
    workers=st.integers(1, 12),
    servers=st.integers(1, 5),
    server_cores=st.integers(1, 3),
    overlap=st.sampled_from(["nothing", "pulls", "both"]),
    server_s=st.floats(1e-6, 1e-4),
    seed=st.integers(0, 1000),
)
def test_no_bound_of_a_closed_network_is_exceeded(
    workers: int, servers: int, server_cores: int, overlap: str, server_s: float, seed: int
) -> None:
    """X <= min(w / compute, cores / demand, links), within the variation of a finite run. The speed is not below that
    of workers that exchange one after the other."""
    scenario = but(SURE, overlap=overlap, push_sample_s=server_s, compute_cov=0.1)
    found = simulate(scenario, Configuration(workers, servers, 1, server_cores), 100, seed)
    compute_s, demand_s = 22e-3, (2 * 100e-6 + 1000 * (2e-6 + server_s) / servers)
    wire_s = (1000 * 400 + 100_000) / servers / 1e9
    fastest = 1000 * min(workers / compute_s, server_cores / demand_s, 1 / wire_s)
    alone_s = compute_s + demand_s + 2 * wire_s + 4 * 500e-6
    slowest = 1000 * workers / (alone_s + (workers - 1) * (demand_s + 2 * wire_s))
    assert 0.97 * slowest <= found.samples_per_s <= 1.05 * fastest


def test_a_synchronous_step_takes_as_long_as_its_slowest_worker() -> None:
    workload = Workload(batch_size=8000, mode="sync", access="served")
    scenario = but(SURE, workload=workload, compute_cov=0.5, latency_s=0.0, request_s=0.0, serial_s=0.0)
    scenario = but(scenario, pull_sample_s=0.0, push_sample_s=0.0)
    found = simulate(scenario, Configuration(8, 1), 2000, 3)
    sigma = math.sqrt(math.log1p(0.25))
    draws = np.random.default_rng(0).standard_normal((200_000, 8))
    slowest = 20e-3 * np.exp(sigma * draws - sigma**2 / 2).max(axis=1).mean()
    assert 8000 / found.samples_per_s == pytest.approx(slowest, rel=0.02)
    assert found.compute_s == pytest.approx(20e-3, rel=0.02)
    assert found.iterations == 2000


def test_workers_that_may_be_further_ahead_wait_less() -> None:
    def speed(mode: str, staleness: int) -> float:
        workload = msgspec.structs.replace(SERVED, mode=mode)
        scenario = but(SURE, workload=workload, staleness=staleness, compute_cov=0.8)
        return simulate(scenario, Configuration(8, 4), 300, 1).samples_per_s

    speeds = [speed("bounded", 0), speed("bounded", 2), speed("bounded", 50), speed("async", 0)]
    assert speeds[0] < 0.9 * speeds[1] < 0.95 * speeds[2]
    assert speeds[2] == pytest.approx(speeds[3], rel=0.02)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_no_worker_computes_further_ahead_than_is_allowed(staleness: int) -> None:
    workload = msgspec.structs.replace(SERVED, mode="bounded")
    scenario = but(SURE, workload=workload, staleness=staleness, compute_cov=1.5)
    costs = _costs(scenario, Configuration(6, 2))
    state, generator = queues.new_state(costs, 600), np.random.default_rng(0)
    furthest = 0
    for until in range(1, 600):
        queues.run(state, costs, until, generator)
        furthest = max(furthest, int(state.workers["computed"].max() - state.workers["pushes_done"].min()))
    assert furthest == staleness + 1  # a worker that is `staleness` batches ahead may start one more


# --- a shared host ----------------------------------------------------------------------------------------------------

HOST = but(
    SURE,
    workload=Workload(batch_size=1000, host_cores=4),
    pull_sample_s=0.0,
    push_sample_s=0.0,
    request_s=1e-6,
    latency_s=0.0,
)


def test_cores_are_shared_equally_and_fully() -> None:
    alone = simulate(HOST, Configuration(1, 1), 50, 0).samples_per_s
    for workers, times in ((2, 2.0), (4, 4.0), (8, 4.0), (12, 4.0)):
        found = simulate(HOST, Configuration(workers, 1), 50, 0)
        assert found.samples_per_s == pytest.approx(times * alone, rel=0.01), workers
        assert found.worker_cpu_s == pytest.approx(22e-3, rel=0.01)
    assert simulate(HOST, Configuration(8, 1), 50, 0).compute_s == pytest.approx(2 * 22e-3, rel=0.02)


def test_switching_threads_costs_time() -> None:
    scenario = but(HOST, oversubscription=0.5)
    assert simulate(scenario, Configuration(4, 1), 50, 0).samples_per_s == pytest.approx(
        simulate(HOST, Configuration(4, 1), 50, 0).samples_per_s, rel=0.01
    )
    slower = simulate(scenario, Configuration(8, 1), 50, 0)
    plain = simulate(HOST, Configuration(8, 1), 50, 0)
    assert slower.samples_per_s == pytest.approx(plain.samples_per_s / 1.5, rel=0.02)
    assert slower.worker_cpu_s == pytest.approx(1.5 * 22e-3, rel=0.02)


def test_memory_bandwidth_is_shared_by_threads_that_compute() -> None:
    scenario = but(HOST, memory_threads=2.0, memory_part=0.5)
    alone = simulate(scenario, Configuration(1, 1), 50, 0).samples_per_s
    assert simulate(scenario, Configuration(2, 1), 50, 0).samples_per_s == pytest.approx(2 * alone, rel=0.01)
    # with four workers, half of the computing takes twice as long
    assert simulate(scenario, Configuration(4, 1), 50, 0).samples_per_s == pytest.approx(4 * alone / 1.5, rel=0.01)


# --- observing --------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits() -> None:
    for scenario in SCENARIOS:
        one = grid(scenario)[100]
        assert simulate(scenario, one, 20, 7) == simulate(scenario, one, 20, 7)
        assert simulate(scenario, one, 20, 7) != simulate(scenario, one, 20, 8)


def test_the_stated_error_is_the_spread_of_repeated_runs_with_correlated_iterations() -> None:
    scenario = but(SURE, overlap="both", compute_cov=0.3, autocorrelation=0.7)
    found = [simulate(scenario, Configuration(2, 1), 300, seed) for seed in range(40)]
    spread = float(np.std(np.log([one.samples_per_s for one in found]), ddof=1))
    told = float(np.sqrt(np.mean([one.log_error**2 for one in found])))
    naive = 0.3 / math.sqrt(600)
    assert spread > 1.5 * naive
    assert 0.6 * spread < told < 1.5 * spread


def test_throughputs_are_those_of_single_runs() -> None:
    scenario = SCENARIOS[1]
    some = grid(scenario)[::200]
    found = throughputs(scenario, some, 100, seed=5)
    assert found[1] == simulate(scenario, some[1], max(40, -(-100 // some[1].workers)), 6).samples_per_s


def test_empty_configurations_and_too_few_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="workers, PS and cores must be at least 1"):
        simulate(SURE, Configuration(0, 1), 50, 0)
    with pytest.raises(ValueError, match="iterations=.* must be at least"):
        simulate(SURE, Configuration(1, 1), 5, 0)
