"""The page about many jobs on one host, from templates."""

from __future__ import annotations

from pathlib import PurePath

from markupsafe import Markup

from elastichost.reporting.host.charts import MOST_ROWS, core_chart, host_memory_chart, job_bars, together_chart
from elastichost.reporting.host.facts import HostReport
from elastichost.reporting.host.words import host_facts_of, host_lead_of, memory_words, speed_sentences
from elastichost.reporting.render.chart import Chart
from elastichost.reporting.render.pages import DocumentParts, PageSection, document, rendered
from elastichost.reporting.run.view.words import clock_words

__all__ = ["host_page_of"]

NO_SPEEDS = "No job ran long enough beside the same other jobs, or the speeds of the jobs alone were not recorded."


def host_page_of(report: HostReport) -> str:
    """A whole HTML document."""
    name = PurePath(report.summary.directory).name
    memory = " ".join(memory_words(report))
    speeds = " ".join(speed_sentences(report))
    sections = (
        PageSection("time", "Jobs over time", rendered("host/time.html", bars=job_bars(report), shown=_shown(report))),
        PageSection("jobs", "Jobs", rendered("host/jobs.html", jobs=report.jobs, left_out=report.summary.left_out)),
        PageSection("cores", "Cores", _measured(core_chart(report))),
        PageSection("memory", "Memory", _measured(host_memory_chart(report), memory)),
        PageSection("speeds", "Speeds beside other jobs", _measured(together_chart(report), speeds, NO_SPEEDS)),
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


def _measured(chart: Chart | None, words: str = "", without: str = "Nothing was measured.") -> Markup:
    """A section with a chart. words: a paragraph before it. without: the sentence in place of a chart that is None."""
    return rendered("host/measured.html", words=words, chart=chart, without=without)
