"""The page about a run: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Callable

from elastichost.human_readable import bytes_words, plural
from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_parts import Section, details, document, drawn, gap_list
from elastichost.reporting.render.svg import Drawing
from elastichost.reporting.run.facts import Report
from elastichost.reporting.run.view.figures import (
    heat_figure,
    learning_figure,
    memory_figure,
    plan_figure,
    process_figure,
    throughput_figure,
)
from elastichost.reporting.run.view.model_figures import candidates_figure, model_figure
from elastichost.reporting.run.view.tables import (
    bucket_table,
    decision_table,
    fact_list,
    fault_table,
    memory_table,
    note_table,
    parameter_table,
    plan_table,
    process_table,
)
from elastichost.reporting.run.view.words import (
    accuracy_words,
    clock_words,
    facts_of,
    lead_of,
    machine_facts_of,
    without_course_words,
)

__all__ = ["page_of", "parts_of"]

Make = Callable[[Report], Drawing | None]
MOST_OPEN = 12  # rows of the table of processes; a longer table is folded


def page_of(report: Report) -> str:
    """A whole HTML document."""
    return document(*parts_of(report))


def parts_of(report: Report) -> tuple[str, Markup, list[Section], Markup]:
    """The title, the header, the sections and the footer of the page."""
    sections: list[Section] = [
        ("speed", "Speed", _speed(report)),
        ("learning", "Learning", _learning(report)),
        ("plan", "Plan", _plan(report)),
        ("processes", "Processes", _processes(report)),
        ("decisions", "Decisions", _decisions(report)),
        ("model", "Tuner model and measurements", _model(report)),
        ("memory", "Memory", _memory(report)),
        ("load", "Load of the parameter servers", _load(report)),
        ("faults", "Faults", _faults(report)),
    ]
    return f"{report.overview.job}: report of a run", _header(report), sections, _footer(report)


def _header(report: Report) -> Markup:
    return joined(
        tag(
            "header",
            tag("p", "elastichost: report of a run", class_="kicker"),
            tag("h1", report.overview.job),
            tag("p", lead_of(report), class_="lead"),
            _message(report.overview.message),
            fact_list(facts_of(report), "facts pairs"),
            details("Machine, versions and files", fact_list(machine_facts_of(report))),
        ),
        gap_list([(gap.source, gap.text) for gap in report.gaps]),
    )


def _message(message: str) -> Markup:
    """The error of the run: its first line, and the other lines folded."""
    first, _, rest = message.partition("\n")
    if not first:
        return Markup()
    more = details("Full message", tag("pre", rest)) if rest else Markup()
    return tag("aside", tag("p", first), more, class_="bad")


def _figure(report: Report, make: Make, caption: str, without: str) -> Markup:
    """The figure with its caption, or the sentence `without` if there is no figure."""
    return drawn(lambda: make(report), caption, without)


def _speed(report: Report) -> Markup:
    caption = (
        "Samples per second of all workers: counted each second, and as the workers report it over their last five "
        "seconds. The numbers mark changes of the plan."
    )
    if len(report.sessions) > 1:
        caption += " A solid vertical line marks a resume."
    plans = report.story.plans
    return joined(
        _figure(report, throughput_figure, caption, "No speed was recorded."),
        plan_table(plans) if plans else Markup(),
    )


def _learning(report: Report) -> Markup:
    caption = "The loss is a mean over the workers' last training samples; the AUC is over the whole test set."
    return _figure(report, learning_figure, caption, " ".join(without_course_words(report.overview)))


def _plan(report: Report) -> Markup:
    return _figure(
        report,
        plan_figure,
        "The planned numbers of processes and threads. Lines with equal numbers are drawn side by side.",
        "The journal has no plan.",
    )


def _processes(report: Report) -> Markup:
    caption = "Memory is PSS: memory that several processes share is divided among them."
    figure = _figure(report, process_figure, caption, "No process was measured.")
    if not report.processes:
        return figure
    listed, count = process_table(report.processes), len(report.processes)
    return joined(figure, listed if count <= MOST_OPEN else details(f"All {count} processes", listed))


def _decisions(report: Report) -> Markup:
    story, parts = report.story, list[Markup]()
    if report.tuner:
        parts.append(
            tag(
                "p",
                "Each decision of the tuner, the speed that it expected (samples per second, with a 90 % interval), "
                "and the speed measured afterwards. The gain compares the speeds measured after and before the "
                "decision. A decision that was not carried out changed no plan: the plan was in effect already, or was "
                "not possible."
                + (" The tuner only watched: no decision was applied." if report.overview.tuner == "watch" else ""),
            )
        )
        parts.append(decision_table(report.tuner))
    else:
        parts.append(tag("p", "The tuner made no decision, or its decisions were not recorded.", class_="quiet"))
    if story.decisions:
        count = len(story.decisions) + story.decisions_left_out
        listed = note_table(story.decisions, story.decisions_left_out)
        parts.append(details(f"All {plural(count, 'decision')} in the journal", listed))
    return joined(*parts)


def _model(report: Report) -> Markup:
    model = report.model
    if model is None:
        return tag(
            "p", "No configuration was measured long enough, or the tuner's input was not recorded.", class_="quiet"
        )
    caption = (
        "Each measured configuration: the forecast before the measurement, the measured speed, and the prediction of "
        "the model after all measurements. Lines are 90 % intervals."
    )
    if any(one.is_forgotten for one in model.measured):
        caption += " Starred: the tuner discarded this measurement when the speed of all configurations changed."
    ranking = "Extrapolated: no similar configuration was measured, and the history has no similar job."
    return joined(
        tag("p", f"The model {model.name} could not be fitted: {model.problem}") if model.problem else Markup(),
        tag("p", " ".join(accuracy_words(report))),
        _figure(report, model_figure, caption, ""),
        _figure(report, candidates_figure, ranking, ""),
        _fit(report) if not model.problem else Markup(),
    )


def _fit(report: Report) -> Markup:
    model = report.model
    assert model is not None
    facts = [
        ("model", model.name),
        (
            "fitted to",
            f"{plural(model.observations, 'observation')} of {plural(model.configurations, 'configuration')}",
        ),
        ("rank", f"{model.rank} of {plural(model.parameters_total, 'parameter')} determined by measurement"),
        ("started with", "the history of similar jobs" if model.has_prior else "no history"),
    ]
    if model.confidence is not None:
        facts.append(("confidence", f"{model.confidence:.2f} (0 to 1)"))
    return joined(fact_list(facts), details("Parameters of the model", parameter_table(model)))


def _memory(report: Report) -> Markup:
    memory = report.memory
    told = []
    if memory.peak_arena_bytes:
        told.append(f"The peak of the arena was {bytes_words(memory.peak_arena_bytes)}.")
    if memory.peak_process_bytes:
        peak = bytes_words(memory.peak_process_bytes)
        told.append(f"The peak of all processes together, including the arena that they share, was {peak}.")
    if memory.budget_bytes is not None:
        told.append(f"The job may use {bytes_words(memory.budget_bytes)}.")
    elif memory.setting:
        told.append(f"The job may use {memory.setting} of the machine's memory, whose size was not recorded.")
    if memory.peak_used_bytes:
        told.append(
            f"At most {bytes_words(memory.peak_used_bytes)} of that were in use, or reserved for checkpoint copies and "
            "for indexes at their peak."
        )
    return joined(
        tag("p", " ".join(told)) if told else Markup(),
        _figure(report, memory_figure, "The arena holds rows, their optimizer state and the index of ids.", ""),
        joined(tag("h3", "Forecasts and actions"), memory_table(memory.steps)) if memory.steps else "",
    )


def _load(report: Report) -> Markup:
    caption = "The share of each parameter server in the load. A dashed line marks a hand-over of buckets."
    without = "No load was recorded. A run with direct access or with one parameter server has none to divide."
    heat = report.heat
    return joined(
        _figure(report, heat_figure, caption, without),
        joined(tag("h3", "Buckets with the most load"), bucket_table(heat.hottest)) if heat is not None else Markup(),
    )


def _faults(report: Report) -> Markup:
    story = report.story
    if not story.faults:
        return tag("p", "The journal has no faults.", class_="quiet")
    counted = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in story.fault_counts.items())
    return joined(tag("p", f"{counted}."), fault_table(story.faults, story.faults_left_out))


def _footer(report: Report) -> Markup:
    version = report.overview.machine.packages.get("elastichost", "")
    ran = f" elastichost {version} trained the run." if version else ""
    return tag(
        "footer",
        f"Made {clock_words(report.made_utc)} from the files of the run directory.{ran} The figures of this page as "
        "JSON: ",
        tag("code", "elastichost report RUN --json"),
    )
