"""Computes the history of each job on a host from the journal, the timeline and the last status. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, get_args

import msgspec

from elastichost.dispatcher.facts import ENDED_STATES, JobStatus
from elastichost.reporting.host.facts import JobRow, JobSpan, SpanState
from elastichost.reporting.host.timeline import JobStep, StateSpan
from elastichost.reporting.run.facts import EventNote
from elastichost.reporting.run.sources import ResultFacts
from elastichost.reporting.run.story import note_of
from elastichost.runs.events import JournalLine

__all__ = ["job_rows", "notes_of", "spans_of"]

STARTS = "job_started"
ENDS = frozenset({"job_done", "job_failed", "job_cancelled", "job_stopped", "job_requeued"})
STATES: dict[str, SpanState] = {state: state for state in get_args(SpanState)}
Lifetime = tuple[float, float]  # when the processes of a job started and ended, in seconds
Found = TypeVar("Found")


def notes_of(lines: Iterable[JournalLine], began_s: float) -> tuple[EventNote, ...]:
    """The events as notes, with times in seconds since the dispatcher began."""
    return tuple(note_of(line, max(0.0, line.monotonic_s - began_s)) for line in lines)


def job_rows(
    jobs: Sequence[JobStatus],
    notes: Sequence[EventNote],
    states: Sequence[StateSpan],
    steps: Sequence[JobStep],
    results: Mapping[str, ResultFacts],
    elapsed_s: float,
) -> tuple[JobRow, ...]:
    """One row for each job: started jobs in the order of their start, then the others in the order of submission."""
    told, seen = _grouped(notes, lambda one: one.process), _grouped(states, lambda one: one.job)
    charged: dict[str, int] = {}
    workers: dict[str, int] = {}
    for step in steps:
        charged[step.job] = max(step.charged_bytes, charged.get(step.job, 0))
        workers[step.job] = step.workers
    found = []
    for job in jobs:
        own = told.get(job.job, [])
        spans = spans_of(job, own, seen.get(job.job, []), elapsed_s)
        row = _row(job, spans, results.get(job.job), charged.get(job.job, 0), workers.get(job.job, 0))
        found.append(msgspec.structs.replace(row, why=_why(job, own)))
    return tuple(sorted(found, key=_by_start))


def _grouped(found: Iterable[Found], job_of: Callable[[Found], str]) -> dict[str, list[Found]]:
    groups: dict[str, list[Found]] = {}
    for one in found:
        groups.setdefault(job_of(one), []).append(one)
    return groups


def _why(job: JobStatus, notes: Sequence[EventNote]) -> str:
    """The reason for the job's state; if that only repeats the state, the reason for its last start. Then what its own
    tuner proposes or has got."""
    starts = [note.text for note in notes if note.kind == STARTS]
    why = job.why if job.why not in ("", job.state) or not starts else starts[-1]
    return f"{why}; {job.own_tuner}" if job.state == "running" and job.own_tuner else why


def _by_start(row: JobRow) -> tuple[bool, float, float, str]:
    return row.started_s is None, row.started_s or 0.0, row.submitted_s, row.job


def _row(
    job: JobStatus, spans: tuple[JobSpan, ...], result: ResultFacts | None, charged_bytes: int, workers: int
) -> JobRow:
    trained = job.samples_trained
    if result is not None and result.samples is not None:
        trained = max(trained, result.samples.trained)
    auc = result.test.auc if result is not None and result.test is not None else None
    alone = job.solo_samples_per_s or None
    ran_s = sum(span.seconds for span in spans if span.state == "running")
    return JobRow(
        job=job.job,
        state=job.state,
        kind=job.kind,
        why=job.why,
        run_dir=job.run_dir,
        submitted_s=job.submitted_s,
        started_s=job.started_s,
        ended_s=job.ended_s,
        spans=spans,
        starts=job.starts,
        out_of_memory=job.out_of_memory,
        workers=job.workers or workers,
        servers=job.servers,
        worker_cores=job.worker_cores,
        gpu=job.gpu,
        samples_planned=job.samples_planned,
        samples_trained=trained,
        alone_samples_per_s=alone,
        slowdown=ran_s * alone / trained if alone and trained and ran_s else None,
        estimated_bytes=job.estimated_bytes,
        peak_bytes=job.peak_bytes,
        charged_bytes=max(job.charged_bytes, charged_bytes),
        auc=job.test_auc if job.test_auc is not None else auc,
    )


# --- states over time -------------------------------------------------------------------------------------------------


def spans_of(
    job: JobStatus, notes: Sequence[EventNote], states: Sequence[StateSpan], elapsed_s: float
) -> tuple[JobSpan, ...]:
    """The states of one job over time, without gaps. The starts and ends of its processes come from the journal, which
    has their exact times; the states between come from the timeline, which has one row a second."""
    spans: list[JobSpan] = []
    waits_s = job.submitted_s
    for began_s, ended_s in _incarnations(job, notes, elapsed_s):
        spans.append(JobSpan("waiting", waits_s, began_s))
        spans += _within(states, began_s, ended_s)
        waits_s = ended_s
    last_s = job.ended_s if job.ended_s is not None else elapsed_s
    if job.state == "waiting" or (not spans and job.state in ENDED_STATES):
        spans.append(JobSpan("waiting", waits_s, max(waits_s, last_s)))
    return tuple(span for span in spans if span.seconds > 0)


def _incarnations(job: JobStatus, notes: Sequence[EventNote], elapsed_s: float) -> Iterator[Lifetime]:
    began_s: float | None = None
    has_incarnation = False
    for note in notes:
        if note.kind == STARTS:
            began_s, has_incarnation = note.at_s, True
        elif note.kind in ENDS and began_s is not None:
            yield began_s, note.at_s
            began_s = None
    if began_s is not None:
        yield began_s, job.ended_s if job.ended_s is not None else elapsed_s
    elif not has_incarnation and job.started_s is not None:  # the journal is missing
        yield job.started_s, job.ended_s if job.ended_s is not None else elapsed_s


def _within(states: Sequence[StateSpan], began_s: float, ended_s: float) -> list[JobSpan]:
    """The states during one lifetime, without gaps: each lasts until the next is seen, and the first begins with the
    lifetime."""
    seen = [(STATES[one.state], one.at_s) for one in states if began_s <= one.at_s <= ended_s and one.state in STATES]
    if not seen:
        return [JobSpan("running", began_s, ended_s)]  # it ended before the timeline had a row of it
    edges = [began_s, *(at_s for _, at_s in seen[1:]), ended_s]
    return [
        JobSpan(state, at_s, until_s) for (state, _), at_s, until_s in zip(seen, edges[:-1], edges[1:], strict=True)
    ]
