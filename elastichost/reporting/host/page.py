"""The page about many jobs on one host, from templates."""

from __future__ import annotations

from pathlib import PurePath

from elastichost.reporting.host.charts import MOST_ROWS, core_chart, host_memory_chart, job_bars, together_chart
from elastichost.reporting.host.facts import HostReport
from elastichost.reporting.host.words import host_facts_of, host_lead_of, memory_words, speed_sentences
from elastichost.reporting.render.pages import DocumentParts, PageSection, document, rendered
from elastichost.reporting.run.view.words import clock_words

__all__ = ["host_page_of"]


def host_page_of(report: HostReport) -> str:
    """A whole HTML document."""
    name = PurePath(report.summary.directory).name
    memory = " ".join(memory_words(report))
    speeds = " ".join(speed_sentences(report))
    sections = (
        PageSection("time", "Jobs over time", rendered("host/time.html", bars=job_bars(report), shown=_shown(report))),
        PageSection("jobs", "Jobs", rendered("host/jobs.html", jobs=report.jobs)),
        PageSection("cores", "Cores", rendered("host/measured.html", words="", chart=core_chart(report))),
        PageSection("memory", "Memory", rendered("host/measured.html", words=memory, chart=host_memory_chart(report))),
        PageSection(
            "speeds",
            "Speeds beside other jobs",
            rendered("host/speeds.html", words=speeds, chart=together_chart(report)),
        ),
        PageSection("decisions", "Decisions", rendered("host/decisions.html", report=report)),
        PageSection("isolation", "Isolation between jobs", rendered("host/isolation.html", report=report)),
    )
    lead, facts = host_lead_of(report), host_facts_of(report)
    top = rendered("host/top.html", report=report, name=name, lead=lead, facts=facts)
    end = rendered("host/end.html", made=clock_words(report.made_utc))
    return document(DocumentParts(f"{name}: report of many jobs", top, sections, end))


def _shown(report: HostReport) -> int:
    """The number of jobs that are shown, 0 if all are."""
    return MOST_ROWS if len(report.jobs) > MOST_ROWS else 0
