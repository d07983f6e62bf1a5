"""The page: one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Callable

from elastichost.human_readable import bytes_words, plural
from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_parts import details, document, drawn, gap_list
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

__all__ = ["page_of"]

Make = Callable[[Report], Drawing | None]
MOST_OPEN = 12  # rows of a table about processes; a longer one is shown to those who ask


def page_of(report: Report) -> str:
    """A whole HTML document."""
    name = report.overview.job
    sections = [
        ("speed", "Speed", _speed(report)),
        ("learning", "Learning", _learning(report)),
        ("plan", "Plan", _plan(report)),
        ("processes", "Processes", _processes(report)),
        ("decisions", "Decisions", _decisions(report)),
        ("model", "Model against measurement", _model(report)),
        ("memory", "Memory", _memory(report)),
        ("load", "Load of the parameter servers", _load(report)),
        ("faults", "Faults", _faults(report)),
    ]
    return document(f"{name}: report of a run", _header(report), sections, _footer(report))


def _header(report: Report) -> Markup:
    return joined(
        tag(
            "header",
            tag("p", "elastichost: report of a run", class_="kicker"),
            tag("h1", report.overview.job),
            tag("p", lead_of(report), class_="lead"),
            _message(report.overview.message),
            fact_list(facts_of(report), "facts pairs"),
            details("Where, and with what", fact_list(machine_facts_of(report))),
        ),
        gap_list([(gap.source, gap.text) for gap in report.gaps]),
    )


def _message(message: str) -> Markup:
    """What the run ended with: its first line, the others for those who ask."""
    first, _, rest = message.partition("\n")
    if not first:
        return Markup()
    more = details("more of it", tag("pre", rest)) if rest else Markup()
    return tag("aside", tag("p", first), more, class_="bad")


def _figure(report: Report, make: Make, caption: str, without: str) -> Markup:
    """Or, in words, why there is none."""
    return drawn(lambda: make(report), caption, without)


def _speed(report: Report) -> Markup:
    caption = (
        "Samples per second of all workers: as counted from one second to the next, and as the workers report it over "
        "their last five. Numbers stand at changes of the plan."
    )
    if len(report.sessions) > 1:
        caption += " At a solid upright line the run was resumed."
    plans = report.story.plans
    return joined(
        _figure(report, throughput_figure, caption, "No speed was recorded."),
        plan_table(plans) if plans else Markup(),
    )


def _learning(report: Report) -> Markup:
    caption = "The loss is a mean over the workers' last samples while they train; the AUC is of the whole test set."
    return _figure(report, learning_figure, caption, " ".join(without_course_words(report.overview)))


def _plan(report: Report) -> Markup:
    return _figure(
        report,
        plan_figure,
        "What was wanted to run; lines of equal numbers lie beside one another.",
        "The journal tells of no plan.",
    )


def _processes(report: Report) -> Markup:
    caption = "Memory is PSS: what several processes share is divided among them."
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
                "What the tuner decided, what it expected (samples per second, with a 90 % interval), and what was "
                "measured afterwards. The gain is that of what was measured over what ran before. What was not carried "
                "out changed no plan: it was the plan already, or it could not be had."
                + (" It was only to tell: nobody followed." if report.overview.tuner == "watch" else ""),
            )
        )
        parts.append(decision_table(report.tuner))
    else:
        parts.append(tag("p", "The tuner decided nothing, or nothing of it was recorded.", class_="quiet"))
    if story.decisions:
        count = len(story.decisions) + story.decisions_left_out
        listed = note_table(story.decisions, story.decisions_left_out)
        parts.append(details(f"All {plural(count, 'decision')} of the journal", listed))
    return joined(*parts)


def _model(report: Report) -> Markup:
    model = report.model
    if model is None:
        return tag(
            "p", "No configuration was measured long enough, or no look of the tuner was recorded.", class_="quiet"
        )
    caption = (
        "Each configuration that was measured: what was expected of it before, what was measured, and what the model "
        "says now that it knows everything. Lines are 90 % intervals."
    )
    if any(one.is_forgotten for one in model.measured):
        caption += " Starred: measured before everything became faster or slower, and forgotten by the tuner since."
    ranking = "Where a configuration was extrapolated nothing like it had been measured, and no prior helped."
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
        ("began with", "what history knows of similar jobs" if model.has_prior else "no history"),
    ]
    if model.confidence is not None:
        facts.append(("confidence", f"{model.confidence:.2f}, of 1"))
    return joined(fact_list(facts), details("Its parameters", parameter_table(model)))


def _memory(report: Report) -> Markup:
    memory = report.memory
    told = []
    if memory.peak_arena_bytes:
        told.append(f"The arena reached {bytes_words(memory.peak_arena_bytes)}.")
    if memory.peak_process_bytes:
        told.append(f"All processes together, which share the arena, reached {bytes_words(memory.peak_process_bytes)}.")
    if memory.budget_bytes is not None:
        told.append(f"The job may use {bytes_words(memory.budget_bytes)}.")
    elif memory.setting:
        told.append(f"The job may use {memory.setting} of the machine's memory, whose size was not recorded.")
    if memory.peak_used_bytes:
        told.append(
            f"Of that at most {bytes_words(memory.peak_used_bytes)} were taken, or kept for what follows from rows: "
            "copies for checkpoints, indexes at their peak."
        )
    return joined(
        tag("p", " ".join(told)) if told else Markup(),
        _figure(report, memory_figure, "The arena holds rows, their optimizer state and the index of ids.", ""),
        joined(tag("h3", "What was foreseen, and what was done"), memory_table(memory.steps)) if memory.steps else "",
    )


def _load(report: Report) -> Markup:
    caption = "How the keys that were asked for divide among the parameter servers. Dashed: buckets changed hands."
    without = "Nothing was recorded. With direct access, and with one parameter server, there is no load to divide."
    heat = report.heat
    return joined(
        _figure(report, heat_figure, caption, without),
        joined(tag("h3", "The hottest buckets"), bucket_table(heat.hottest)) if heat is not None else Markup(),
    )


def _faults(report: Report) -> Markup:
    story = report.story
    if not story.faults:
        return tag("p", "None is in the journal.", class_="quiet")
    counted = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in story.fault_counts.items())
    return joined(tag("p", f"{counted}."), fault_table(story.faults, story.faults_left_out))


def _footer(report: Report) -> Markup:
    version = report.overview.machine.packages.get("elastichost", "")
    ran = f" The run was made by elastichost {version}." if version else ""
    return tag(
        "footer",
        f"Made {clock_words(report.made_utc)} from the files of the run directory.{ran} The figures behind it: ",
        tag("code", "elastichost report RUN --json"),
    )
