"""The jobs of a simulation whose arrivals come from a trace file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.simulator.cluster.jobs import JobMix, SimulatedJob
from benchmarks.simulator.cluster.traces.replay import CORES_PER_GPU, replayed
from benchmarks.simulator.cluster.traces.trace import Trace, read_trace
from benchmarks.simulator.cluster.views import GrantLimits
from benchmarks.simulator.queueing import truth_tables

__all__ = ["TraceChoice", "jobs_of_trace", "period_for_load"]

HALVINGS = 40


class TraceChoice(msgspec.Struct, frozen=True):
    """A trace and how it is replayed. period_s: its periods of this length are laid over each other; 0: not folded.
    cores_per_gpu: asked cores for each asked GPU, if the trace tells no cores."""

    path: str
    period_s: float = 0.0
    cores_per_gpu: float = CORES_PER_GPU


@lru_cache(maxsize=4)
def _read(path: str) -> Trace:
    return read_trace(Path(path))


def jobs_of_trace(
    choice: TraceChoice, seed: int, count: int, mix: JobMix, limits: GrantLimits
) -> tuple[SimulatedJob, ...]:
    """The first `count` jobs of the trace. Raises ConfigError if it cannot be read."""
    return replayed(
        seed,
        _read(choice.path),
        mix,
        truth_tables.tables(),
        limits,
        count=count,
        period_s=choice.period_s,
        cores_per_gpu=choice.cores_per_gpu,
    )


def period_for_load(jobs: Sequence[SimulatedJob], cores: int, load: float) -> float:
    """The longest period in seconds for which these jobs, which arrive as in the trace, ask for this share of the cores
    from the first arrival to the last, if none has to wait. 0: they do without being folded."""
    arrived_s = np.array([job.arrived_s for job in jobs])
    lasts_s = np.array([job.samples / job.truth.speed(job.request).samples_per_s for job in jobs])
    asked = np.array([job.request.cores for job in jobs])

    def share(period_s: float) -> float:
        at_s = arrived_s % period_s
        last_s = max(float(at_s.max()), 1.0)
        return float((asked * np.minimum(lasts_s, last_s - at_s)).sum()) / (cores * last_s)

    low, high = 1.0, 2.0 * max(float(arrived_s.max()), 1.0)
    if share(high) >= load:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if share(middle) >= load else (low, middle)
    return low
