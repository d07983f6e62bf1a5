"""The status of a run: its state, its progress and its processes.

The supervisor writes it to `status.json` once a second, and the command line reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from elastichost.errors import PreflightError
from elastichost.run_files import STATUS_FILE

__all__ = [
    "FINISHED_STATES",
    "SCHEMA",
    "FrontierPoint",
    "GpuStatus",
    "PlanStatus",
    "ProcessStatus",
    "ProposedPlan",
    "RunStatus",
    "read_status",
]

SCHEMA = "elastichost/v1"

# States of a run that has ended. In every other state the run is active.
FINISHED_STATES = frozenset({"done", "quarantined", "incomplete", "stopped", "killed", "failed"})


class ProcessStatus(msgspec.Struct, frozen=True):
    """One process of a run, as measured in the last second."""

    role: str  # "worker" | "server" | "probe" | "reader"
    index: int
    incarnation: int
    pid: int | None  # None: it is not known yet, because the process has just been started
    state: str  # of the process' life cycle: starting, ready, running, draining, ...
    cores: tuple[int, ...] = ()  # the cores that it is pinned to; (): it may use all cores of the job
    cpu_percent: float | None = None  # 100: one core; None: not measured yet
    memory_bytes: int = 0  # PSS: the size of a shared page is divided among the processes that use it
    rss_bytes: int = 0
    context_switches: int = 0  # in the last second
    samples_per_s: float = 0.0
    wait_fraction: float = 0.0  # share of the time in which it waited for input, peers or requests
    compute_ms: float = 0.0  # forward and backward pass of one batch
    gpu_memory_bytes: int = 0
    input_wait_fraction: float = 0.0  # of a worker: the part of wait_fraction in which it waited for its input
    message_bytes_per_s: float = 0.0  # that it sent and received in messages
    anonymous_bytes: int = 0  # of its memory, what is neither in files nor in shared memory; 0: not known

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class PlanStatus(msgspec.Struct, frozen=True):
    """The numbers of processes in a plan. worker_cores: threads of each worker; 0: not known."""

    workers: int = 0
    servers: int = 0
    worker_cores: int = 0


class ProposedPlan(msgspec.Struct, frozen=True):
    """What the tuner of a run under the dispatcher would run next, until the dispatcher grants it.

    present: the plan for which it was proposed; with any other plan it is stale. kind, reason: of the decision."""

    present: PlanStatus
    wanted: PlanStatus
    kind: Literal["try", "move", "return", "settle"]
    reason: str


class FrontierPoint(msgspec.Struct, frozen=True):
    """A plan on the tuner's frontier: no plan with fewer threads has a higher expected speed."""

    workers: int
    servers: int
    worker_cores: int
    samples_per_s: float
    log_error: float = 0.0  # standard deviation of log(samples_per_s)


class StageStatus(msgspec.Struct, frozen=True):
    """One stage of the input over the last seconds: source, decode, prepare or train.

    cpu and the four kinds of waiting are seconds per second, summed over all workers and their threads or connections:
    for bytes of the source, for room in a full queue, for something in an empty one, and for a disk, a core or the
    interpreter. p50_s, p99_s: quantiles of the time of one request, unit or batch, of the slowest worker. occupancy:
    share of the threads, connections or places in use, 0 to 1."""

    stage: str
    cpu: float = 0.0
    waits_source: float = 0.0
    waits_room: float = 0.0
    waits_input: float = 0.0
    waits_other: float = 0.0
    bytes_per_s: float = 0.0
    items_per_s: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0
    occupancy: float = 0.0


class InputStatus(msgspec.Struct, frozen=True):
    """How each worker reads training data now, and what the stages of all workers did."""

    connections: int = 1
    decode_threads: int = 1
    prefetch_batches: int = 0
    prefetch_bytes: int = 0
    range_bytes: int = 0
    cache: str = "none"  # what was read is kept: "none", "disk" as it was fetched, "memory" decoded
    cached_bytes: int = 0  # decoded units in memory
    stages: tuple[StageStatus, ...] = ()


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of the run, as NVML told it. None: the driver does not tell, or nothing was measured yet.

    busy, memory_busy: share of the last second in which the GPU computed, and in which its memory was read or written,
    0 to 1, for all processes of the machine. used_bytes: likewise. own_busy, own_bytes: the part of this run's
    processes. received, sent: bytes per second over the bus. slowed_by: why its clock is lower than it could be.
    problem: why it does not answer, "" if it does."""

    index: int
    name: str
    total_bytes: int
    busy: float | None = None
    memory_busy: float | None = None
    own_busy: float | None = None
    used_bytes: int = 0
    own_bytes: int | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    slowed_by: tuple[str, ...] = ()
    problem: str = ""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a whole run. `status.json` holds this struct and is written once a second."""

    run_dir: str
    job: str
    state: str  # starting, training, evaluating, checkpointing, stopping, or one of FINISHED_STATES
    supervisor_pid: int
    schema: str = SCHEMA
    commands: str = ""  # address of the socket at which the supervisor accepts commands
    epoch: int = 0  # the first is 0
    epochs: int = 1
    samples_planned: int = 0  # over all epochs
    samples_trained: int = 0
    samples_per_s: float = 0.0
    eta_s: float | None = None
    loss: float | None = None  # mean over the samples of the last window of time
    test_auc: float | None = None  # of the last evaluation
    test_metrics: dict[str, float | None] = {}  # of the last evaluation: the further figures of `evaluate.metrics`
    processes: tuple[ProcessStatus, ...] = ()
    plan: PlanStatus = PlanStatus()
    last_decision: str = ""  # the newest decision of the tuner, with its reason
    elapsed_s: float = 0.0
    frontier: tuple[FrontierPoint, ...] = ()  # ordered by number of threads; empty before the first measurement
    proposal: ProposedPlan | None = None  # of the tuner; None: it keeps the plan, or does not ask the dispatcher
    is_measured: bool = True  # False: the tuner has not measured the present plan yet
    arena_bytes: int = 0  # memory that is allocated for the rows
    private_bytes: int = 0  # private memory of all processes of the run, including copies for checkpoints
    input: InputStatus | None = None  # None: no worker trains yet
    gpus: tuple[GpuStatus, ...] = ()  # those of this machine that the run uses


def read_status(run: Path) -> RunStatus:
    """The status that the supervisor wrote last. Raises PreflightError when the file is missing or cannot be read."""
    path = run / STATUS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStatus)
    except FileNotFoundError:
        raise PreflightError(f"{path}: the run has not written its status yet", hint="try again in a second") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreflightError(f"{path}: cannot be read: {error}") from error
