"""The tables of a report of many jobs."""

from __future__ import annotations

from collections.abc import Sequence

from elastichost.human_readable import bytes_words, count_words, duration_words, plural
from elastichost.reporting.host.facts import JobRow
from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_parts import Column, table_of
from elastichost.reporting.run.facts import EventNote
from elastichost.reporting.run.view.words import moment_words

__all__ = ["event_table", "job_table"]

STATE_CLASSES = {"failed": "bad", "done": "good"}


def job_table(jobs: Sequence[JobRow]) -> Markup:
    columns: tuple[Column, ...] = (
        ("job", "short"),
        ("state", "short"),
        ("waited, ran", "number"),
        ("slowdown", "number"),
        ("size", "short"),
        ("samples", "number"),
        ("estimated, peak, charged", "number"),
        ("AUC", "number"),
        ("why", "words"),
    )
    return table_of(columns, (_row(job) for job in jobs))


def _row(job: JobRow) -> tuple[str, ...]:
    again = f"{job.starts} starts" if job.starts > 1 else ""
    memory = f"out of memory {job.out_of_memory}\N{MULTIPLICATION SIGN}" if job.out_of_memory else ""
    return (
        joined(tag("b", job.job), _below(job.kind)),
        joined(tag("span", job.state, class_=STATE_CLASSES.get(job.state, "")), _below(again), _below(memory)),
        _lines(_waited(job), _ran(job)),
        f"{job.slowdown:.2f}" if job.slowdown is not None else "",
        _size(job),
        count_words(job.samples_trained) if job.samples_trained else "",
        _lines(
            *(bytes_words(size) if size else "-" for size in (job.estimated_bytes, job.peak_bytes, job.charged_bytes))
        ),
        f"{job.auc:.4f}" if job.auc is not None else "",
        job.why if job.why != job.state else "",
    )


def _lines(*lines: str) -> Markup:
    return joined(*(tag("div", line) for line in lines))


def _below(text: str) -> Markup:
    return tag("div", text, class_="quiet") if text else Markup()


def _waited(job: JobRow) -> str:
    return duration_words(sum(span.seconds for span in job.spans if span.state == "waiting"))


def _ran(job: JobRow) -> str:
    """The time in which the job had processes, including their start and end; "" for a job that never started."""
    ran_s = sum(span.seconds for span in job.spans if span.state != "waiting")
    return duration_words(ran_s) if job.started_s is not None else ""


def _size(job: JobRow) -> Markup:
    if not job.workers:
        return Markup()
    size = plural(job.workers, "worker") + (f", {job.servers} PS" if job.servers else "")
    threads = f"{job.worker_cores} threads each" if job.worker_cores > 1 else ""
    return joined(size, _below(threads), _below(f"GPU {job.gpu}" if job.gpu is not None else ""))


def event_table(notes: Sequence[EventNote], left_out: int) -> Markup:
    """The decisions of the dispatcher with their reasons. left_out: the number of decisions in the middle that the
    table leaves out."""
    columns: tuple[Column, ...] = (("at", "number"), ("decision", "short"), ("job", "short"), ("why", "words"))
    rows: list[tuple[str, ...]] = [
        (moment_words(one.at_s), tag("b", one.kind.replace("_", " ")), one.process, one.text) for one in notes
    ]
    if left_out:
        more = tag("em", f"{plural(left_out, 'decision')} more, see journal.jsonl")
        rows.insert(len(rows) // 2, ("", "", "", more))
    return table_of(columns, rows)
