"""The page about many jobs on one host: one HTML file that needs nothing but itself."""

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

MOST_OPEN = 60  # rows; a longer table is shown to those who ask


def host_page_of(report: HostReport) -> str:
    """A whole HTML document."""
    name = PurePath(report.summary.directory).name
    sections = [
        ("time", "Jobs over time", _time(report)),
        ("cores", "Cores", _cores(report)),
        ("memory", "Memory", _memory(report)),
        ("speeds", "Speeds beside others", _speeds(report)),
        ("jobs", "Jobs", _jobs(report)),
        ("decisions", "Decisions", _decisions(report)),
        ("isolation", "What keeps jobs apart", _isolation(report)),
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
        "A thin line waits, a pale bar starts, a full one runs, an empty one is paused, a narrow red one saves and "
        "ends; a cross: it failed. Colours are kinds: what a job is bound by."
    )
    if len(report.jobs) > MOST_BARS:
        caption += f" Only the last {MOST_BARS} are shown."
    return drawn(lambda: gantt_figure(report), caption, "No job was submitted.")


def _cores(report: HostReport) -> Markup:
    caption = "CPU time of all processes of each job, stacked as jobs started; every other band is paler."
    return drawn(lambda: core_figure(report), caption, "Nothing was measured.")


def _memory(report: HostReport) -> Markup:
    caption = "Rows, copies and private memory of each job, stacked; the line is what all are charged: their peaks."
    return joined(
        tag("p", " ".join(memory_words(report))),
        drawn(lambda: host_memory_figure(report), caption, "Nothing was measured."),
    )


def _speeds(report: HostReport) -> Markup:
    caption = (
        "Each point is a job beside the same others for some seconds, larger for longer: its speed as a share of what "
        "it would have alone in the same size."
    )
    words = " ".join(speed_sentences(report))
    without = "No job ran long enough beside the same others, or what jobs would train alone was not recorded."
    return joined(tag("p", words) if words else Markup(), drawn(lambda: speed_figure(report), caption, without))


def _jobs(report: HostReport) -> Markup:
    if not report.jobs:
        return tag("p", "There was none.", class_="quiet")
    note = tag(
        "p",
        "Slowdown: the time in which a job trained, over what its samples would take at its speed alone. Memory: "
        "estimated before the start, its peak, and what the ledger held for it.",
    )
    listed = job_table(report.jobs)
    count = len(report.jobs)
    return joined(note, listed if count <= MOST_OPEN else details(f"All {count} jobs", listed))


def _decisions(report: HostReport) -> Markup:
    if not report.decisions:
        return tag("p", "None is in the journal.", class_="quiet")
    return event_table(report.decisions, report.decisions_left_out)


def _isolation(report: HostReport) -> Markup:
    if not report.summary.isolation:
        return tag("p", "It was not recorded.", class_="quiet")
    return tag("ul", *(tag("li", sentence) for sentence in report.summary.isolation))


def _footer(report: HostReport) -> Markup:
    return tag(
        "footer",
        f"Made {clock_words(report.made_utc)} from the files of the directory. Each job has a report of its own. The "
        "figures behind this one: ",
        tag("code", "elastichost report DIR --json"),
    )
