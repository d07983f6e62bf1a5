"""Computes an upper limit of the speed of every configuration from measured CPU times, for any fitted model. Pure.

A thread trains one batch after another, and the cores of a host are limited. For a measured configuration of W0 workers
with one thread each and p0 PS, let

    t   CPU-seconds of a worker's training thread for one of its samples
    k   CPU-seconds of all processes together for one sample

Then W workers with c threads each and p PS on a host of H cores train at most

    min( W c / t ,  H / k(p) )   samples per second.

W c / t: the training thread of a worker needs at least t for a sample, and c threads at best divide this work evenly.
H / k(p): H cores give H CPU-seconds per second. With served access, messages grow with the number of PS; so of k, only
the part of the training threads is constant, and the rest is multiplied by p / p0 for p < p0. With direct access all of
k is constant.

t and k are CPU times, not durations of batches. A thread that waits for a core, a PS or input uses no CPU, so crowded
cores or a slow source do not make the limit too low. t and k are not exactly constant: the same work takes more CPU
time where other threads use the caches, the memory or the second hardware thread of a core. So the least t and k of all
measured configurations are used, and RELIEF is added for unmeasured ones. In the recorded grid of two-core runs, the
first limit (with one thread) was exceeded by at most 10 %; the second one by at most 9 % in nine of ten pairs of
blocks, and by 25 % in the worst pair, whose blocks were recorded many minutes apart on a machine whose speed had
changed by 20 %. Measurements with more workers than cores have less weight (CROWDED).

If a measured configuration had at least one worker for each core, more workers only slow each other down. For them its
k is used without RELIEF. In nine of ten of these pairs of the grid the limit was exceeded by at most 5 %; half of the
speeds were 11 to 28 % below it.

Threads of one worker spin while they wait for each other, and a thread that waits for a GPU spins too. Measurements
with several threads per worker or with GPUs therefore give no limit.

Where every process has cores of its own, nothing crowds them, so the duration of a batch counts too. Let C be the
seconds that a worker with c0 threads computes a batch of m samples. Then W workers with c threads train at most

    W m / C * max(1, c / c0)                    samples per second, or in sync mode, for W0 measured workers,
    m / C * max(1, (W c) / (W0 c0))

because fewer threads are never faster, and more threads at best divide the work evenly.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, Workload

__all__ = ["RELIEF", "bounded", "ceiling", "most"]

Floats = npt.NDArray[np.float64]

RELIEF = 0.1  # log; the CPU time of the same work may be lower by this in another configuration
CROWDED = 0.5  # CPU times grow at most with (workers / cores)^CROWDED; in recorded jobs the power is 0.1 to 0.25


def ceiling(workload: Workload, observations: Iterable[Observation], configurations: ConfigurationArray) -> Floats:
    """The upper limit in samples/s without RELIEF, float64 [n] for float64 [n, 4]; inf without usable measurements."""
    workers, servers, threads, _ = configurations.T
    training_s = all_s = by_computing = np.full(len(configurations), np.inf)
    for one in observations:
        if one.compute_s and workload.host_cores == 0 and not workload.has_gpus:
            by_computing = np.minimum(by_computing, _by_computing(workload, one, workers, threads))
        if one.configuration.worker_cores > 1 or workload.has_gpus:
            continue
        if one.training_cpu_s:
            training_s = np.minimum(training_s, _training_s(workload, one) / _crowded(workload, one))
        if workload.host_cores > 0 and one.worker_cpu_s and one.server_cpu_s is not None:
            all_s = np.minimum(all_s, _all_s(workload, one, servers) / _crowded(workload, one))
    by_training = np.where(np.isinf(training_s), np.inf, workers * threads / training_s)
    by_cores = np.where(np.isinf(all_s), np.inf, workload.host_cores / all_s)
    limit: Floats = np.minimum(np.minimum(by_training, by_cores), by_computing)
    return limit


def most(workload: Workload, observations: Iterable[Observation], configurations: ConfigurationArray) -> Floats:
    """The highest speed that the tuner predicts, in samples/s; float64 [n] for float64 [n, 4]. It is the ceiling plus
    RELIEF. For more workers than a measured configuration with a worker for each core it is without RELIEF."""
    seen = tuple(observations)
    limit: Floats = ceiling(workload, seen, configurations) * np.exp(RELIEF)
    for one in seen:
        if one.configuration.workers >= workload.host_cores > 0:
            is_fuller = (configurations[:, 0] > one.configuration.workers) & (
                configurations[:, 1] >= one.configuration.servers
            )
            own = ceiling(workload, (one,), configurations) * _crowded(workload, one)
            limit = np.where(is_fuller, np.minimum(limit, own), limit)
    return limit


def bounded(predictions: Predictions, limit: Floats) -> Predictions:
    """Limits predictions to `limit`, float64 [n] samples/s as of `most`, and keeps their order. A speed that exceeds
    limit / exp(RELIEF) by x (in logs) is reduced to exceed it by RELIEF (1 - exp(-x / RELIEF))."""
    usual = limit * np.exp(-RELIEF)

    def squeezed(speeds: Floats) -> Floats:
        # log(inf) is inf: without a limit no speed is reduced
        over = np.maximum(0.0, np.log(np.maximum(speeds, 1e-300)) - np.log(usual))
        return np.where(over > 0.0, usual * np.exp(RELIEF * -np.expm1(-over / RELIEF)), speeds)

    return msgspec.structs.replace(
        predictions,
        samples_per_s=squeezed(predictions.samples_per_s),
        low=squeezed(predictions.low),
        high=squeezed(predictions.high),
    )


def _crowded(workload: Workload, one: Observation) -> float:
    """The factor by which t and k of this observation may be too large: with more workers than cores, workers compete
    for caches and are switched. 1 for at most one worker per core."""
    if workload.host_cores <= 0:
        return 1.0
    return float(max(1.0, one.configuration.workers / workload.host_cores) ** CROWDED)


def _by_computing(workload: Workload, one: Observation, workers: Floats, threads: Floats) -> Floats:
    """The limit of the time that workers compute, in samples/s, float64 [n]; at the measured configuration at least
    the measured speed."""
    own, is_sync = one.configuration, workload.mode == "sync"
    took_s = (1 if is_sync else own.workers) * workload.batch_size / one.samples_per_s
    each = workload.batch_size / min(one.compute_s or np.inf, took_s)
    if is_sync:
        return each * np.maximum(1.0, workers * threads / (own.workers * own.worker_cores))
    return workers * each * np.maximum(1.0, threads / own.worker_cores)


def _training_s(workload: Workload, one: Observation) -> float:
    """t of the module docstring in seconds, at most workers / speed. In sync mode a worker computes its part of each
    step."""
    parts = one.configuration.workers if workload.mode == "sync" else 1
    timed_s = (one.training_cpu_s or 0.0) * parts / workload.batch_size
    return min(timed_s, one.configuration.workers / one.samples_per_s)


def _all_s(workload: Workload, one: Observation, servers: Floats) -> Floats:
    """k(p) of the module docstring in seconds, float64 [n] for the numbers of PS float64 [n]; at the measured number of
    PS at most host cores / speed."""
    worker_s, server_s = one.worker_cpu_s or 0.0, one.server_cpu_s or 0.0
    parts = one.configuration.workers if workload.mode == "sync" else 1
    stays, rest = worker_s * parts + server_s, 0.0
    if workload.access == "served":
        training_s = min(one.training_cpu_s or 0.0, worker_s) * parts
        stays, rest = training_s, stays - training_s
    trained_s = workload.host_cores / one.samples_per_s * workload.batch_size
    scale = min(1.0, trained_s / (stays + rest)) / workload.batch_size
    needed: Floats = scale * (stays + rest * np.minimum(1.0, servers / one.configuration.servers))
    return needed
