"""Computes cores, memory and speeds of all jobs on one time axis. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from elastichost.reporting.host.facts import HostCourse, JobLine, JobRow, Together
from elastichost.reporting.host.timeline import GAP_S, JobStep, TimelineRows

__all__ = ["host_course", "together_of"]

STATUS_S = 1.0  # the dispatcher writes one row per job this often
LEAST_S = 2.0  # shorter stretches beside the same jobs are left out: a run reports its speed as a mean over seconds

Step = tuple[float, dict[str, JobStep]]  # end of the step in seconds, and the jobs that had processes in it


def _steps(rows: TimelineRows) -> Iterator[Step]:
    for _, group in groupby(rows.steps, key=lambda one: one.step):
        found = list(group)
        yield found[0].at_s, {one.job: one for one in found}


def host_course(rows: TimelineRows, jobs: Sequence[JobRow]) -> HostCourse:
    """Cores and memory of each job over time. All lines are zero while no job runs."""
    steps = list(_closed(list(_steps(rows)), rows.step_s))
    present = {one.job for one in rows.steps}
    lines = tuple(
        JobLine(
            job.job,
            tuple(found[job.job].cpu_cores if job.job in found else 0.0 for _, found in steps),
            tuple(float(found[job.job].memory_bytes) if job.job in found else 0.0 for _, found in steps),
        )
        for job in jobs
        if job.job in present
    )
    charged = tuple(float(sum(one.charged_bytes for one in found.values())) for _, found in steps)
    return HostCourse(tuple(at_s for at_s, _ in steps), lines, charged)


def _closed(steps: Sequence[Step], step_s: float) -> Iterator[Step]:
    """Inserts empty steps around gaps. A step covers the time since the step before it; the first step, and the first
    one after a gap, covers one second (or one `step_s`, if that is longer)."""
    before_s: float | None = None
    for at_s, found in steps:
        if before_s is None or at_s - before_s > max(GAP_S, 3 * step_s):
            if before_s is not None:
                yield before_s, {}
            yield max(0.0, at_s - max(STATUS_S, step_s)), {}
        yield at_s, found
        before_s = at_s
    if before_s is not None:
        yield before_s, {}


def together_of(rows: TimelineRows, jobs: Sequence[JobRow]) -> tuple[Together, ...]:
    """One entry for each job and each stretch in which the same set of jobs ran. Jobs without a known speed alone
    are left out."""
    known = {job.job: job for job in jobs if job.alone_samples_per_s}
    found: list[Together] = []
    before_s = 0.0
    for _, group in groupby(_steps(rows), key=lambda one: _running(one[1])):
        stretch = list(group)
        began_s, before_s = max(before_s, stretch[0][0] - max(rows.step_s, STATUS_S)), stretch[-1][0]
        names = _running(stretch[0][1])
        seconds = before_s - began_s
        if names is None or seconds < LEAST_S:
            continue
        for name in sorted(names & known.keys()):
            job, seen = known[name], [step[name] for _, step in stretch]
            assert job.alone_samples_per_s is not None
            found.append(
                Together(
                    name,
                    job.kind,
                    tuple(sorted(names - {name})),
                    began_s,
                    seconds,
                    sum(one.predicted_speed for one in seen) / len(seen),
                    sum(one.samples_per_s for one in seen) / len(seen) / job.alone_samples_per_s,
                )
            )
    return tuple(found)


def _running(step: dict[str, JobStep]) -> frozenset[str] | None:
    """The jobs that run in a step. None: a job is starting or ending, so that the speeds do not belong to one set."""
    if not all(one.is_running and one.samples_per_s > 0 for one in step.values()):
        return None
    return frozenset(step)
