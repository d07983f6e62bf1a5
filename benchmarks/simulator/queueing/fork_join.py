"""What a job of known costs would be observed to do in a configuration: fork-join queues, iteration by iteration.

Nothing here knows the tuner's formulas: throughput comes out of who waits for whom, and times are taken where the
processes of a real run take theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing import queues
from elastichost.emulation.scenarios import Scenario
from elastichost.tuner.facts import Configuration, Observation

__all__ = ["simulate", "throughputs"]

WARM_UP = 0.2  # of the iterations, before anything is measured
BATCHES = 10  # that the error of the mean is estimated from


def simulate(scenario: Scenario, configuration: Configuration, iterations: int, seed: int) -> Observation:
    """Observes `iterations` of every worker, after a fifth as many that nobody looks at.

    `samples_per_s` is the mean over the block, `log_error` its standard error by the method of batch means, which holds
    for correlated iterations. In sync mode `server_cpu_s` is of a whole step, all other times of one worker in it.
    The same arguments give the same result, bit for bit. Raises ValueError for a configuration without workers, PS or
    cores, and for fewer iterations than the error needs.
    """
    if min(msgspec.structs.astuple(configuration)) < 1:
        raise ValueError(f"{configuration}: nothing can train without workers, PS and cores")
    if iterations < BATCHES:
        raise ValueError(f"{iterations} iterations are too few: {BATCHES} at least")
    costs = _costs(scenario, configuration)
    workers = configuration.workers
    warm = workers * max(1, math.ceil(WARM_UP * iterations))
    total = warm + workers * iterations
    state, generator = queues.new_state(costs, total), np.random.default_rng(seed)
    queues.run(state, costs, warm, generator)
    began_s = float(state.clocks[queues.WALL])
    state.sums[:] = 0
    state.servers["cpu_s"] = 0.0
    queues.run(state, costs, total, generator)
    return _observed(scenario, configuration, costs, state, warm, began_s)


def throughputs(
    scenario: Scenario, configurations: Sequence[Configuration], iterations: int, seed: int
) -> npt.NDArray[np.float64]:
    """float64 [n] samples a second: the truth about these configurations, up to the noise of a finite run.

    iterations: of all workers together, with at least 40 of each.
    """
    found = np.empty(len(configurations))
    for index, one in enumerate(configurations):
        of_each = max(40, -(-iterations // one.workers))
        found[index] = simulate(scenario, one, of_each, seed + index).samples_per_s
    return found


def _costs(scenario: Scenario, configuration: Configuration) -> queues.QueueCosts:
    workload, workers, servers = scenario.workload, configuration.workers, configuration.servers
    batch, shares = scenario.worker_batch(workers), scenario.shares(servers)
    threads = min(configuration.worker_cores, scenario.parallel_cores)
    dense = np.zeros(servers)
    dense[0] = scenario.dense_s
    bounds = {"async": queues.UNBOUNDED, "bounded": scenario.staleness, "sync": 0}
    wire = np.zeros(servers)
    if workload.bandwidth_bytes_per_s > 0:
        wire = _bytes_each_way(scenario, workers) * shares / workload.bandwidth_bytes_per_s
    return queues.QueueCosts(
        workers=workers,
        servers=servers,
        server_cores=configuration.server_cores,
        threads=threads,
        host_cores=workload.host_cores,
        overlap=queues.OVERLAPS[scenario.overlap],
        ahead=bounds[workload.mode],
        is_sync=workload.mode == "sync",
        serial_s=scenario.serial_s,
        parallel_s=scenario.sample_s * batch * (1.0 + scenario.thread_loss * (threads - 1)) / threads,
        compute_sigma=_sigma(scenario.compute_cov),
        autocorrelation=scenario.autocorrelation,
        straggle_probability=scenario.straggle_probability,
        straggle_factor=scenario.straggle_factor,
        read_s=scenario.reader_sample_s * batch,
        read_sigma=_sigma(scenario.reader_cov),
        server_sigma=_sigma(scenario.server_cov),
        latency_s=scenario.latency_s,
        memory_threads=scenario.memory_threads,
        memory_part=scenario.memory_part,
        oversubscription=scenario.oversubscription,
        pull_s=scenario.request_s + scenario.pull_sample_s * batch * shares,
        push_s=scenario.request_s + scenario.push_sample_s * batch * shares + dense,
        wire_s=wire,
    )


def _bytes_each_way(scenario: Scenario, workers: int) -> float:
    """Of an iteration of one worker: rows that it names and the dense part, or their gradients."""
    workload = scenario.workload
    if workload.access == "direct":
        return 0.0
    return scenario.unique_share * workload.row_bytes * scenario.worker_batch(workers) + workload.dense_bytes


def _sigma(cov: float) -> float:
    """Of the logarithm of a log-normal value: its variance is exp(sigma^2) - 1 of the mean squared."""
    return math.sqrt(math.log1p(cov * cov))


def _observed(
    scenario: Scenario,
    configuration: Configuration,
    costs: queues.QueueCosts,
    state: queues.QueueState,
    warm: int,
    began_s: float,
) -> Observation:
    done = len(state.finished) - warm
    ended_s = float(state.finished[-1])
    batch = scenario.worker_batch(configuration.workers)
    sums = {name: float(state.sums[name][0]) / done for name in state.sums.dtype.names}
    cpu_s = state.servers["cpu_s"]
    served = float(cpu_s.sum())
    is_sync = scenario.workload.mode == "sync"
    return Observation(
        configuration=configuration,
        samples_per_s=done * batch / (ended_s - began_s),
        log_error=_log_error(state.finished[warm:], began_s, configuration.workers),
        seconds=ended_s - began_s,
        iterations=done // configuration.workers if is_sync else done,
        hot_share=float(cpu_s.max()) / served if served > 0 else None,
        compute_s=sums["compute_s"],
        reader_s=sums["read_s"] if costs.read_s > 0 else None,
        exchange_s=sums["exchange_s"],
        server_cpu_s=served / done * (configuration.workers if is_sync else 1),
        worker_cpu_s=sums["worker_cpu_s"],
        bytes_moved=2.0 * _bytes_each_way(scenario, configuration.workers),
    )


def _log_error(finished_s: npt.NDArray[np.float64], began_s: float, workers: int) -> float:
    """Of the mean rate, from the rates of successive groups of iterations; in sync mode a group is of whole steps."""
    per_worker = len(finished_s) // workers
    edges = workers * np.linspace(0, per_worker, BATCHES + 1).round().astype(np.int64)
    at_s = np.concatenate([[began_s], finished_s])[edges]
    rates = np.diff(edges) / np.maximum(np.diff(at_s), 1e-300)
    return float(np.std(np.log(rates), ddof=1) / math.sqrt(BATCHES))
