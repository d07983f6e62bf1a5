"""The speed that no configuration exceeds, whatever a fitted model says: it follows from the work as measured. Pure.

A thread trains one batch after another, and a host has so many cores. Measured in a configuration of W0 workers with
one thread each and p0 PS, let

    t   be the CPU-seconds of a worker's training thread for one of its samples
    k   be the CPU-seconds of all processes together for one sample

Then W workers with c threads each and p PS, on a host of H cores, train at most

    min( W c / t ,  H / k(p) ) samples a second.

W c / t: a sample takes a worker's training thread t at least, and c threads share its work at best evenly. H / k(p):
cores give H CPU-seconds a second. Messages of served access grow with the number of PS, so that of k only what training
threads take is sure to stay, and of the rest p / p0 for p < p0. With direct access all of k stays.

t and k are CPU times, not the time from a batch's begin to its end: a thread that waits for a core, for PS or for input
uses no CPU, so crowded cores or a slow source do not make the limit too low. Still they are no constants: work takes
more CPU time where others use the caches, the memory or the other half of a core. Of several configurations that were
measured the least t and k hold, and RELIEF is what is left for what was not. In the recorded grid of two-core runs the
first limit, with one thread, was exceeded by 10 % at most; the second one by 9 % in nine of ten pairs of blocks, and by
25 % in the worst, whose blocks were recorded many minutes apart on a machine that had changed by 20 % meanwhile. What
was measured with more workers than cores is trusted less (CROWDED).

More workers than a measured configuration had, once it had one for each core, only cost each other more: there its k
holds without any relief. Nine of ten such pairs of the grid kept to that within 5 %, and half were 11 to 28 % below.

Several threads of a worker spin while they wait for each other, and so does a thread that waits for a GPU: what was
measured with them is no limit.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, Workload

__all__ = ["RELIEF", "bounded", "ceiling", "most"]

Floats = npt.NDArray[np.float64]

RELIEF = 0.1  # log; by so much less CPU time the same work may take in another configuration
CROWDED = 0.5  # power of workers over cores, by which CPU times grow at most: 0.1 to 0.25 in recorded jobs


def ceiling(workload: Workload, observations: Iterable[Observation], configurations: ConfigurationArray) -> Floats:
    """samples/s without RELIEF, float64 [n] for float64 [n, 4]; inf where nothing is known."""
    workers, servers, threads, _ = configurations.T
    training_s = all_s = np.full(len(configurations), np.inf)
    for one in observations:
        if one.configuration.worker_cores > 1 or workload.has_gpus:
            continue
        if one.training_cpu_s:
            training_s = np.minimum(training_s, _training_s(workload, one) / _crowded(workload, one))
        if workload.host_cores > 0 and one.worker_cpu_s and one.server_cpu_s is not None:
            all_s = np.minimum(all_s, _all_s(workload, one, servers) / _crowded(workload, one))
    by_training = np.where(np.isinf(training_s), np.inf, workers * threads / training_s)
    by_cores = np.where(np.isinf(all_s), np.inf, workload.host_cores / all_s)
    limit: Floats = np.minimum(by_training, by_cores)
    return limit


def most(workload: Workload, observations: Iterable[Observation], configurations: ConfigurationArray) -> Floats:
    """samples/s that are never expected, float64 [n] for float64 [n, 4]: RELIEF over the ceiling, and none over what
    all cores give to more workers than have kept them busy already."""
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
    """What exceeds the limit less RELIEF, float64 [n] samples/s as of `most`, is squeezed into RELIEF: by log x over it
    it becomes RELIEF (1 - exp(-x / RELIEF)), so that what is expected to be faster stays so, and nothing exceeds the
    limit."""
    usual = limit * np.exp(-RELIEF)

    def squeezed(speeds: Floats) -> Floats:
        # log(inf) is inf: there nothing is over
        over = np.maximum(0.0, np.log(np.maximum(speeds, 1e-300)) - np.log(usual))
        return np.where(over > 0.0, usual * np.exp(RELIEF * -np.expm1(-over / RELIEF)), speeds)

    return msgspec.structs.replace(
        predictions,
        samples_per_s=squeezed(predictions.samples_per_s),
        low=squeezed(predictions.low),
        high=squeezed(predictions.high),
    )


def _crowded(workload: Workload, one: Observation) -> float:
    """By so much t and k may be too large: more workers than cores cost each other caches and turns."""
    if workload.host_cores <= 0:
        return 1.0
    return float(max(1.0, one.configuration.workers / workload.host_cores) ** CROWDED)


def _training_s(workload: Workload, one: Observation) -> float:
    """t above, and no more than the measured speed leaves. In sync mode a worker computes its part of each step."""
    parts = one.configuration.workers if workload.mode == "sync" else 1
    timed_s = (one.training_cpu_s or 0.0) * parts / workload.batch_size
    return min(timed_s, one.configuration.workers / one.samples_per_s)


def _all_s(workload: Workload, one: Observation, servers: Floats) -> Floats:
    """k(p) above, float64 [n] for float64 [n] numbers of PS; where it was measured no more than the speed leaves."""
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
