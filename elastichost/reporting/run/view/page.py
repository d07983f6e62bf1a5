"""The page about a run, from templates."""

from __future__ import annotations

from markupsafe import Markup

from elastichost.reporting.render.pages import DocumentParts, PageSection, document, rendered
from elastichost.reporting.run.facts import Report
from elastichost.reporting.run.view import words
from elastichost.reporting.run.view.charts import (
    evaluation_charts,
    load_chart,
    loss_chart,
    memory_chart,
    plan_chart,
    process_charts,
    speed_chart,
)
from elastichost.reporting.run.view.gpu_charts import gpu_charts
from elastichost.reporting.run.view.model_charts import candidates_chart, measured_bars

__all__ = ["page_of", "parts_of"]

# The name on the page of each kind of memory step.
MEMORY_STEPS = {
    "budget": "budget",
    "evict": "rows dropped",
    "admit": "ids admitted later",
    "move": "buckets moved",
    "shrink": "fewer workers",
    "warn": "warning",
    "full": "memory full",
    "free": "memory free again",
    "note": "",
}


def page_of(report: Report) -> str:
    """A whole HTML document."""
    return document(parts_of(report))


def parts_of(report: Report) -> DocumentParts:
    """The title, the header, the sections and the footer of the page."""
    sections = (
        PageSection("learning", "Learning", _learning(report)),
        PageSection("trained", "What was trained", rendered("run/trained.html", report=report)),
        PageSection("speed", "Speed and plan", _speed(report)),
        PageSection("processes", "Processes", _processes(report)),
        PageSection("memory", "Memory", _memory(report)),
        PageSection("tuner", "Tuner", _tuner(report)),
        PageSection(
            "load", "Load of the parameter servers", rendered("run/load.html", report=report, chart=load_chart(report))
        ),
        PageSection("faults", "Warnings and faults", rendered("run/faults.html", report=report)),
    )
    top = rendered(
        "run/top.html",
        report=report,
        lead=words.lead_of(report),
        facts=words.facts_of(report),
        machine_facts=words.machine_facts_of(report),
    )
    end = rendered("run/end.html", report=report, made=words.clock_words(report.made_utc))
    return DocumentParts(f"{report.overview.job}: report of a run", top, sections, end)


def _learning(report: Report) -> Markup:
    charts = [chart for chart in (loss_chart(report), *evaluation_charts(report)) if chart is not None]
    return rendered("run/learning.html", charts=charts, without=words.without_course_words(report.overview))


def _speed(report: Report) -> Markup:
    return rendered("run/speed.html", report=report, speed=speed_chart(report), plan=plan_chart(report))


def _processes(report: Report) -> Markup:
    charts = (*process_charts(report), *gpu_charts(report))
    return rendered("run/processes.html", processes=report.processes, charts=charts)


def _memory(report: Report) -> Markup:
    told = words.memory_words(report)
    return rendered("run/memory.html", report=report, words=told, chart=memory_chart(report), names=MEMORY_STEPS)


def _tuner(report: Report) -> Markup:
    model = report.model
    return rendered(
        "run/tuner.html",
        report=report,
        accuracy=" ".join(words.accuracy_words(report)),
        bars=measured_bars(report),
        candidates=candidates_chart(report),
        model_facts=words.model_facts_of(model) if model is not None else (),
    )
