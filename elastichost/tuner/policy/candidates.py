"""Enumerates the possible configurations within bounds: all, the neighbours of one, or a few far apart. Pure.

The bounds are monotone: a configuration that fits also fits with fewer processes or cores. So each number has a largest
value that depends only on the numbers before it, and only configurations that fit are generated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import COLUMNS, Configuration, ConfigurationArray

__all__ = [
    "LIMIT",
    "Bounds",
    "as_configurations",
    "contains",
    "count",
    "enumerate_candidates",
    "features_of",
    "maximin",
    "nearest_candidate",
    "neighbours",
    "repaired",
    "within_cores",
]

LIMIT = 1_000_000  # largest number of candidates that are enumerated; above it, `frontier.nsga2` searches
CHUNK = 250_000  # rows that are generated at a time
Whole = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The range of every number of a configuration, and the limits of cores and memory.

    least, most: the smallest and the largest value of every number. cores: cores of the host or cluster; 0: no limit.

    share_cores: True: all processes run on the same cores. Then workers x worker_cores may be up to
    cores x oversubscription; PS are not counted, because they mostly wait. No process has more threads than there are
    cores. If workers x worker_cores exceeds the cores, worker_cores must be the least allowed value: the threads of one
    worker wait for each other, partly by spinning, so with more threads than cores they block each other. False: each
    process has its own cores, and all processes together have at most `cores`.

    worker_bytes, server_bytes: memory of one process. memory_bytes: memory of all processes together; 0: no limit.

    Raises ValueError for an invalid range or limit. Bounds that no configuration fits are valid, and have no
    candidates.
    """

    least: Configuration
    most: Configuration
    cores: int = 0
    share_cores: bool = True
    oversubscription: float = 1.0
    worker_bytes: int = 0
    server_bytes: int = 0
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        low, high = _row(self.least), _row(self.most)
        if min(low) < 1 or any(one > other for one, other in zip(low, high, strict=True)):
            raise ValueError(
                f"invalid range from {self.least} to {self.most}: numbers must be at least 1 and not exceed the maximum"
            )
        if min(self.cores, self.worker_bytes, self.server_bytes, self.memory_bytes) < 0:
            raise ValueError("cores and memory must be at least 0")
        if not 0 < self.oversubscription < math.inf:
            raise ValueError(f"oversubscription={self.oversubscription} must be a positive number")

    def memory_of(self, configurations: ConfigurationArray) -> Floats:
        """Bytes of all processes of each configuration together; float64 [n] for float64 [n, 4]."""
        needed: Floats = configurations[:, :2] @ np.array([self.worker_bytes, self.server_bytes])
        return needed

    @property
    def _thread_budget(self) -> int:
        """Largest number of threads of all workers together on shared cores. The factor 1 + 1e-12 undoes rounding
        errors of the product, as in 2.2 * 10."""
        return math.floor(self.cores * self.oversubscription * (1 + 1e-12))

    # The largest value of each number, given the numbers before it, in the order workers, servers, worker_cores,
    # server_cores. Only the range of the workers can be empty.

    def _most_workers(self) -> int:
        low, found = self.least, self.most.workers
        if self.memory_bytes and self.worker_bytes:
            found = min(found, (self.memory_bytes - low.servers * self.server_bytes) // self.worker_bytes)
        elif self.memory_bytes and low.servers * self.server_bytes > self.memory_bytes:
            return 0
        if self.cores and self.share_cores:
            is_too_wide = max(low.worker_cores, low.server_cores) > self.cores
            return 0 if is_too_wide else min(found, self._thread_budget // low.worker_cores)
        if self.cores:
            return min(found, (self.cores - low.servers * low.server_cores) // low.worker_cores)
        return found

    def _most_servers(self, workers: Whole) -> Whole:
        found = np.full(workers.shape, self.most.servers)
        if self.memory_bytes and self.server_bytes:
            found = np.minimum(found, (self.memory_bytes - workers * self.worker_bytes) // self.server_bytes)
        if self.cores and not self.share_cores:
            found = np.minimum(found, (self.cores - workers * self.least.worker_cores) // self.least.server_cores)
        return found

    def _most_worker_cores(self, workers: Whole, servers: Whole) -> Whole:
        found = np.full(workers.shape, self.most.worker_cores)
        if self.cores and self.share_cores:
            most = np.maximum(self.least.worker_cores, self.cores // workers)
            found = np.minimum(np.minimum(found, self._thread_budget // workers), most)
        elif self.cores:
            found = np.minimum(found, (self.cores - servers * self.least.server_cores) // workers)
        return found

    def _most_server_cores(self, workers: Whole, servers: Whole, worker_cores: Whole) -> Whole:
        found = np.full(workers.shape, self.most.server_cores)
        if self.cores and self.share_cores:
            found = np.minimum(found, self.cores)
        elif self.cores:
            found = np.minimum(found, (self.cores - workers * worker_cores) // servers)
        return found


def _row(configuration: Configuration) -> tuple[int, int, int, int]:
    return configuration.workers, configuration.servers, configuration.worker_cores, configuration.server_cores


def as_configurations(array: ConfigurationArray) -> tuple[Configuration, ...]:
    """Converts float64 [n, 4] to configurations; the inverse of `facts.as_array`."""
    return tuple(Configuration(*row) for row in array.astype(np.int64).tolist())


def within_cores(bounds: Bounds, running: Configuration) -> Bounds:
    """The bounds for configurations that need at most the cores of the running one. On shared cores those are the cores
    of its workers, because PS mostly wait."""
    if not bounds.share_cores:
        return msgspec.structs.replace(bounds, cores=min(bounds.cores or running.cores, running.cores))
    threads = running.workers * running.worker_cores
    cores = bounds.cores or threads
    least = min(bounds.oversubscription, threads / cores)
    return msgspec.structs.replace(bounds, cores=cores, oversubscription=least)


def contains(bounds: Bounds, array: ConfigurationArray) -> npt.NDArray[np.bool_]:
    """Whether each row is within the bounds; bool [n] for float64 [n, 4]."""
    workers, servers, worker_cores, server_cores = array.T
    inside: npt.NDArray[np.bool_] = np.all((array >= _row(bounds.least)) & (array <= _row(bounds.most)), axis=1)
    if bounds.memory_bytes:
        inside &= bounds.memory_of(array) <= bounds.memory_bytes
    if bounds.cores and bounds.share_cores:
        inside &= workers * worker_cores <= bounds._thread_budget
        inside &= (worker_cores == bounds.least.worker_cores) | (workers * worker_cores <= bounds.cores)
        inside &= np.maximum(worker_cores, server_cores) <= bounds.cores
    elif bounds.cores:
        inside &= workers * worker_cores + servers * server_cores <= bounds.cores
    return inside


# --- all candidates ---------------------------------------------------------------------------------------------------


def count(bounds: Bounds) -> int:
    """Returns the number of candidates without generating them."""
    if not bounds.cores and not bounds.memory_bytes:
        ranges = zip(_row(bounds.least), _row(bounds.most), strict=True)
        return math.prod(high - low + 1 for low, high in ranges)
    total = 0
    for workers, servers, worker_cores in _triples(bounds):
        most = bounds._most_server_cores(workers, servers, worker_cores)
        total += int((most - bounds.least.server_cores + 1).sum())
    return total


def enumerate_candidates(bounds: Bounds, limit: int = LIMIT) -> ConfigurationArray:
    """Returns all candidates: float64 [n, 4], columns as in COLUMNS, in lexicographic order. Raises ValueError for more
    than `limit` candidates; `frontier.nsga2` searches them instead."""
    parts, total = list[ConfigurationArray](), 0
    for workers, servers, worker_cores in _triples(bounds):
        most = bounds._most_server_cores(workers, servers, worker_cores)
        total += int((most - bounds.least.server_cores + 1).sum())
        if total > limit:
            raise ValueError(f"the bounds allow more than {limit:,} configurations; search them with frontier.nsga2")
        columns = _expanded((workers, servers, worker_cores), bounds.least.server_cores, most)
        parts.append(np.stack(columns, axis=1).astype(np.float64))
    return np.concatenate(parts) if parts else np.empty((0, len(COLUMNS)))


def _triples(bounds: Bounds) -> Iterator[tuple[Whole, Whole, Whole]]:
    """Yields workers, servers and worker_cores of all candidates in parts of about CHUNK rows, in lexicographic
    order."""
    low, high = bounds.least, bounds.most
    each = (high.servers - low.servers + 1) * (high.worker_cores - low.worker_cores + 1)
    step = max(1, CHUNK // each)
    last = bounds._most_workers()
    for first in range(low.workers, last + 1, step):
        workers = np.arange(first, min(first + step, last + 1))
        workers, servers = _expanded((workers,), low.servers, bounds._most_servers(workers))
        most = bounds._most_worker_cores(workers, servers)
        workers, servers, worker_cores = _expanded((workers, servers), low.worker_cores, most)
        yield workers, servers, worker_cores


def _expanded(columns: Sequence[Whole], low: int, high: Whole) -> tuple[Whole, ...]:
    """Repeats each row for each value from `low` to its `high`, and appends these values as the last column."""
    times = high - low + 1
    ends = np.cumsum(times)
    values = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times, times) + low
    return (*(np.repeat(column, times) for column in columns), values)


# --- some candidates --------------------------------------------------------------------------------------------------


def repaired(bounds: Bounds, wishes: Floats) -> ConfigurationArray:
    """Returns a candidate for each row of `wishes`: each number is rounded and then clipped to its range given the
    numbers before it. float64 [n, 4] each. Raises ValueError if no configuration fits the bounds."""
    low, last = bounds.least, bounds._most_workers()
    if last < low.workers:
        raise ValueError(f"no configuration fits the bounds, not even {low}: give more cores or memory, or lower it")
    whole = np.rint(wishes).astype(np.int64).T
    workers = np.clip(whole[0], low.workers, last)
    servers = np.clip(whole[1], low.servers, bounds._most_servers(workers))
    worker_cores = np.clip(whole[2], low.worker_cores, bounds._most_worker_cores(workers, servers))
    most = bounds._most_server_cores(workers, servers, worker_cores)
    server_cores = np.clip(whole[3], low.server_cores, most)
    return np.stack([workers, servers, worker_cores, server_cores], axis=1).astype(np.float64)


def neighbours(bounds: Bounds, configuration: Configuration) -> ConfigurationArray:
    """Returns the candidates one step away; float64 [n, 4], in lexicographic order. A step changes one number by 1,
    doubles or halves it, or halves the processes of a role and doubles their cores, or the reverse."""
    own = np.array(_row(configuration), dtype=np.int64)
    rows = list[Whole]()
    for column in range(len(COLUMNS)):
        for value in (own[column] - 1, own[column] + 1, own[column] * 2, own[column] // 2):
            rows.append(np.where(np.arange(len(COLUMNS)) == column, value, own))
    for processes, cores in ((0, 2), (1, 3)):
        for more, fewer in ((processes, cores), (cores, processes)):
            traded = own.copy()
            traded[more], traded[fewer] = own[more] * 2, own[fewer] // 2
            rows.append(traded)
    array: ConfigurationArray = np.unique(np.array(rows, dtype=np.float64), axis=0)
    array = array[np.any(array != own, axis=1)]
    return array[contains(bounds, array)]


def nearest_candidate(bounds: Bounds, wish: Sequence[float], limit: int = LIMIT) -> Configuration:
    """Returns the candidate nearest, by ratios, to four positive numbers. With more than `limit` candidates it is a
    local optimum: no neighbour is nearer. Raises ValueError if no configuration fits the bounds."""
    target = np.log(np.maximum(np.array(wish, dtype=np.float64), 1e-9))

    def away(array: ConfigurationArray) -> Floats:
        return np.asarray(((np.log(array) - target) ** 2).sum(axis=1))

    present = repaired(bounds, np.array([wish], dtype=np.float64))
    if count(bounds) <= limit:
        present = enumerate_candidates(bounds, limit)
        return as_configurations(present[[int(np.argmin(away(present)))]])[0]
    while True:
        around = neighbours(bounds, as_configurations(present)[0])
        if not len(around) or away(around).min() >= away(present)[0]:
            return as_configurations(present)[0]
        present = around[[int(np.argmin(away(around)))]]


def features_of(array: ConfigurationArray) -> Floats:
    """Logs of the quantities that determine the speed: worker_cores, server_cores, workers / servers, workers;
    float64 [n, 4]."""
    logs = np.log(array)
    return np.stack([logs[:, 2], logs[:, 3], logs[:, 0] - logs[:, 1], logs[:, 0]], axis=1)


def maximin(candidates: ConfigurationArray, chosen: ConfigurationArray, picks: int) -> npt.NDArray[np.int64]:
    """Returns the indices of up to `picks` candidates; each is as far as possible from the chosen and the picked ones.

    Distances are Euclidean over `features_of`, each feature scaled to its range over the candidates. If `chosen` is
    empty, the first pick is the candidate nearest to the middle of the ranges. int64 [picks], or fewer if no other
    candidate is left. The greedy choice is within a factor of 2 of the best spacing (Gonzalez 1985).
    """
    if not len(candidates):
        return np.empty(0, dtype=np.int64)
    features = features_of(candidates)
    low, spread = features.min(axis=0), np.ptp(features, axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    features = (features - low) / scale

    def from_point(point: Floats) -> Floats:
        return np.asarray(((features - point) ** 2).sum(axis=1))

    found, away = list[int](), np.full(len(candidates), np.inf)
    for point in (features_of(chosen) - low) / scale if len(chosen) else ():
        away = np.minimum(away, from_point(point))
    while len(found) < picks:
        index = int(np.argmax(away)) if np.isfinite(away[0]) else int(np.argmin(from_point(features.max(axis=0) / 2)))
        if away[index] <= 0:
            break
        found.append(index)
        away = np.minimum(away, from_point(features[index]))
    return np.array(found, dtype=np.int64)
