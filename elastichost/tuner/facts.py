"""Input and output values of the tuner: configurations, workloads, observations, predictions. Pure values.

An *iteration* is one batch of one worker. In sync mode it is one step of all workers together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["COLUMNS", "Configuration", "ConfigurationArray", "Observation", "Predictions", "Workload", "as_array"]

# float64 [n, 4], made by `as_array`: models predict many configurations at once
ConfigurationArray = npt.NDArray[np.float64]
COLUMNS = ("workers", "servers", "worker_cores", "server_cores")


class Configuration(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The number of workers and PS of a job, and the number of cores (threads) of each process."""

    workers: int
    servers: int
    worker_cores: int = 1
    server_cores: int = 1

    @property
    def cores(self) -> int:
        """Cores of all processes together, if no two processes share a core."""
        return self.workers * self.worker_cores + self.servers * self.server_cores

    def __str__(self) -> str:
        def count(number: int, what: str, cores: int) -> str:
            return f"{number} {what}" + (f" x {cores} cores" if cores != 1 else "")

        workers = count(self.workers, "worker" + "s" * (self.workers != 1), self.worker_cores)
        return f"{workers}, {count(self.servers, 'PS', self.server_cores)}"


def as_array(configurations: Sequence[Configuration]) -> ConfigurationArray:
    """Converts n configurations to float64 [n, 4], with the columns of COLUMNS."""
    rows = [(c.workers, c.servers, c.worker_cores, c.server_cores) for c in configurations]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(COLUMNS))


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a job that do not depend on its number of processes; constant while the job runs."""

    batch_size: int  # samples of an iteration: of one worker, or in sync mode of all workers together
    mode: Literal["async", "bounded", "sync"] = "async"
    access: Literal["direct", "served"] = "direct"
    host_cores: int = 0  # cores that all processes share; 0: each process has cores of its own
    dense_bytes: int = 0  # size of the parameters of the dense part
    row_bytes: int = 0  # bytes that one sample reads from the tables: ids x dim x 4
    ids_per_sample: float = 0.0
    has_gpus: bool = False  # workers compute on GPUs
    gpus: int = 0  # each has one worker, and workers beyond their number compute on the CPU; 0: all are of one kind
    bandwidth_bytes_per_s: float = 0.0  # between a worker and a PS; 0: they share memory, and no network is used
    # Cores of each host, where processes are on several hosts. Then the bandwidth is that of the links between hosts,
    # and traffic between a worker and a PS of the same host crosses no link. (): every PS has a link of its own.
    host_capacity: tuple[int, ...] = ()


class Observation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One block of undisturbed training in one configuration, with the times that its processes measured.

    Times are seconds per iteration, means over the block. None: not measured."""

    configuration: Configuration
    samples_per_s: float  # of all workers together: robust mean over the windows of the block (`profile.speed_of`)
    log_error: float  # standard error of log(samples_per_s), corrected for the autocorrelation of the windows
    seconds: float = 0.0
    iterations: int = 0
    at_s: float = 0.0
    hot_share: float | None = None  # load of the busiest PS as a share of the load of all PS; None: 1 / servers
    compute_s: float | None = None  # forward and backward pass of a batch, in one worker
    reader_s: float | None = None  # reading and preparing a batch, when a separate pipeline does it
    exchange_s: float | None = None  # pulls and pushes of a batch, measured in the worker
    server_cpu_s: float | None = None  # CPU time of all PS
    worker_cpu_s: float | None = None  # CPU time of the worker
    bytes_moved: float | None = None  # between the worker and all PS
    training_cpu_s: float | None = None  # CPU time of the worker's training thread, a part of `worker_cpu_s`
    # The part of `samples_per_s` that workers with a GPU trained. With CPU workers beside them all times are those of
    # the CPU workers. None: not measured apart.
    gpu_samples_per_s: float | None = None


class Predictions(msgspec.Struct, frozen=True):
    """Predicted speeds of n configurations; float64 [n] and bool [n]."""

    samples_per_s: npt.NDArray[np.float64]  # median
    log_error: npt.NDArray[np.float64]  # standard deviation of log(samples_per_s)
    low: npt.NDArray[np.float64]  # 90 % interval
    high: npt.NDArray[np.float64]
    is_extrapolated: npt.NDArray[np.bool_]  # depends on parameters that neither observations nor a prior determine
