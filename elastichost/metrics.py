"""Facts about a run that are shown and stored: its processes, its state, its events.

The supervisor writes them (`status.json`, `journal.jsonl`), the command line reads them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.errors import PreflightError

__all__ = [
    "FINISHED_STATES",
    "SCHEMA",
    "FrontierPoint",
    "PlanStatus",
    "ProcessStatus",
    "RunStatus",
    "read_status",
]

SCHEMA = "elastichost/v1"

# States of a run that has ended; every other state says what it is doing.
FINISHED_STATES = frozenset({"done", "quarantined", "incomplete", "stopped", "killed", "failed"})


class ProcessStatus(msgspec.Struct, frozen=True):
    """One process as measured in the last second."""

    role: str  # "worker" | "server" | "probe"
    index: int
    incarnation: int
    pid: int
    state: str  # of the process' life: starting, ready, running, draining, ...
    cores: tuple[int, ...] = ()  # pinned to these; (): floats over all cores of the job
    cpu_percent: float | None = None  # of one core; None: not measured yet
    memory_bytes: int = 0  # PSS: shared pages are divided among their users
    rss_bytes: int = 0
    context_switches: int = 0  # in the last second
    samples_per_s: float = 0.0
    wait_fraction: float = 0.0  # of the time: waiting for input, peers or requests
    compute_ms: float = 0.0  # forward and backward of one batch
    gpu_memory_bytes: int = 0

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class PlanStatus(msgspec.Struct, frozen=True):
    """How many processes of each role should run."""

    workers: int = 0
    servers: int = 0


class FrontierPoint(msgspec.Struct, frozen=True):
    """A plan that the run's tuner knows of: none with fewer threads is expected to be faster."""

    workers: int
    servers: int
    worker_cores: int
    samples_per_s: float
    log_error: float = 0.0  # standard deviation of log(samples_per_s)


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a whole; `status.json` is this struct, written once a second."""

    run_dir: str
    job: str
    state: str  # starting, training, evaluating, checkpointing, stopping, or one of FINISHED_STATES
    supervisor_pid: int
    schema: str = SCHEMA
    commands: str = ""  # where the supervisor takes commands
    epoch: int = 0  # from 0
    epochs: int = 1
    samples_planned: int = 0  # over all epochs
    samples_trained: int = 0
    samples_per_s: float = 0.0
    eta_s: float | None = None
    loss: float | None = None  # mean over the samples of the last window
    test_auc: float | None = None  # of the last evaluation
    processes: tuple[ProcessStatus, ...] = ()
    plan: PlanStatus = PlanStatus()
    last_decision: str = ""  # what the tuner decided, and why
    elapsed_s: float = 0.0
    frontier: tuple[FrontierPoint, ...] = ()  # by rising threads; empty until something was measured
    arena_bytes: int = 0  # memory that the rows really use
    private_bytes: int = 0  # of all its processes, copies for checkpoints included


def read_status(run: Path) -> RunStatus:
    """What the supervisor last wrote. Raises PreflightError when there is nothing, or nothing readable."""
    path = run / "status.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStatus)
    except FileNotFoundError:
        raise PreflightError(f"{path}: the run has not written its status yet", hint="try again in a second") from None
    except (OSError, msgspec.DecodeError) as error:
        raise PreflightError(f"{path}: cannot be read: {error}") from error
