"""Recorded grids of real runs as worlds: the true speed is the mean over all rounds, and a visit gets one of the
blocks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing.job_speed import IterationSpeed
from benchmarks.tuner.recorded_grid import GridCase, read_grids
from benchmarks.tuner.search.world import Costs, Met
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Workload
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.profile import MEDIAN_OVER_MEAN, USUAL_CORRELATION

__all__ = ["Recorded", "RecordedTruth", "recorded_worlds", "window_cov"]

WINDOW_S = 0.5
Floats = npt.NDArray[np.float64]
Sizes = tuple[int, int, int]  # workers, servers, worker_cores


class Recorded(msgspec.Struct, frozen=True):
    """One case of one grid."""

    grid: str
    case: str

    @property
    def name(self) -> str:
        return f"real {self.case}"

    @property
    def workload(self) -> Workload:
        return _case(self).workload

    @property
    def bounds(self) -> Bounds:
        return _case(self).bounds

    @property
    def default(self) -> Configuration:
        """One worker for each core and one PS, as in `cold_start`."""
        return Configuration(min(self.workload.host_cores, self.bounds.most.workers), self.bounds.least.servers)

    def draw(self, random: np.random.Generator) -> tuple[Costs, float, float]:
        """The costs and noise of a family: the case itself, with the noise of the median block."""
        cov = float(np.median([window_cov(block) for block in _case(self).blocks]))
        return Costs(), cov, USUAL_CORRELATION

    def features(self, seed: int, costs: Costs) -> JobFeatures:
        of = self.workload
        return JobFeatures(
            family=_case(self).job,
            name=self.case,
            ids_per_sample=of.ids_per_sample,
            dense_bytes=of.dense_bytes,
            batch_size=of.batch_size,
            mode=of.mode,
            access=of.access,
            host_cores=of.host_cores,
        )

    def truth(self, costs: Costs) -> RecordedTruth:
        """The truth with scaled times. Other costs cannot be changed, because the grid has no such measurements."""
        return RecordedTruth(self, costs.time)


def recorded_worlds() -> tuple[Recorded, ...]:
    """The worlds of all grids in the repository; empty without grids."""
    return tuple(Recorded(name, case) for name, case in _cases())


@lru_cache(maxsize=1)
def _cases() -> Mapping[tuple[str, str], GridCase]:
    return {(name, case.name): case for name, grid in read_grids() for case in grid.cases}


def _case(of: Recorded) -> GridCase:
    return _cases()[of.grid, of.case]


@lru_cache(maxsize=64)
def _blocks(of: Recorded) -> Mapping[Sizes, tuple[Observation, ...]]:
    found: dict[Sizes, list[Observation]] = {}
    for block in _case(of).blocks:
        one = block.configuration
        found.setdefault((one.workers, one.servers, one.worker_cores), []).append(block)
    return {sizes: tuple(blocks) for sizes, blocks in found.items()}


def window_cov(block: Observation) -> float:
    """The coefficient of variation of the windows of a block, from the error that `profile.log_error_of` gave it."""
    rho, windows = USUAL_CORRELATION, max(3.0, block.seconds / WINDOW_S)
    effective = max(1.0, windows * (1 - rho) / (1 + rho))
    return block.log_error * math.sqrt(effective * max(0.3, 1 - 1 / effective)) / MEDIAN_OVER_MEAN


class RecordedTruth(msgspec.Struct, frozen=True):
    """Implements `world.Truth`. time: factor on all times."""

    of: Recorded
    time: float = 1.0

    @property
    def workload(self) -> Workload:
        return self.of.workload

    @property
    def log_error(self) -> float:
        """The standard error, from the differences between rounds over all configurations."""
        several = [np.log([b.samples_per_s for b in blocks]) for blocks in _blocks(self.of).values() if len(blocks) > 1]
        return math.sqrt(float(np.mean([logs.var(ddof=1) / len(logs) for logs in several]))) if several else 0.0

    def speed(self, configuration: Configuration) -> float:
        logs = [share * _mean_log(self.of, sizes) for sizes, share in self._known(configuration)]
        return math.exp(math.fsum(logs)) / self.time

    def speeds(self, configurations: ConfigurationArray) -> Floats:
        rows = configurations.astype(int).tolist()
        return np.array([self.speed(Configuration(*row)) for row in rows], dtype=np.float64)

    def met(self, configuration: Configuration, random: np.random.Generator) -> Met:
        """One of the blocks of the configuration. For a number of PS between recorded ones, a block of a nearest
        number, scaled to the true speed."""
        sizes, _ = max(self._known(configuration), key=lambda known: known[1])
        blocks = _blocks(self.of)[sizes]
        block = blocks[int(random.integers(len(blocks)))]
        faster = self.speed(configuration) / math.exp(_mean_log(self.of, sizes))
        timed = {
            name: getattr(block, name) or 0.0 for name in IterationSpeed.__struct_fields__ if name != "samples_per_s"
        }
        timed = {name: value if name == "bytes_moved" else value * self.time for name, value in timed.items()}
        even = 1 / configuration.servers
        return Met(IterationSpeed(block.samples_per_s * faster, **timed), max(even, min(1.0, block.hot_share or even)))

    def mean(self, configuration: Configuration) -> tuple[IterationSpeed, float]:
        """The mean of all blocks of the configuration or of the nearest number of PS, and the load share of the busiest
        PS."""
        sizes, _ = max(self._known(configuration), key=lambda known: known[1])
        blocks = _blocks(self.of)[sizes]

        def timed(name: str) -> float:
            return float(np.mean([getattr(block, name) or 0.0 for block in blocks]))

        times = {
            name: timed(name) * (1.0 if name == "bytes_moved" else self.time)
            for name in IterationSpeed.__struct_fields__
            if name != "samples_per_s"
        }
        even = 1 / configuration.servers
        share = float(np.mean([block.hot_share or even for block in blocks]))
        return IterationSpeed(math.exp(_mean_log(self.of, sizes)) / self.time, **times), max(even, min(1.0, share))

    def _known(self, configuration: Configuration) -> list[tuple[Sizes, float]]:
        """The recorded sizes at or next to this number of PS, with their weights for the logarithm of the speed. Raises
        KeyError for a configuration outside of the grid."""
        blocks, one = _blocks(self.of), configuration
        counts = sorted(p for w, p, c in blocks if (w, c) == (one.workers, one.worker_cores))
        if not counts:
            raise KeyError(f"{configuration} is not in {self.of.name}")
        below = max((p for p in counts if p <= one.servers), default=counts[0])
        above = min((p for p in counts if p >= one.servers), default=counts[-1])
        if below == above:
            return [((one.workers, below, one.worker_cores), 1.0)]
        share = math.log(one.servers / below) / math.log(above / below)
        return [((one.workers, below, one.worker_cores), 1 - share), ((one.workers, above, one.worker_cores), share)]


@lru_cache(maxsize=4096)
def _mean_log(of: Recorded, sizes: Sizes) -> float:
    return float(np.mean([math.log(block.samples_per_s) for block in _blocks(of)[sizes]]))
