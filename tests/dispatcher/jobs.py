"""Helpers for the dispatcher's tests: requests, examinations and observations of jobs, and a host that runs the
core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from elastichost.dispatcher.core.core import Core
from elastichost.dispatcher.core.demands import Examined, HostPower, MemoryOfSize
from elastichost.dispatcher.core.effects import Effect, KillJob, NoteEvent, StartJob, StopJob
from elastichost.dispatcher.core.endings import Ended
from elastichost.dispatcher.facts import HostStatus, JobFailure, JobObservation, JobRequest, JobSample, JobStatus
from elastichost.metrics import ProcessStatus, RunStatus
from elastichost.resources import HostInventory
from elastichost.runs.events import Event
from elastichost.runs.result import ProcessCounts, RunResult, SampleCounts
from elastichost.tuner.colocation.settings import ColocationSettings

MB = 10**6
INVENTORY = HostInventory((0, 1, 2, 3), 10_000 * MB)
POWER = HostPower(4, 1e10)
TOGETHER = ColocationSettings(policy="fifo", most_jobs=100)  # starts every job that fits, in order of arrival
Kind = TypeVar("Kind", bound=Event)


def request(job: str, weight: float = 1.0, shape: str = "") -> JobRequest:
    """A request to run this job."""
    return JobRequest(
        job, f"/host/jobs/{job}", "/home/user", f"/home/user/runs/{job}", "2026-01-01T00:00:00.000Z", weight, shape
    )


def result(*, peak_bytes: int, peak_workers: int) -> RunResult:
    """The result of a run that is done."""
    return RunResult(
        status="done",
        exit_code=0,
        run_dir="/home/user/runs/a",
        samples=SampleCounts(planned=1000, trained=1000, skipped=0, quarantined=0),
        test=None,
        samples_per_s=500.0,
        wall_s=2.0,
        processes=ProcessCounts(1, 1, 0),
        arena_bytes=100 * MB,
        peak_bytes=peak_bytes,
        peak_workers=peak_workers,
        epochs=1,
        torn_batches=0,
    )


def examined(
    job: str = "a",
    memory_mb: int = 1000,
    *,
    least: int = 1,
    most: int = 1,
    samples: int = 100_000,
    worker_mb: int = 100,
    twin: str = "",
    reader: float = 0.0,
    threads: int = 1,
    row_bytes: int = 0,
) -> Examined:
    """A job that may have `least` to `most` workers; each worker beyond `least` takes worker_mb."""
    memory = tuple(MemoryOfSize(w, (memory_mb + (w - least) * worker_mb) * MB) for w in sorted({least, most}))
    return Examined(
        job=job,
        samples_planned=samples,
        least_workers=least,
        most_workers=most,
        twin=twin or job,
        memory=memory,
        reader_samples_per_s=reader,
        threads=threads,
        row_bytes=row_bytes,
        ids_per_sample=10.0,
        size_is_open=least < most,
    )


def look(
    seconds: float = 2.0,
    samples: float = 2000.0,
    worker_cpu_s: float = 2.0,
    all_cpu_s: float = 2.2,
    workers: int = 1,
    host_share: float = 0.3,
) -> JobSample:
    """By default: one worker that keeps one of four cores busy for 2 seconds."""
    return JobSample(seconds, samples, worker_cpu_s, all_cpu_s, workers, host_share)


def seen(
    job: str = "a",
    *,
    trained: int = 1,
    memory_mb: int = 500,
    grown_mb: int = 0,
    state: str = "training",
    at: JobSample | None = None,
    has_status: bool = True,
    auc: float | None = None,
    workers: int = 0,
) -> JobObservation:
    """An observation of a job."""
    status = RunStatus(
        run_dir=f"/home/user/runs/{job}",
        job=job,
        state=state,
        supervisor_pid=7,
        samples_trained=trained,
        test_auc=auc,
        processes=tuple(ProcessStatus("worker", index, 1, 10 + index, "running") for index in range(workers)),
    )
    return JobObservation(job, status if has_status else None, at, 0.5, memory_mb * MB, grown_mb * MB, (7, 8, 9))


def ended(job: str, code: int | None, cause: str = "exit", number: int = 0) -> Ended:
    """The end of the only process of a job. number: errno of the error because of which it could not be forked."""
    return Ended("job", job, 1, code, cause, number=number)


@dataclass
class Hosted:
    """The dispatcher's core, and the jobs that run by its effects. effects: of the last event. stops, kills: the jobs
    that were asked to stop, and that were killed, in order."""

    core: Core
    live: dict[str, StartJob] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    stops: list[str] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    spawns: list[StartJob] = field(default_factory=list)

    def did(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """Carries out the effects of an event."""
        self.effects = effects
        for effect in effects:
            match effect:
                case StartJob(job):
                    self.live[job] = effect
                    self.spawns.append(effect)
                case StopJob(job):
                    self.stops.append(job)
                case KillJob(job):
                    self.kills.append(job)
        return effects

    def submit(self, job: str, memory_mb: int = 1000, now_s: float = 0.0, **facts: int) -> None:
        """Submits a job whose examination ends at once."""
        self.did(self.core.submit(request(job), now_s))
        self.did(self.core.examined(examined(job, memory_mb, **facts), now_s))  # type: ignore[arg-type]

    def tick(self, now_s: float) -> list[str]:
        """Returns the jobs that the tick started."""
        return [effect.job for effect in self.did(self.core.tick(now_s)) if isinstance(effect, StartJob)]

    def see(self, job: str, now_s: float = 1.0, **facts: object) -> None:
        self.did(self.core.seen(seen(job, **facts), now_s))  # type: ignore[arg-type]

    def end(
        self,
        job: str,
        code: int | None,
        now_s: float = 10.0,
        cause: str = "exit",
        failure: JobFailure | None = None,
        result: RunResult | None = None,
        number: int = 0,
    ) -> None:
        self.live.pop(job, None)
        self.did(self.core.ended(ended(job, code, cause, number), failure, now_s, result))

    def cancel(self, job: str, now_s: float = 5.0) -> None:
        self.did(self.core.cancel(job, now_s))

    def status(self) -> HostStatus:
        return self.core.status(HostStatus(directory="/host", pid=1, commands="", policy="fifo"))

    def job(self, job: str) -> JobStatus:
        return next(one for one in self.status().jobs if one.job == job)

    def noted(self, kind: type[Kind]) -> list[Kind]:
        """Returns the events of one kind that `effects` write to the journal."""
        events = [effect.event for effect in self.effects if isinstance(effect, NoteEvent)]
        return [event for event in events if isinstance(event, kind)]


def hosted(
    memory_mb: int = 4000, settings: ColocationSettings = TOGETHER, inventory: HostInventory = INVENTORY
) -> Hosted:
    """Returns a host without jobs."""
    return Hosted(Core(settings, inventory, POWER, memory_mb * MB))


def running(*jobs: str, memory_mb: int = 10_000) -> Hosted:
    """Returns a host on which all these jobs train."""
    host = hosted(memory_mb)
    for job in jobs:
        host.submit(job)
    host.tick(0.0)
    for job in jobs:
        host.see(job)
    assert {host.job(job).state for job in jobs} == {"running"}
    return host
