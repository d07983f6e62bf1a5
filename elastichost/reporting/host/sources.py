"""Reads the files of a host or a batch as far as possible, and collects what is missing as gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from elastichost.dispatcher.facts import HOST_FILE, HostStatus, JobStatus
from elastichost.errors import PreflightError
from elastichost.reporting.host.timeline import TimelineRows, read_rows
from elastichost.reporting.run.sources import ResultFacts, Sources
from elastichost.runs.events import JobSubmitted, JournalLine

__all__ = ["HostSources", "began_s", "of_last_dispatcher", "open_host"]

TIMELINE_FILE = "timeline.db"
EARLY_S = 0.5  # an event is written a little after the moment that it records


class HostSources(Sources):
    """The directory of one host; `gaps` grows while its files are read."""

    def host(self) -> HostStatus | None:
        return self._json(HOST_FILE, HostStatus, "the jobs and how they ended")

    def timeline(self) -> TimelineRows:
        rows = read_rows(self.run / TIMELINE_FILE)
        if rows.problem:
            self.miss(TIMELINE_FILE, rows.problem)
        return rows

    def results(self, jobs: Sequence[JobStatus]) -> Mapping[str, ResultFacts]:
        """The results of the jobs' runs, for the jobs that have one."""
        found = {}
        for job in jobs:
            run = Sources(Path(job.run_dir))
            result = run.result(is_expected=False)
            if result is not None:
                found[job.job] = result
            self.gaps += run.gaps
        return found


def began_s(lines: Sequence[JournalLine], jobs: Sequence[JobStatus]) -> float | None:
    """When the last dispatcher began, on the journal's clock; None if that is not known. It is computed from the job
    that was submitted last by the journal, because the status has the same moment on the dispatcher's clock. Jobs that
    an earlier dispatcher completed are in the status too, with times on the clock of that dispatcher."""
    submitted_s = {job.job: job.submitted_s for job in jobs}
    for line in reversed(lines):
        if isinstance(line.event, JobSubmitted) and line.event.job in submitted_s:
            return line.monotonic_s - submitted_s[line.event.job]
    return None


def of_last_dispatcher(lines: Sequence[JournalLine], began: float | None) -> tuple[JournalLine, ...]:
    """The lines that the last dispatcher wrote; earlier dispatchers may have written into the same journal. The clock
    goes back when the machine was rebooted."""
    backs = [at for at in range(1, len(lines)) if lines[at].monotonic_s < lines[at - 1].monotonic_s - EARLY_S]
    latest = lines[backs[-1] :] if backs else lines
    return tuple(line for line in latest if began is None or line.monotonic_s >= began - EARLY_S)


def open_host(directory: Path) -> HostSources:
    """The sources of a host. Raises PreflightError if the directory does not exist."""
    if not directory.is_dir():
        raise PreflightError(f"{directory}: no such directory", hint="name the directory of a host or a batch")
    return HostSources(directory)
