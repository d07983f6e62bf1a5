"""The record of one run of one arm, read from the dispatcher's files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from benchmarks.colocate.jobs import Job
from benchmarks.harness.machine import Machine
from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.timeline import Moment
from elastichost.runs.events import HostPrepared, JobSubmitted, JournalLine

__all__ = [
    "ArmRun",
    "Campaign",
    "Cold",
    "JobEnd",
    "JobRun",
    "Sweep",
    "Use",
    "arm_run",
]


class Use(msgspec.Struct, frozen=True):
    """Resources of a job at one moment, in seconds since the host was ready."""

    at_s: float
    job: str
    cores: float
    memory_bytes: int


class JobEnd(msgspec.Struct, frozen=True):
    """Values from a run's `result.json`. truth_auc: AUC of the true probabilities of the synthetic data."""

    samples: int
    auc: float | None = None
    truth_auc: float | None = None


class JobRun(msgspec.Struct, frozen=True):
    """One job in one arm. Times are seconds since the host was ready. cpu_s: of all its processes. workers: its largest
    number of workers."""

    job: str
    shape: str
    kind: str
    state: str
    why: str
    started_s: float
    ended_s: float
    starts: int
    workers: int
    samples: int
    cpu_s: float
    peak_bytes: int
    estimated_bytes: int
    out_of_memory: int
    auc: float | None = None
    truth_auc: float | None = None

    @property
    def wall_s(self) -> float:
        return self.ended_s - self.started_s


class ArmRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one arm. failure: why its figures do not count, "" if they count.

    ready_s: from the host's start to the end of its imports. makespan_s: from then to the end of the last job.
    memory_bytes: limit of all jobs together. wall_s: of the whole command. cpu_s: of the command and all its
    descendants. foreign_share: share of the cores that other processes used during the run. commit: that ran, see
    `read_commit`."""

    mix: str
    arm: str
    round: int
    cores: int = 0
    memory_bytes: int = 0
    ready_s: float = 0.0
    makespan_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    foreign_share: float = 0.0
    failure: str = ""
    commit: str = ""
    jobs: tuple[JobRun, ...] = ()
    uses: tuple[Use, ...] = ()

    @property
    def samples_per_s(self) -> float:
        """Samples/s of all jobs together."""
        return sum(job.samples for job in self.jobs) / self.makespan_s

    def job(self, name: str) -> JobRun | None:
        return next((job for job in self.jobs if job.job == name), None)


class Sweep(msgspec.Struct, frozen=True):
    """Seconds from start to end of a job of one shape alone, in each static plan that succeeded. commit: that ran."""

    shape: str
    seconds: dict[int, float]
    commit: str = ""

    @property
    def best(self) -> int:
        """The number of workers of the fastest plan. Raises ValueError if no plan succeeded."""
        return min(self.seconds, key=self.seconds.__getitem__)


class Cold(msgspec.Struct, frozen=True):
    """Seconds of `elastichost run JOB` for one job of a kind, as shipped, including the import of torch. commit: that
    ran."""

    kind: str
    job: str
    seconds: float
    commit: str = ""


class Campaign(msgspec.Struct, frozen=True):
    """The settings that all runs in one folder share. gpu: name of the GPU for the dense parts, "" without one."""

    size: str
    jobs: int
    machine: Machine
    gpu: str = ""


# --- from the dispatcher's files --------------------------------------------------------------------------------------


def arm_run(
    of: ArmRun,
    jobs: Sequence[Job],
    host: HostStatus,
    lines: Iterable[JournalLine],
    moments: Sequence[Moment],
    ends: Mapping[str, JobEnd],
) -> ArmRun:
    """`of` with the facts from the host's files. ends: by job name. Raises ValueError if the host was never ready."""
    submitted = {job.job: job.submitted_s for job in host.jobs}
    began_s = ready_s = None
    for line in lines:
        if isinstance(line.event, JobSubmitted) and began_s is None:
            began_s = line.monotonic_s - submitted[line.event.job]
        elif isinstance(line.event, HostPrepared) and ready_s is None:
            ready_s = line.monotonic_s
    if began_s is None or ready_s is None:
        raise ValueError("the host was never ready")
    ready_s -= began_s
    found = tuple(_job_run(job, host, moments, ends, ready_s) for job in jobs)
    undone = [job for job in found if job.state != "done"]
    failure = f"{len(undone)} of {len(found)} jobs are not done; {undone[0].job}: {undone[0].why}" if undone else ""
    return msgspec.structs.replace(
        of,
        cores=host.cores,
        memory_bytes=host.memory_bytes,
        ready_s=ready_s,
        makespan_s=max(job.ended_s for job in found),
        failure=failure,
        jobs=found,
        uses=tuple(Use(one.elapsed_s - ready_s, one.job, one.cpu_cores, one.memory_bytes) for one in moments),
    )


def _job_run(
    job: Job, host: HostStatus, moments: Sequence[Moment], ends: Mapping[str, JobEnd], ready_s: float
) -> JobRun:
    status = next(one for one in host.jobs if one.job == job.name)
    own = [one for one in moments if one.job == job.name]
    started_s = status.started_s if status.started_s is not None else host.elapsed_s
    ended_s = status.ended_s if status.ended_s is not None else host.elapsed_s
    end = ends.get(job.name, JobEnd(status.samples_trained, status.test_auc))
    return JobRun(
        job=job.name,
        shape=job.shape.name,
        kind=job.shape.kind,
        state=status.state,
        why=status.why,
        started_s=started_s - ready_s,
        ended_s=ended_s - ready_s,
        starts=status.starts,
        workers=max((one.workers for one in own), default=0),
        samples=end.samples,
        cpu_s=status.cpu_s,
        peak_bytes=status.peak_bytes,
        estimated_bytes=status.estimated_bytes,
        out_of_memory=status.out_of_memory,
        auc=end.auc,
        truth_auc=end.truth_auc,
    )
