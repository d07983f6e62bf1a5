"""The page about many jobs on one host: one self-contained HTML file."""

from __future__ import annotations

from pathlib import PurePath

from elastichost.reporting.host.facts import HostReport
from elastichost.reporting.host.figures import MOST_BARS, core_figure, gantt_figure, host_memory_figure, speed_figure
from elastichost.reporting.host.tables import event_table, job_table
from elastichost.reporting.host.words import host_facts_of, host_lead_of, memory_words, speed_sentences
from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_parts import details, document, drawn, gap_list
from elastichost.reporting.run.view.tables import fact_list
from elastichost.reporting.run.view.words import clock_words

__all__ = ["host_page_of"]

MOST_OPEN = 60  # rows; a longer table is folded


def host_page_of(report: HostReport) -> str:
    """A whole HTML document."""
    name = PurePath(report.summary.directory).name
    sections = [
        ("time", "Jobs over time", _time(report)),
        ("cores", "Cores", _cores(report)),
        ("memory", "Memory", _memory(report)),
        ("speeds", "Speeds beside other jobs", _speeds(report)),
        ("jobs", "Jobs", _jobs(report)),
        ("decisions", "Decisions", _decisions(report)),
        ("isolation", "Isolation between jobs", _isolation(report)),
    ]
    header = joined(
        tag(
            "header",
            tag("p", "elastichost: report of many jobs on one host", class_="kicker"),
            tag("h1", name),
            tag("p", host_lead_of(report), class_="lead"),
            fact_list(host_facts_of(report), "facts pairs"),
        ),
        gap_list([(gap.source, gap.text) for gap in report.gaps]),
    )
    return document(f"{name}: report of many jobs", header, sections, _footer(report))


def _time(report: HostReport) -> Markup:
    caption = (
        "Thin line: waiting. Pale bar: starting. Full bar: running. Empty bar: paused. Narrow red bar: saving and "
        "ending. Cross: failed. The colour is the kind of the job: the resource that limits its speed."
    )
    if len(report.jobs) > MOST_BARS:
        caption += f" Only the last {MOST_BARS} jobs are shown."
    return drawn(lambda: gantt_figure(report), caption, "No job was submitted.")


def _cores(report: HostReport) -> Markup:
    caption = (
        "CPU time of all processes of each job, stacked in the order in which the jobs started. Every second band is "
        "paler, to tell neighbours apart."
    )
    return drawn(lambda: core_figure(report), caption, "Nothing was measured.")


def _memory(report: HostReport) -> Markup:
    caption = (
        "Rows, copies and private memory of each job, stacked. The line is the memory charged to all jobs together: "
        "the sum of their peaks."
    )
    return joined(
        tag("p", " ".join(memory_words(report))),
        drawn(lambda: host_memory_figure(report), caption, "Nothing was measured."),
    )


def _speeds(report: HostReport) -> Markup:
    caption = (
        "Each point is one job during a time in which the same other jobs ran; a larger point is a longer time. The "
        "speed is a share of the job's speed alone with the same number of processes."
    )
    words = " ".join(speed_sentences(report))
    without = "No job ran long enough beside the same other jobs, or the speeds of the jobs alone were not recorded."
    return joined(tag("p", words) if words else Markup(), drawn(lambda: speed_figure(report), caption, without))


def _jobs(report: HostReport) -> Markup:
    if not report.jobs:
        return tag("p", "No job was submitted.", class_="quiet")
    note = tag(
        "p",
        "Slowdown: the time in which a job trained, divided by the time that its samples take at its speed alone. "
        "Memory: the estimate before the start, the peak, and the amount that the ledger charged.",
    )
    listed = job_table(report.jobs)
    count = len(report.jobs)
    return joined(note, listed if count <= MOST_OPEN else details(f"All {count} jobs", listed))


def _decisions(report: HostReport) -> Markup:
    if not report.decisions:
        return tag("p", "The journal has no decisions.", class_="quiet")
    return event_table(report.decisions, report.decisions_left_out)


def _isolation(report: HostReport) -> Markup:
    if not report.summary.isolation:
        return tag("p", "The isolation between jobs was not recorded.", class_="quiet")
    return tag("ul", *(tag("li", sentence) for sentence in report.summary.isolation))


def _footer(report: HostReport) -> Markup:
    return tag(
        "footer",
        f"Made {clock_words(report.made_utc)} from the files of the directory. Each job has its own report. The "
        "figures of this page as JSON: ",
        tag("code", "elastichost report DIR --json"),
    )
