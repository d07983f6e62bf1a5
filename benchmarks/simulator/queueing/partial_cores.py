"""What a job does on less of a core than its table knows: everything that the core does takes longer. Pure.

Its worker computes for C / c seconds on the share c of a core. Of what that takes longer an iteration shows the part
that it showed of two cores becoming one, and it never takes less than the computing, nor more than if all took longer.
A PS with the share s is the same for requests, and never serves more than its capacity, s seconds of CPU a second. The
rule is of who waits for whom, from points of the table, and no model of the tuner's. Against the queue simulator with
costs that are as much larger it is 1 % off in the median and 27 % at most, down to a quarter of a core.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Workload

__all__ = ["slower_servers", "slower_workers"]

Floats = npt.NDArray[np.float64]
RATE, COMPUTE, EXCHANGE, SERVER_CPU = 0, 1, 3, 4  # columns, as `truth.QUANTITIES` has them
FLAT = 0.02  # a quantity that changes by less does not say what it changes with
TINY = 1e-12


def slower_workers(at: Floats, more: Floats, share: Floats, workers: Floats, workload: Workload) -> Floats:
    """at: float64 [n, 7], QUANTITIES with the least cores of a worker that the table has; more: with the next ones;
    share: float64 [n], of the least ones that there are, at most 1; workers: float64 [n]. float64 [n, 7]. How long
    requests wait stays as it was, though less is asked of the PS.

        T = min(T1 / c, max(T1 + k C1 (1 / c - 1), min(C1, T1) / c)),   k = (T1 - T2) / (C1 - C2)
    """
    first, second = _iteration_s(at, workers, workload), _iteration_s(more, workers, workload)
    compute = at[:, COMPUTE]
    # in sync mode, where all wait for the slowest, more than one second for each second of the mean worker
    shown = _shown(first - second, compute - more[:, COMPUTE], compute, first / np.maximum(compute, TINY), 1.0)
    longer = np.maximum(first + shown * compute * (1.0 / share - 1.0), np.minimum(compute, first) / share)
    found = at.copy()
    found[:, RATE] = at[:, RATE] * first / np.minimum(longer, first / share)
    found[:, COMPUTE] = compute / share
    return found


def slower_servers(
    at: Floats, more: Floats, share: Floats, points: Floats, skew: float, workload: Workload, ratio: float
) -> Floats:
    """As `slower_workers`. points: float64 [n, 4], of which the workers and PS count; ratio: of the PS' next cores to
    their least ones. Requests wait for cores for Q = (X1 - X2) r / (r - 1) seconds, at least for their own service."""
    workers, servers = points[:, 0], points[:, 1]
    is_sync = workload.mode == "sync"
    first, second = _iteration_s(at, workers, workload), _iteration_s(more, workers, workload)
    exchange = at[:, EXCHANGE]
    busiest = at[:, SERVER_CPU] * (skew + (1.0 - skew) / servers)  # of one iteration; in sync mode of a step of all
    own = busiest / workers if is_sync else busiest
    fewer = exchange - more[:, EXCHANGE]
    waiting = np.clip(fewer * ratio / (ratio - 1.0), np.minimum(own, exchange), exchange)
    otherwise = np.clip((first - at[:, COMPUTE]) / np.maximum(exchange, TINY), 0.0, 1.0)
    shown = _shown(first - second, fewer, exchange, np.ones(len(at)), otherwise)
    capacity = np.minimum(first, busiest if is_sync else busiest * workers) / share
    extra = waiting * (1.0 / share - 1.0)
    longer = np.minimum(np.maximum(first + shown * extra, capacity), first / share)
    found = at.copy()
    found[:, RATE] = at[:, RATE] * first / longer
    found[:, EXCHANGE] = exchange + np.maximum(longer - first, extra)
    return found


def _iteration_s(values: Floats, workers: Floats, workload: Workload) -> Floats:
    return (1.0 if workload.mode == "sync" else workers) * workload.batch_size / values[:, RATE]


def _shown(change: Floats, cause: Floats, whole: Floats, most: Floats, otherwise: Floats | float) -> Floats:
    """Of each second of the cause, so many of an iteration; otherwise: where the cause does not change."""
    found = np.clip(change / np.maximum(cause, TINY), 0.0, most)
    return np.where(cause > FLAT * whole, found, np.minimum(otherwise, most))
