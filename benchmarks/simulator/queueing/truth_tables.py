"""Truth tables: what the queue simulator finds at a lattice of configurations, kept as a file of the package.

Simulating them takes minutes, so they are kept; `benchmarks.tuner.simulated --tabulate` makes them anew, and a test
compares points of the file with the queue simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing.fork_join import simulate
from benchmarks.simulator.queueing.job_speed import NOTHING, QUANTITIES, SpeedTable
from elastichost.emulation.scenarios import SCENARIOS, Scenario
from elastichost.errors import ConfigError
from elastichost.tuner.facts import Configuration

__all__ = ["AXES", "CLUSTER_SCENARIOS", "FILE", "point", "read_tables", "tables", "tabulate", "write_tables"]

FILE = "truth_tables.npz"
STEP = 0.001  # of the logarithms that are kept: a tenth of a percent
SEED = 1
LEAST_ITERATIONS, ITERATIONS = 80, 3000  # of each worker, of all workers together
# workers, servers, worker_cores, server_cores, skew
AXES: tuple[tuple[float, ...], ...] = (
    (1, 2, 4, 8, 12, 16, 24, 32),
    (1, 2, 4, 8, 16),
    (1, 2, 4, 8, 16),
    (1, 2, 4, 8, 16),
    (0.0, 0.3, 0.6),
)
# those whose processes have cores of their own: a job that shares a host's cores is no job of a cluster
CLUSTER_SCENARIOS: tuple[Scenario, ...] = tuple(one for one in SCENARIOS if not one.shares_host)


def point(scenario: Scenario, configuration: Configuration, skew: float) -> npt.NDArray[np.float64]:
    """Logarithms of QUANTITIES, float64 [7], as the queue simulator has them."""
    iterations = max(LEAST_ITERATIONS, -(-ITERATIONS // configuration.workers))
    found = simulate(msgspec.structs.replace(scenario, skew=skew), configuration, iterations, SEED)
    values = [getattr(found, name) or 0.0 for name in QUANTITIES]
    return np.log(np.maximum(np.array(values, dtype=np.float64), NOTHING))


def tabulate(scenario: Scenario, axes: tuple[tuple[float, ...], ...] = AXES) -> Iterator[npt.NDArray[np.int16]]:
    """One row of the table after another, int16 [7] in units of STEP, in lexicographic order of the axes."""
    for workers, servers, worker_cores, server_cores, skew in product(*axes):
        configuration = Configuration(int(workers), int(servers), int(worker_cores), int(server_cores))
        yield np.round(point(scenario, configuration, skew) / STEP).astype(np.int16)


def write_tables(stream: IO[bytes], rows: Mapping[str, npt.NDArray[np.int16]]) -> None:
    """rows: by scenario, int16 [points, 7]."""
    np.savez_compressed(stream, **rows)  # type: ignore[arg-type]


def read_tables(stream: IO[bytes], axes: tuple[tuple[float, ...], ...] = AXES) -> dict[str, SpeedTable]:
    """By scenario. Raises ConfigError when the file is of other scenarios or axes."""
    shape = (*(len(axis) for axis in axes), len(QUANTITIES))
    found = {}
    with np.load(stream, allow_pickle=False) as kept:
        for scenario in CLUSTER_SCENARIOS:
            if scenario.name not in kept or kept[scenario.name].size != np.prod(shape):
                raise ConfigError(
                    f"the truth tables lack scenario {scenario.name!r}, or are of another lattice",
                    hint="python -m benchmarks.tuner.simulated --tabulate makes them anew (minutes)",
                )
            logs = kept[scenario.name].astype(np.float64).reshape(shape) * STEP
            found[scenario.name] = SpeedTable(scenario.name, scenario.workload, scenario.skew, axes, logs)
    return found


@cache
def tables() -> Mapping[str, SpeedTable]:
    """Those of the package, by scenario."""
    with Path(__file__).with_name(FILE).open("rb") as stream:
        return read_tables(stream)
