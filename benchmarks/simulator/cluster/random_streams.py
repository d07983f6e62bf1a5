"""The random events of one job: the noise of its measurements, and its incidents. Pure; a function of seed and job.

They do not depend on the policy. The k-th block of a job has the same noise under every policy. Incidents have times
since the arrival of the job and hit slots; they have an effect only while the job has a process in that slot
(thinning). So policies can be compared seed by seed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster import calibration

__all__ = ["BlockNoise", "Incident", "IncidentRates", "IncidentStream", "MeasurementNoise", "generator"]

CHUNK = 32  # number of blocks for which noise is drawn at a time
DIRECT = 7  # number of quantities with separate noise: six timings, and the hot share
# the assumptions of an observer, as in `tuner.policy.profile`
USUAL_CORRELATION, LEAST_ERROR = 0.65, 0.004
MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean, of independent windows
Stream = Literal["noise", "incidents", "host", "job", "arrivals"]
STREAMS: dict[Stream, int] = {"noise": 0, "incidents": 1, "host": 2, "job": 3, "arrivals": 4}


def generator(seed: int, stream: Stream, index: int) -> np.random.Generator:
    """An independent generator for each combination of arguments."""
    return np.random.Generator(np.random.SFC64([seed, STREAMS[stream], index]))


class BlockNoise(msgspec.Struct, frozen=True, gc=False):
    """The noise of one block. offset: measured log speed - true log speed. log_error: the error that an observer
    estimates. direct: measured / true value of each direct timing. uniform: a uniform draw for the slowest of several
    workers."""

    offset: float
    log_error: float
    direct: list[float]
    uniform: float


class MeasurementNoise:
    """The noise of successive blocks. The log rates of windows are an AR(1) process, x' = rho x + sqrt(1 - rho^2) sd e
    with standard normal e; the speed of a block is the median of its windows."""

    def __init__(self, seed: int, job: int, cov: float, rho: float, windows: int) -> None:
        """cov: coefficient of variation of the speeds of windows. rho: their autocorrelation. windows: per block."""
        self.sd = math.sqrt(math.log1p(cov * cov))
        effective = windows * (1 - rho) / (1 + rho)
        # the true error of a block's offset: the median of correlated windows is hardly worse than their mean
        self.log_error = self.sd / math.sqrt(max(1.0, effective))
        self._seed, self._job, self._rho, self._windows = seed, job, rho, windows
        self._generator: np.random.Generator | None = None
        self._last = 0.0
        self._blocks: list[BlockNoise] = []

    def of_block(self, index: int) -> BlockNoise:
        while index >= len(self._blocks):
            self._draw()
        return self._blocks[index]

    def _draw(self) -> None:
        if self._generator is None:
            self._generator = generator(self._seed, "noise", self._job)
            self._last = self.sd * float(self._generator.standard_normal())
        random = self._generator
        response, fading = _ar1(self._rho, self._windows)
        shocks = self.sd * math.sqrt(1 - self._rho**2) * random.standard_normal((CHUNK, self._windows))
        rows = shocks @ response
        for row in rows:
            row += fading * self._last
            self._last = float(row[-1])
        effective = max(1.0, self._windows * (1 - USUAL_CORRELATION) / (1 + USUAL_CORRELATION))
        errors = np.maximum(LEAST_ERROR, rows.std(axis=1, ddof=1) * MEDIAN_OVER_MEAN / math.sqrt(effective))
        direct = np.exp(calibration.DIRECT_LOG_ERROR * random.standard_normal((CHUNK, DIRECT))).tolist()
        columns = zip(_medians(rows), errors.tolist(), direct, random.random(CHUNK).tolist(), strict=True)
        self._blocks.extend(BlockNoise(*row) for row in columns)


@lru_cache(maxsize=4096)
def _ar1(rho: float, windows: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The response of a block's windows to its shocks, float64 [windows, windows], and to the window before the block,
    float64 [windows]."""
    lags = np.arange(windows)[None, :] - np.arange(windows)[:, None]
    response: npt.NDArray[np.float64] = np.where(lags >= 0, np.power(rho, np.maximum(lags, 0)), 0.0)
    fading: npt.NDArray[np.float64] = np.power(rho, np.arange(1.0, windows + 1))
    return response, fading


def _medians(rows: npt.NDArray[np.float64]) -> list[float]:
    """The median of each row; np.median takes three times as long."""
    middle = rows.shape[1] // 2
    ordered = np.partition(rows, (middle - 1, middle), axis=1)
    low = ordered[:, middle if rows.shape[1] % 2 else middle - 1]
    found: list[float] = ((low + ordered[:, middle]) / 2).tolist()
    return found


class IncidentRates(msgspec.Struct, frozen=True):
    """Incidents per hour, for each process, worker, job and host. 0: never."""

    process_failures: float = calibration.PROCESS_FAILURES_PER_HOUR
    stragglers: float = calibration.STRAGGLERS_PER_HOUR
    hot: float = calibration.HOT_PER_HOUR
    host_failures: float = calibration.HOST_FAILURES_PER_HOUR


class Incident(msgspec.Struct, frozen=True, gc=False):
    """An incident of one job. slot: of a process; workers first, then PS. size: seconds that a straggler stays slow, or
    the share of the work on rows that becomes hot."""

    kind: Literal["failure", "straggler", "hot"]
    after_s: float  # since the job arrived
    slot: int
    size: float


class IncidentStream:
    """The endless stream of incidents of one job."""

    def __init__(self, seed: int, job: int, rates: IncidentRates, worker_slots: int, server_slots: int) -> None:
        self._generator: np.random.Generator | None = None
        self._seed, self._job = seed, job
        self._workers, self._slots = worker_slots, worker_slots + server_slots
        self._each = (rates.process_failures * self._slots, rates.stragglers * worker_slots, rates.hot)
        self._after_s = 0.0

    def next(self) -> Incident | None:
        """Returns the next incident; None: all rates are 0."""
        total = sum(self._each)
        if total <= 0:
            return None
        if self._generator is None:
            self._generator = generator(self._seed, "incidents", self._job)
        draws = self._generator.random(4).tolist()
        self._after_s -= math.log1p(-draws[0]) * 3600.0 / total
        which = draws[1] * total
        if which < self._each[0]:
            return Incident("failure", self._after_s, int(draws[2] * self._slots), 0.0)
        if which < self._each[0] + self._each[1]:
            lasts_s = -math.log1p(-draws[3]) * calibration.STRAGGLE_MEAN_S
            return Incident("straggler", self._after_s, int(draws[2] * self._workers), lasts_s)
        low, high = calibration.HOT_LEVELS
        return Incident("hot", self._after_s, 0, low + (high - low) * draws[3])
