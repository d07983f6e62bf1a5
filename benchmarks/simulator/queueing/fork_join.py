"""Simulates a job with known costs in a configuration as fork-join queues, and returns the observation of it.

The simulation does not use the formulas of the tuner. The throughput follows from the waits of workers, PS and links,
and times are measured at the same places as in the processes of a real run.
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

WARM_UP = 0.2  # additional iterations before the measurement, as a share of the measured ones
BATCHES = 10  # number of batches for the error of the mean


def simulate(scenario: Scenario, configuration: Configuration, iterations: int, seed: int) -> Observation:
    """Observes `iterations` iterations of every worker, after a warm-up of a fifth as many.

    `samples_per_s` is the mean over the block. `log_error` is its standard error by the method of batch means, which is
    valid for correlated iterations. In sync mode `server_cpu_s` is that of a whole step; all other times are those of
    one worker in the step. The same arguments give the same result, bit for bit. Raises ValueError for a configuration
    without workers, PS or cores, and for fewer than BATCHES iterations.
    """
    if min(msgspec.structs.astuple(configuration)) < 1:
        raise ValueError(f"{configuration}: workers, PS and cores must be at least 1")
    if iterations < BATCHES:
        raise ValueError(f"iterations={iterations} must be at least {BATCHES}")
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
    """The true speeds of these configurations in samples/s, float64 [n], up to the noise of a finite run.

    iterations: number for all workers together, with at least 40 for each worker.
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
    """Bytes of an iteration of one worker in one direction: its rows and the dense part, or their gradients."""
    workload = scenario.workload
    if workload.access == "direct":
        return 0.0
    return scenario.unique_share * workload.row_bytes * scenario.worker_batch(workers) + workload.dense_bytes


def _sigma(cov: float) -> float:
    """The standard deviation sigma of the log of a log-normal value with this coefficient of variation:
    cov^2 = exp(sigma^2) - 1."""
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
    """The standard error of the log of the mean rate, from the rates of successive groups of iterations. In sync mode a
    group consists of whole steps."""
    per_worker = len(finished_s) // workers
    edges = workers * np.linspace(0, per_worker, BATCHES + 1).round().astype(np.int64)
    at_s = np.concatenate([[began_s], finished_s])[edges]
    rates = np.diff(edges) / np.maximum(np.diff(at_s), 1e-300)
    return float(np.std(np.log(rates), ddof=1) / math.sqrt(BATCHES))
