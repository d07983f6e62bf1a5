"""Truth tables: results of the queue simulator on a lattice of configurations, stored in a file.

The simulation takes minutes, so the results are stored. `benchmarks.tuner.simulated --tabulate` makes them again, and a
test compares points of the file with the queue simulator.
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
STEP = 0.001  # resolution of the stored logarithms: a tenth of a percent
SEED = 1
LEAST_ITERATIONS, ITERATIONS = 80, 3000  # least number for each worker; number for all workers together
# workers, servers, worker_cores, server_cores, skew
AXES: tuple[tuple[float, ...], ...] = (
    (1, 2, 4, 8, 12, 16, 24, 32),
    (1, 2, 4, 8, 16),
    (1, 2, 4, 8, 16),
    (1, 2, 4, 8, 16),
    (0.0, 0.3, 0.6),
)
# only scenarios in which processes have their own cores: jobs of a cluster do not share the cores of a host
CLUSTER_SCENARIOS: tuple[Scenario, ...] = tuple(one for one in SCENARIOS if not one.shares_host)


def point(scenario: Scenario, configuration: Configuration, skew: float) -> npt.NDArray[np.float64]:
    """Logarithms of QUANTITIES from the queue simulator, float64 [7]."""
    iterations = max(LEAST_ITERATIONS, -(-ITERATIONS // configuration.workers))
    found = simulate(msgspec.structs.replace(scenario, skew=skew), configuration, iterations, SEED)
    values = [getattr(found, name) or 0.0 for name in QUANTITIES]
    return np.log(np.maximum(np.array(values, dtype=np.float64), NOTHING))


def tabulate(scenario: Scenario, axes: tuple[tuple[float, ...], ...] = AXES) -> Iterator[npt.NDArray[np.int16]]:
    """Yields the rows of the table, int16 [7] in units of STEP, in lexicographic order of the axes."""
    for workers, servers, worker_cores, server_cores, skew in product(*axes):
        configuration = Configuration(int(workers), int(servers), int(worker_cores), int(server_cores))
        yield np.round(point(scenario, configuration, skew) / STEP).astype(np.int16)


def write_tables(stream: IO[bytes], rows: Mapping[str, npt.NDArray[np.int16]]) -> None:
    """Writes the tables. rows: scenario -> int16 [points, 7]."""
    np.savez_compressed(stream, **rows)  # type: ignore[arg-type]


def read_tables(stream: IO[bytes], axes: tuple[tuple[float, ...], ...] = AXES) -> dict[str, SpeedTable]:
    """Reads the tables by scenario. Raises ConfigError if the file has other scenarios or axes."""
    shape = (*(len(axis) for axis in axes), len(QUANTITIES))
    found = {}
    with np.load(stream, allow_pickle=False) as kept:
        for scenario in CLUSTER_SCENARIOS:
            if scenario.name not in kept or kept[scenario.name].size != np.prod(shape):
                raise ConfigError(
                    f"the truth tables lack scenario {scenario.name!r}, or have another lattice",
                    hint="make them again with `python -m benchmarks.tuner.simulated --tabulate` (takes minutes)",
                )
            logs = kept[scenario.name].astype(np.float64).reshape(shape) * STEP
            found[scenario.name] = SpeedTable(scenario.name, scenario.workload, scenario.skew, axes, logs)
    return found


@cache
def tables() -> Mapping[str, SpeedTable]:
    """The stored tables by scenario."""
    with Path(__file__).with_name(FILE).open("rb") as stream:
        return read_tables(stream)
