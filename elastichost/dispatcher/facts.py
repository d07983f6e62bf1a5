"""Values that the dispatcher writes to files or shows: requests, observations and failures of jobs, and the status of
the host in `host.json`, which the command line reads."""

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
BUSY = 0.9  # share of the cores (or of a GPU) in use from which others may slow a job
LEAST_CORE_WAIT = 0.1  # share of its time without a core from which others may have slowed a job
CROWDED_WAIT = 0.25  # share of its time for which a worker on busy cores lacks one, where the kernel does not tell
# Files of a job in jobs/<name>/: the resolved job file, and the reason of a failure.
JOB_FILE, FAILURE_FILE = "job.toml", "failure.json"

JobState = Literal["waiting", "starting", "running", "paused", "stopping", "done", "failed", "cancelled", "stopped"]
ENDED_STATES: frozenset[str] = frozenset({"done", "failed", "cancelled", "stopped"})
OVER_STATES = ENDED_STATES - {"stopped"}  # the next dispatcher does not continue these


class JobSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement of a job over `seconds`.

    samples: trained in that time. worker_cpu_s, all_cpu_s: CPU seconds of its workers, and of all its processes.
    workers: number of its workers. host_share: cores that all processes of the host used, as a share of those that
    jobs may use. gpu_s: seconds in which a GPU computed for the job; None: it uses no GPU. gpu_memory_s: seconds in
    which the GPU moved memory for it. gpu_share: share of the time in which the GPU computed for any process.
    link_bytes: moved over the bus to its GPU or from it, whichever is more; None: the driver does not tell, or others
    use that GPU too.

    read_bytes: that its workers read from files, pipes and devices; None: the kernel does not tell. input_wait_s:
    seconds in which its workers waited for input, summed over them; None: they do not tell. core_wait_s:
    seconds in which a worker was ready to run and had no core, of the thread of each worker that waited longest, summed
    over workers; None: the kernel does not tell. traffic_bytes: moved between memory and caches, as the processor
    counts them; None: it does not. message_bytes: of messages between its processes."""

    seconds: float
    samples: float
    worker_cpu_s: float
    all_cpu_s: float
    workers: int
    host_share: float
    gpu_s: float | None = None
    gpu_memory_s: float = 0.0
    gpu_share: float = 0.0
    link_bytes: float | None = None
    read_bytes: float | None = None
    input_wait_s: float | None = None
    core_wait_s: float | None = None
    traffic_bytes: float | None = None
    message_bytes: float = 0.0

    @property
    def input_wait_share(self) -> float:
        """Share of the workers' time in which they waited for input; 0 where it is not known."""
        return min(1.0, (self.input_wait_s or 0.0) / max(1e-9, self.seconds * self.workers))

    @property
    def core_wait_share(self) -> float:
        """Share of the workers' time in which they were ready to run and had no core. Where the kernel does not tell,
        an assumption: CROWDED_WAIT while the cores of the host are busy, else nothing."""
        if self.core_wait_s is None:
            return CROWDED_WAIT if self.host_share >= BUSY else 0.0
        return min(1.0, self.core_wait_s / max(1e-9, self.seconds * self.workers))

    @property
    def is_crowded(self) -> bool:
        """Whether other processes may have slowed the job: it lacked a core, or others used its GPU."""
        return self.core_wait_share > LEAST_CORE_WAIT or self.gpu_share >= BUSY


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that was submitted. job: its unique name on this host. folder: contains its resolved job file.
    working_directory: the user's directory at submission, from which its modules are imported. run_dir: its run
    directory. submitted_utc: ISO 8601. weight: a job with weight 2 counts like two jobs with weight 1. shape: digest of
    everything except name and seed (`core.shapes`)."""

    job: str
    folder: str
    working_directory: str
    run_dir: str
    submitted_utc: str
    weight: float = 1.0
    shape: str = ""


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size that the dispatcher chose for a job: workers, PS, and threads of each worker."""

    workers: int
    servers: int
    worker_cores: int


class JobFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job ended with an error; the content of `failure.json` in its folder. kind: class name of the error.
    last_error: if `kind` is RestartBudgetError, the class name of the last error that the process reported."""

    kind: str
    message: str
    hint: str = ""
    last_error: str = ""


class JobObservation(msgspec.Struct, frozen=True):
    """The state of a job's run now.

    status: the newest status of the run; None: none was written yet. look: a measurement since the last one; None: too
    little time has passed. cpu_cores: cores in use, smoothed over about a second. memory_bytes: rows, copies and
    private memory as the job's supervisor measures them, without pages that all jobs share with the process that they
    were forked from. grown_bytes: memory that workers and PS have taken since that measurement, less what they have
    given back. pids: all processes of the job. gpu_memory_bytes: GPU memory of these processes; 0 if the driver names
    no processes."""

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
        """The memory that the job uses now."""
        return self.memory_bytes + self.grown_bytes


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one job. Times are seconds since the dispatcher began; for a job that ended before a batch was
    resumed, since the earlier dispatcher began. why: the reason of its state: why it waits, why it was started there,
    how it failed. kind: the class of its demand (`tuner.colocation.kinds`); "": it was never started."""

    job: str
    state: JobState
    run_dir: str
    why: str = ""
    kind: str = ""
    own_tuner: str = ""  # what its run's own tuner proposes or has got, in words
    submitted_s: float = 0.0
    started_s: float | None = None  # for the first time
    ended_s: float | None = None
    starts: int = 0  # number of starts; more than one after an eviction, or after it ran out of memory
    workers: int = 0
    servers: int = 0
    worker_cores: int = 0
    cores: tuple[int, ...] = ()  # that its processes may use
    gpu: int | None = None
    samples_planned: int = 0
    samples_trained: int = 0
    samples_per_s: float = 0.0
    solo_samples_per_s: float = 0.0  # predicted speed alone on the host
    demand: tuple[float, ...] = ()  # shares of `tuner.colocation.facts.RESOURCES` that it uses alone in its mode
    demand_basis: tuple[str, ...] = ()  # of each: measured, estimated or unlimited
    read_bytes_per_s: float = 0.0  # that it reads alone in its mode, from measurements; 0: not measured
    predicted_speed: float = 0.0  # predicted speed beside the others, as a share of solo_samples_per_s
    cpu_cores: float = 0.0  # used in the last second
    cpu_s: float = 0.0  # CPU seconds of all processes of its incarnations that have ended
    memory_bytes: int = 0  # used now
    peak_bytes: int = 0
    estimated_bytes: int = 0  # estimated peak, for the number of workers at its observed peak
    charged_bytes: int = 0
    gpu_memory_bytes: int = 0
    exit_code: int | None = None
    out_of_memory: int = 0  # number of times that it ran out of memory
    test_auc: float | None = None


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a dispatcher and its jobs; the content of `host.json`. commands: address of its command socket.
    charged_bytes: charges of all jobs in the ledger. left_out: state -> number of jobs that ended in it and are not in
    `jobs` any more: a dispatcher that runs for ever keeps the newest only."""

    directory: str
    pid: int
    commands: str
    policy: str
    schema: str = SCHEMA
    state: str = "running"  # starting | running | stopping | ended
    cores: int = 0
    memory_bytes: int = 0  # that all jobs together may use
    charged_bytes: int = 0
    used_bytes: int = 0
    cpu_cores: float = 0.0
    gpus: int = 0
    elapsed_s: float = 0.0
    jobs: tuple[JobStatus, ...] = ()
    left_out: dict[str, int] = {}
    isolation: tuple[str, ...] = ()  # sentences: how jobs are isolated on this host
    last_decision: str = ""


def read_host(directory: Path) -> HostStatus:
    """Returns the newest status of the dispatcher in a directory. Raises PreflightError when there is none, or it
    cannot be read."""
    path = directory / HOST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=HostStatus)
    except FileNotFoundError:
        raise PreflightError(f"{path} does not exist: no dispatcher has written its status here") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreflightError(f"{path} cannot be read: {error}") from error
