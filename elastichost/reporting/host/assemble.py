"""Reads the directory of a host or a batch into a report, even if some of its files are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from elastichost.dispatcher.facts import HostStatus
from elastichost.reporting.host.course import host_course, together_of
from elastichost.reporting.host.facts import HostCourse, HostReport, HostSummary, JobRow
from elastichost.reporting.host.sources import began_s, of_last_dispatcher, open_host
from elastichost.reporting.host.story import job_rows, notes_of
from elastichost.reporting.run.story import first_and_last
from elastichost.runs.events import JournalLine

__all__ = ["read_host_report"]

QUIET = frozenset({"job_submitted", "job_examined"})  # events that are not decisions
MOST_LISTED = 400


def read_host_report(directory: Path, *, is_running: bool, now_utc: str) -> HostReport:
    """All values of the page. is_running: the dispatcher is alive. now_utc: ISO 8601. Raises PreflightError if the
    directory does not exist."""
    sources = open_host(directory)
    status = sources.host() or HostStatus(directory=str(directory), pid=0, commands="", policy="", state="unknown")
    lines, rows = tuple(sources.journal()), sources.timeline()
    began = began_s(lines, status.jobs)
    lines = of_last_dispatcher(lines, began)
    if began is None and lines:
        began = lines[0].monotonic_s
    notes = notes_of(lines, began or 0.0)
    results = sources.results(status.jobs)
    elapsed_s = max(status.elapsed_s, rows.steps[-1].at_s if rows.steps else 0.0)
    jobs = job_rows(status.jobs, notes, rows.states, rows.steps, results, elapsed_s)
    course = host_course(rows, jobs)
    decisions = [note for note in notes if note.kind not in QUIET]
    kept = first_and_last(decisions, MOST_LISTED)
    return HostReport(
        made_utc=now_utc,
        summary=_summary(status, jobs, course, lines, is_running=is_running, elapsed_s=elapsed_s),
        gaps=tuple(sources.gaps),
        jobs=jobs,
        course=course,
        together=together_of(rows, jobs),
        decisions=kept,
        decisions_left_out=len(decisions) - len(kept),
    )


def _summary(
    status: HostStatus,
    jobs: Sequence[JobRow],
    course: HostCourse,
    lines: Sequence[JournalLine],
    *,
    is_running: bool,
    elapsed_s: float,
) -> HostSummary:
    trained = sum(job.samples_trained for job in jobs)
    times = [(job.started_s, job.ended_s if job.ended_s is not None else elapsed_s) for job in jobs]
    starts = [start for start, _ in times if start is not None]
    worked_s = max((end for start, end in times if start is not None), default=0.0) - min(starts, default=0.0)
    return HostSummary(
        directory=str(status.directory),
        state=status.state,
        is_running=is_running,
        policy=status.policy,
        elapsed_s=elapsed_s,
        began_utc=lines[0].time_utc if lines else "",
        cores=status.cores,
        gpus=status.gpus,
        memory_bytes=status.memory_bytes,
        states=dict((Counter(job.state for job in jobs) + Counter(status.left_out)).most_common()),
        left_out=sum(status.left_out.values()),
        samples_trained=trained,
        samples_per_s=trained / worked_s if worked_s > 0 else None,
        busy_cores=_busy_cores(course),
        peak_bytes=round(
            max((sum(now) for now in zip(*(one.memory_bytes for one in course.lines), strict=True)), default=0)
        ),
        peak_charged_bytes=round(max(course.charged_bytes, default=0)),
        most_together=_most_together(jobs),
        isolation=status.isolation,
    )


def _busy_cores(course: HostCourse) -> float | None:
    """Mean number of cores in use, over the time in which a job used CPU time. None without such a time."""
    totals = [sum(now) for now in zip(*(one.cores for one in course.lines), strict=True)]
    spans = [(after - at, total) for at, after, total in zip(course.at_s, course.at_s[1:], totals[1:], strict=False)]
    seconds = sum(length for length, total in spans if total > 0)
    return sum(length * total for length, total in spans) / seconds if seconds > 0 else None


def _most_together(jobs: Sequence[JobRow]) -> int:
    """The largest number of jobs that had processes at the same time."""
    edges = [
        edge
        for job in jobs
        for span in job.spans
        if span.state != "waiting"
        for edge in ((span.at_s, 1), (span.until_s, -1))
    ]
    most = now = 0
    for _, change in sorted(edges):  # at equal times, ends (-1) sort before starts (+1)
        now += change
        most = max(most, now)
    return most
