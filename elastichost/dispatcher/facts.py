"""What the dispatcher knows and shows of its jobs: written to `host.json` once a second, read by the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from elastichost.errors import PreflightError
from elastichost.metrics import SCHEMA, RunStatus

__all__ = [
    "BUSY",
    "ENDED_STATES",
    "FAILURE_FILE",
    "HOST_FILE",
    "JOB_FILE",
    "OVER_STATES",
    "HostStatus",
    "JobFailure",
    "JobObservation",
    "JobRequest",
    "JobSample",
    "JobState",
    "JobStatus",
    "Size",
    "read_host",
]

HOST_FILE = "host.json"
BUSY = 0.9  # share of the host's cores in use from which a job may be held up by others
# Of every job, below jobs/<name>/: as it was submitted, resolved; why it could not run.
JOB_FILE, FAILURE_FILE = "job.toml", "failure.json"

JobState = Literal["waiting", "starting", "running", "paused", "stopping", "done", "failed", "cancelled", "stopped"]
ENDED_STATES: frozenset[str] = frozenset({"done", "failed", "cancelled", "stopped"})
OVER_STATES = ENDED_STATES - {"stopped"}  # for good: the next dispatcher has nothing to do with it


class JobSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job over the last moment: seconds of it, samples trained, CPU seconds of its workers and of all its processes;
    host_share: of the host's cores that were in use by anybody. gpu_s, gpu_memory_s: seconds in which a GPU computed
    for it, and moved memory for it, None: it is on none; gpu_share: of the moment in which that GPU computed at all."""

    seconds: float
    samples: float
    worker_cpu_s: float
    all_cpu_s: float
    workers: int
    host_share: float
    gpu_s: float | None = None
    gpu_memory_s: float = 0.0
    gpu_share: float = 0.0

    @property
    def is_crowded(self) -> bool:
        """Somebody may have held it up."""
        return self.host_share >= BUSY or self.gpu_share >= BUSY


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that was submitted. job: its name on this host, unlike any other's; folder: where its resolved job file
    lies; working_directory: of whoever submitted it, from which its modules are imported; run_dir: where it runs.
    shape: digest of all of it but name and seed."""

    job: str
    folder: str
    working_directory: str
    run_dir: str
    submitted_utc: str
    weight: float = 1.0
    shape: str = ""


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the dispatcher chose for a job to begin with."""

    workers: int
    servers: int
    worker_cores: int


class JobFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job ended with an error: `failure.json` in its folder. last_error: where `kind` is that a process was
    restarted too often, what it reported last. Both are class names, of `errors` where elastichost raised them."""

    kind: str
    message: str
    hint: str = ""
    last_error: str = ""


class JobObservation(msgspec.Struct, frozen=True):
    """A job's run as it stands. look: over the time since the last one, None: too little of it has passed.
    memory_bytes: rows, copies and private memory as its supervisor measures them, without what all jobs share since
    they were forked; grown_bytes: what its workers and PS have taken since that was measured: this is seen at once.
    gpu_memory_bytes: of all its processes, as the driver says; 0 where it names no processes.
    status: None: none was written yet."""

    job: str
    status: RunStatus | None
    look: JobSample | None
    cpu_cores: float
    memory_bytes: int
    grown_bytes: int
    pids: tuple[int, ...]
    gpu_memory_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        return self.memory_bytes + self.grown_bytes


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are seconds since the dispatcher began; of a job that was over before a batch was gone on with,
    since the one before that began. `why`: of its state, in words: why it waits, why it was
    started where it is, how it failed."""

    job: str
    state: JobState
    run_dir: str
    why: str = ""
    kind: str = ""
    submitted_s: float = 0.0
    started_s: float | None = None  # for the first time
    ended_s: float | None = None
    starts: int = 0  # it was started so often: more than once after an eviction or for want of memory
    workers: int = 0
    servers: int = 0
    worker_cores: int = 0
    cores: tuple[int, ...] = ()  # its processes may use these
    gpu: int | None = None
    samples_planned: int = 0
    samples_trained: int = 0
    samples_per_s: float = 0.0
    solo_samples_per_s: float = 0.0  # what it would train alone, as far as is known
    predicted_speed: float = 0.0  # beside the others, as a share of that
    cpu_cores: float = 0.0  # used in the last second
    cpu_s: float = 0.0  # CPU seconds of all its processes, from their starts to their ends; 0 until it has ended
    memory_bytes: int = 0  # of its own, now
    peak_bytes: int = 0
    estimated_bytes: int = 0  # before it started, for as many workers as it had at its peak
    charged_bytes: int = 0
    gpu_memory_bytes: int = 0
    exit_code: int | None = None
    out_of_memory: int = 0  # so often
    test_auc: float | None = None


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of one dispatcher; `host.json` is this struct."""

    directory: str
    pid: int
    commands: str
    policy: str
    schema: str = SCHEMA
    state: str = "running"  # starting | running | stopping | ended
    cores: int = 0
    memory_bytes: int = 0  # that all jobs together may have
    charged_bytes: int = 0
    used_bytes: int = 0
    cpu_cores: float = 0.0
    gpus: int = 0
    elapsed_s: float = 0.0
    jobs: tuple[JobStatus, ...] = ()
    isolation: tuple[str, ...] = ()  # in words, what keeps jobs apart here
    last_decision: str = ""


def read_host(directory: Path) -> HostStatus:
    """What the dispatcher last wrote. Raises PreflightError when there is nothing, or nothing readable."""
    path = directory / HOST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=HostStatus)
    except FileNotFoundError:
        raise PreflightError(f"{path}: no host has written its status here") from None
    except (OSError, msgspec.DecodeError) as error:
        raise PreflightError(f"{path}: cannot be read: {error}") from error
