"""The true speed of a job: tables of the queue simulator, scaled so that no two jobs are equal. Pure.

Between the points of a table all quantities are interpolated linearly in log-log space; below one core they follow the
rule of `partial_cores`. Cores and the costs that they divide are one axis: a job with computing costs of
`compute_scale` times those of the table trains on c cores like the job of the table on c / compute_scale cores. So the
gain of more cores, and the point at which PS become the bottleneck, differ from job to job, and no formula of a tuner
fits them exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import product
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing.partial_cores import slower_servers, slower_workers
from elastichost.tuner.facts import Configuration, ConfigurationArray, Workload

__all__ = ["QUANTITIES", "IterationSpeed", "ScaledSpeedTable", "SpeedOracle", "SpeedTable", "slowed"]

Floats = npt.NDArray[np.float64]
QUANTITIES = (
    "samples_per_s",
    "compute_s",
    "reader_s",
    "exchange_s",
    "server_cpu_s",
    "worker_cpu_s",
    "bytes_moved",
)
NOTHING = 1e-12  # replaces 0 in logarithms
AXES = 5  # workers, servers, worker_cores, server_cores, skew
BEYOND = 0.5  # the last slope is extrapolated this number of cells beyond the last point; then values are constant


class IterationSpeed(msgspec.Struct, frozen=True, gc=False):
    """The values of an `Observation` without noise. Times are seconds per iteration."""

    samples_per_s: float
    compute_s: float
    reader_s: float  # 0: workers never wait for the input
    exchange_s: float
    server_cpu_s: float  # of all PS; in sync mode of a whole step
    worker_cpu_s: float  # of one worker
    bytes_moved: float


class SpeedOracle(Protocol):
    """The true speed of one job. skew: share of the work on rows that one PS has beyond its even share."""

    @property
    def workload(self) -> Workload: ...

    @property
    def skew(self) -> float: ...

    def speed(self, configuration: Configuration, skew: float | None = None) -> IterationSpeed:
        """The undisturbed speed in a configuration. skew: None: the job's own."""
        ...

    def speeds(self, configurations: ConfigurationArray, skew: float | None = None) -> Floats:
        """The speeds in samples/s, float64 [n], for configurations float64 [n, 4]."""
        ...

    def on_cores(self, worker_speed: float, server_speed: float) -> SpeedOracle:
        """The same job on cores of other speeds, relative to usual ones."""
        ...


class SpeedTable:
    """The quantities of one scenario at the points of a lattice."""

    def __init__(self, name: str, workload: Workload, skew: float, axes: Sequence[Sequence[float]], logs: Floats):
        """axes: ascending values of workers, servers, worker_cores, server_cores (each > 0) and skew.
        logs: float [*lengths of the axes, 7], natural logarithms of QUANTITIES. Raises ValueError for other shapes and
        for axes with fewer than two points."""
        shape = (*(len(axis) for axis in axes), len(QUANTITIES))
        if len(axes) != AXES or logs.shape != shape or min(shape) < 2:
            raise ValueError(f"the table has shape {logs.shape}, its axes have {shape[:-1]} points (at least 2 each)")
        self.name, self.workload, self.skew = name, workload, skew
        self._axes = [[float(x) for x in np.log(axis)] for axis in axes[:4]] + [[float(x) for x in axes[4]]]
        self._logs = np.ascontiguousarray(logs.reshape(-1, len(QUANTITIES)), dtype=np.float64)
        self._strides = [int(np.prod(shape[place + 1 : AXES])) for place in range(AXES)]
        corners = [sum(step * stride for step, stride in zip(steps, self._strides, strict=True)) for steps in _STEPS]
        self._least, self._next = (np.array([axes[2][place], axes[3][place]], dtype=np.float64) for place in (0, 1))
        self._corners = np.array(corners, dtype=np.intp)

    def at(self, workers: float, servers: float, worker_cores: float, server_cores: float, skew: float) -> Floats:
        """Logarithms of all QUANTITIES in one configuration, float64 [7]."""
        if worker_cores < self._least[0] or server_cores < self._least[1]:
            points = np.array([[workers, servers, worker_cores, server_cores]], dtype=np.float64)
            return self._below(points, skew).reshape(-1)
        point = (*(float(x) for x in np.log((workers, servers, worker_cores, server_cores))), skew)
        base, weights = 0, np.ones(1)
        for axis, stride, value in zip(self._axes, self._strides, point, strict=True):
            cell = min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
            share = (value - axis[cell]) / (axis[cell + 1] - axis[cell])
            share = min(max(share, -BEYOND), 1.0 + BEYOND)
            base += cell * stride
            weights = np.multiply.outer(weights, (1.0 - share, share)).reshape(-1)
        found: Floats = weights @ self._logs[base + self._corners]
        return found

    def rates(self, points: Floats, skew: float) -> Floats:
        """Logarithms of samples_per_s, float64 [n], for float64 [n, 4] as in `at`."""
        found: Floats = self._between(points, skew, slice(0, 1))[:, 0]
        below = np.any(points[:, 2:] < self._least, axis=1)
        if below.any():
            found[below] = self._below(points[below], skew)[:, 0]
        return found

    def _between(self, points: Floats, skew: float, quantities: slice) -> Floats:
        """Interpolated logarithms, float64 [n, quantities]."""
        columns = [*np.log(points).T, np.full(len(points), skew)]
        base, weights = np.zeros(len(points), dtype=np.intp), np.ones((len(points), 1))
        for axis, stride, values in zip(self._axes, self._strides, columns, strict=True):
            edges = np.array(axis)
            cell = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(axis) - 2)
            share = (values - edges[cell]) / (edges[cell + 1] - edges[cell])
            share = np.clip(share, -BEYOND, 1.0 + BEYOND)
            base += cell * stride
            pair = np.stack([1.0 - share, share], axis=1)
            weights = (weights[:, :, None] * pair[:, None, :]).reshape(len(points), -1)
        found: Floats = np.einsum("nc,ncq->nq", weights, self._logs[base[:, None] + self._corners, quantities])
        return found

    def _below(self, points: Floats, skew: float) -> Floats:
        """Logarithms of all QUANTITIES, float64 [n, 7], where a worker or a PS has fewer cores than the table has."""
        kept = points.copy()
        kept[:, 2:] = np.maximum(points[:, 2:], self._least)
        shares = np.minimum(points[:, 2:] / self._least, 1.0)
        at, wider = self._values(kept, skew), []
        for place in (2, 3):
            other = kept.copy()
            # only below the least cores of the table: elsewhere the share is 1, and the rule changes nothing
            other[:, place] = np.where(shares[:, place - 2] < 1.0, self._next[place - 2], kept[:, place])
            wider.append(self._values(other, skew))
        slow = slower_workers(at, wider[0], shares[:, 0], kept[:, 0], self.workload)
        wider[1][:, 0] *= slow[:, 0] / at[:, 0]
        ratio = float(self._next[1] / self._least[1])
        return np.log(slower_servers(slow, wider[1], shares[:, 1], kept, skew, self.workload, ratio))

    def _values(self, points: Floats, skew: float) -> Floats:
        found: Floats = np.exp(self._between(points, skew, slice(None)))
        return found


_STEPS = tuple(product((0, 1), repeat=AXES))  # in the order in which `at` multiplies its weights


class ScaledSpeedTable(msgspec.Struct, frozen=True):
    """A job of a table's kind with its own costs. time_scale: factor on all costs. compute_scale, server_scale: factors
    on the costs that the cores of a worker and of a PS divide. own_skew: None: the table's."""

    table: SpeedTable
    time_scale: float = 1.0
    compute_scale: float = 1.0
    server_scale: float = 1.0
    own_skew: float | None = None

    @property
    def workload(self) -> Workload:
        workload = self.table.workload
        bandwidth = workload.bandwidth_bytes_per_s / self.time_scale  # bytes are the same, and take `time_scale` longer
        return msgspec.structs.replace(workload, bandwidth_bytes_per_s=bandwidth)

    @property
    def skew(self) -> float:
        return self.table.skew if self.own_skew is None else self.own_skew

    def on_cores(self, worker_speed: float, server_speed: float) -> ScaledSpeedTable:
        return msgspec.structs.replace(
            self, compute_scale=self.compute_scale / worker_speed, server_scale=self.server_scale / server_speed
        )

    def speed(self, configuration: Configuration, skew: float | None = None) -> IterationSpeed:
        c = configuration
        logs = self.table.at(
            c.workers,
            c.servers,
            c.worker_cores / self.compute_scale,
            c.server_cores / self.server_scale,
            self.skew if skew is None else skew,
        )
        rate, compute, reader, exchange, server_cpu, worker_cpu, moved = np.exp(logs).tolist()
        scale = self.time_scale
        return IterationSpeed(
            samples_per_s=rate / scale,
            compute_s=compute * scale,
            reader_s=reader * scale if reader > 2 * NOTHING else 0.0,
            exchange_s=exchange * scale,
            server_cpu_s=server_cpu * scale * self.server_scale,
            worker_cpu_s=worker_cpu * scale * self.compute_scale,
            bytes_moved=moved,
        )

    def speeds(self, configurations: ConfigurationArray, skew: float | None = None) -> Floats:
        points = configurations / np.array([1.0, 1.0, self.compute_scale, self.server_scale])
        found: Floats = np.exp(self.table.rates(points, self.skew if skew is None else skew)) / self.time_scale
        return found


def slowed(speed: IterationSpeed, workload: Workload, workers: int, slow: int, slow_speed: float) -> float:
    """The speed in samples/s if `slow` workers compute at `slow_speed` times the speed of the others.

    An iteration of a slow worker takes compute_s (1 / slow_speed - 1) seconds longer. async: the other workers do not
    wait, so the speed is the sum over all workers. sync, bounded: in the long run all workers have the speed of the
    slowest.
    """
    if slow <= 0:
        return speed.samples_per_s
    is_sync = workload.mode == "sync"
    iteration_s = (1 if is_sync else workers) * workload.batch_size / speed.samples_per_s
    relative = iteration_s / (iteration_s + speed.compute_s * (1.0 / slow_speed - 1.0))
    if workload.mode != "async":
        return speed.samples_per_s * relative
    slow = min(slow, workers)
    return speed.samples_per_s * (workers - slow + slow * relative) / workers
