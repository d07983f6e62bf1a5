"""Extends the true speed to fewer cores than a table has: all work of the core takes longer. Pure.

On the share c of a core a worker computes for C / c seconds instead of C. The iteration becomes longer by a part of
that increase, namely the part that it shows in the table when two cores become one. The iteration is never shorter than
the computing, and never longer than if all of it took longer. The rule for a PS with the share s of a core is the same
for requests, and the PS never serves more than its capacity of s CPU-seconds per second. The rule uses points of the
table and no model of the tuner. Compared with the queue simulator with costs that are larger by the same factor, its
error is 1 % in the median and at most 27 %, down to a quarter of a core.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Workload

__all__ = ["slower_servers", "slower_workers"]

Floats = npt.NDArray[np.float64]
RATE, COMPUTE, EXCHANGE, SERVER_CPU = 0, 1, 3, 4  # columns of `job_speed.QUANTITIES`
FLAT = 0.02  # a relative change below this is too small to estimate an effect of it
TINY = 1e-12


def slower_workers(at: Floats, more: Floats, share: Floats, workers: Floats, workload: Workload) -> Floats:
    """Returns QUANTITIES for workers with less than the least cores of the table, float64 [n, 7].

    at: float64 [n, 7], QUANTITIES with the least cores of the table. more: the same with the next larger cores. share:
    float64 [n], available cores / least cores, at most 1. workers: float64 [n]. The iteration in seconds is

        T = min(T1 / c, max(T1 + k C1 (1 / c - 1), min(C1, T1) / c)),   k = (T1 - T2) / (C1 - C2)

    c: share. T1, C1: iteration and computing with the least cores; T2, C2: with the next ones. The waiting times of
    requests stay unchanged, although the PS get fewer requests.
    """
    first, second = _iteration_s(at, workers, workload), _iteration_s(more, workers, workload)
    compute = at[:, COMPUTE]
    # in sync mode all workers wait for the slowest, so k may exceed 1 for the computing of the mean worker
    shown = _shown(first - second, compute - more[:, COMPUTE], compute, first / np.maximum(compute, TINY), 1.0)
    longer = np.maximum(first + shown * compute * (1.0 / share - 1.0), np.minimum(compute, first) / share)
    found = at.copy()
    found[:, RATE] = at[:, RATE] * first / np.minimum(longer, first / share)
    found[:, COMPUTE] = compute / share
    return found


def slower_servers(
    at: Floats, more: Floats, share: Floats, points: Floats, skew: float, workload: Workload, ratio: float
) -> Floats:
    """Returns QUANTITIES for PS with less than the least cores of the table, float64 [n, 7]; arguments as in
    `slower_workers`. points: float64 [n, 4], configurations. ratio: next larger cores of a PS / least cores, r.
    Requests wait for cores for Q = (X1 - X2) r / (r - 1) seconds (X1, X2: exchange with the least and the next cores),
    at least for the time of their own service."""
    workers, servers = points[:, 0], points[:, 1]
    is_sync = workload.mode == "sync"
    first, second = _iteration_s(at, workers, workload), _iteration_s(more, workers, workload)
    exchange = at[:, EXCHANGE]
    busiest = at[:, SERVER_CPU] * (skew + (1.0 - skew) / servers)  # per iteration; in sync mode per step of all workers
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
    """The ratio change / cause, limited to 0..most: seconds of an iteration per second of the cause. otherwise: the
    value where the cause hardly changes."""
    found = np.clip(change / np.maximum(cause, TINY), 0.0, most)
    return np.where(cause > FLAT * whole, found, np.minimum(otherwise, most))
