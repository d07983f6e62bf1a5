"""Constructs directories of a dispatcher, with the dispatcher's own writers where possible."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from elastichost.dispatcher.facts import HostStatus, JobStatus
from elastichost.dispatcher.timeline import Timeline
from elastichost.runs.events import (
    AnyEvent,
    JobCancelled,
    JobDone,
    JobExamined,
    JobFailed,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JournalLine,
)
from tests.reporting.remains import line, write_journal

__all__ = ["MIB", "OFFSET_S", "began", "host", "host_line", "job", "write_batch", "write_host", "write_timeline"]

MIB = 1 << 20
OFFSET_S = 3.0  # from BEGAN_S to the start of the dispatcher


def job(name: str, state: str = "done", **facts: object) -> JobStatus:
    """The status of a job that is done, with some facts changed."""
    known = JobStatus(job=name, state="done", run_dir=f"/runs/{name}", kind="dense", why="done", submitted_s=1.0)
    return msgspec.structs.replace(known, state=state, **facts)


def host(directory: Path, *jobs: JobStatus, **facts: object) -> HostStatus:
    """The status of a dispatcher that has ended, with some facts changed."""
    known = HostStatus(
        directory=str(directory),
        pid=1,
        commands="ipc:///nowhere",
        policy="complementary",
        state="ended",
        cores=4,
        memory_bytes=1000 * MIB,
        jobs=jobs,
    )
    return msgspec.structs.replace(known, **facts)


def host_line(at_s: float, event: AnyEvent) -> JournalLine:
    """A line of the dispatcher's journal. at_s: seconds after the start of the dispatcher."""
    return line(OFFSET_S + at_s, event)


def began(job: str, reason: str) -> JobStarted:
    """The event of a job's start."""
    return JobStarted(job, reason, workers=2, charged_bytes=100 * MIB, speeds={job: 1.0})


def write_timeline(path: Path, statuses: Iterable[HostStatus]) -> None:
    timeline = Timeline(path)
    for one in statuses:
        timeline.add(one)
    timeline.close()


def write_host(directory: Path, status: HostStatus) -> None:
    (directory / "host.json").write_bytes(msgspec.json.encode(status))


def write_batch(directory: Path) -> Path:
    """Writes a batch of twenty seconds. `ads` (dense) runs from 2 to 12. `news` (input) runs from 4, runs out of memory
    at 8, waits, and runs again from 13 to 19. `toys` is cancelled before it starts. `lies` fails at 16."""
    directory.mkdir(parents=True, exist_ok=True)
    write_journal(
        directory,
        host_line(1.0, JobSubmitted("ads")),
        host_line(1.0, JobSubmitted("news")),
        host_line(1.0, JobSubmitted("lies")),
        host_line(1.5, JobExamined("ads", "dense", 300 * MIB, 900, {"rows": 200 * MIB})),
        host_line(2.0, began("ads", "nothing runs")),
        host_line(4.0, began("news", "worth goes from 1.00 to 1.80")),
        host_line(6.0, JobSubmitted("toys")),
        host_line(7.0, JobCancelled("toys")),
        host_line(8.0, JobRequeued("news", "ran out of memory; it starts once more, alone")),
        host_line(12.0, JobDone("ads", 10.0)),
        host_line(13.0, began("news", "alone")),
        host_line(14.0, began("lies", "fits")),
        host_line(16.0, JobFailed("lies", "DataError: no such file")),
        host_line(19.0, JobDone("news", 6.0)),
    )
    write_timeline(directory / "timeline.db", (_second(directory, float(at_s)) for at_s in range(2, 20)))
    final = host(
        directory,
        job("toys", "cancelled", kind="", why="cancelled", submitted_s=6.0, ended_s=7.0),
        job(
            "news",
            kind="input",
            started_s=4.0,
            ended_s=19.0,
            starts=2,
            out_of_memory=1,
            samples_planned=500,
            samples_trained=500,
            solo_samples_per_s=100.0,
            estimated_bytes=100 * MIB,
            peak_bytes=150 * MIB,
            test_auc=0.75,
        ),
        job(
            "ads",
            started_s=2.0,
            ended_s=12.0,
            starts=1,
            workers=2,
            servers=1,
            samples_planned=900,
            samples_trained=900,
            solo_samples_per_s=120.0,
            estimated_bytes=400 * MIB,
            peak_bytes=300 * MIB,
        ),
        job("lies", "failed", why="DataError: no such file", started_s=14.0, ended_s=16.0, starts=1),
        elapsed_s=20.0,
        isolation=("Always: cores.", "cgroup v2: it is not mounted."),
    )
    write_host(directory, final)
    return directory


def _second(directory: Path, at_s: float) -> HostStatus:
    """The status of the host at a second of the batch."""
    jobs = []
    if 2 <= at_s < 12:
        state = "starting" if at_s < 3 else "stopping" if at_s >= 11 else "running"
        beside = 4 <= at_s < 8
        jobs.append(_running("ads", state, 2.0, 300, 400, 90.0 if beside else 120.0, 0.8 if beside else 1.0))
    if 4 <= at_s < 8 or 13 <= at_s < 19:
        state = "paused" if at_s == 15 else "starting" if at_s == 13 else "running"
        jobs.append(_running("news", state, 0.5, 150, 100, 95.0, 0.9, kind="input"))
    return host(directory, *jobs, elapsed_s=at_s)


def _running(
    name: str,
    state: str,
    cores: float,
    used_mib: int,
    charged_mib: int,
    rate: float,
    predicted: float,
    kind: str = "dense",
) -> JobStatus:
    """The status of a job that has a process."""
    return job(
        name,
        state,
        kind=kind,
        cpu_cores=cores,
        memory_bytes=used_mib * MIB,
        charged_bytes=charged_mib * MIB,
        samples_per_s=rate,
        predicted_speed=predicted,
        workers=2,
    )
