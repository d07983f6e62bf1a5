"""The charts of a run over time and over samples. Pure.

A function returns no chart if nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elastichost.human_readable import plural
from elastichost.reporting.render.chart import (
    Chart,
    ChartAxis,
    ChartMark,
    ChartPoint,
    ChartSeries,
    ChartSpan,
    Values,
    line_of,
)
from elastichost.reporting.render.palette import CYCLE
from elastichost.reporting.render.smoothed import smoothed
from elastichost.reporting.run.facts import Curve, Evaluation, PlanChange, ProcessCourse, Report
from elastichost.reporting.run.view.time_axis import has_values, resume_marks, time_axis, total_s

__all__ = [
    "evaluation_charts",
    "load_chart",
    "loss_chart",
    "memory_chart",
    "plan_chart",
    "process_charts",
    "speed_chart",
]

NEAR_BUDGET = 4.0  # the budget is drawn only up to this multiple of the peak: a higher line would flatten the others
MOST_BOLD = 100  # points of a loss curve that is drawn as one line
SMOOTHED_POINTS = 50
SAMPLES = "samples trained"


def loss_chart(report: Report) -> Chart | None:
    """Loss over samples. None also for an emulated model, whose loss is always 0."""
    curve: Curve = report.curve
    if not any(curve.loss):
        return None
    how = (
        f"The mean loss of every {round(curve.every_samples):,} samples, from all batches that were committed."
        if curve.is_exact
        else "A mean over the workers' last samples, read once a second: this run has no exact curve."
    )
    return Chart(
        name="loss",
        title="Training loss",
        x=ChartAxis(SAMPLES, "count", least=0.0),
        y=ChartAxis("loss", "figure"),
        series=tuple(_loss_series(curve)),
        about=how,
    )


def _loss_series(curve: Curve) -> Iterator[ChartSeries]:
    """The curve; if it has many points, they are pale, and a second line shows their course."""
    if len(curve.loss) <= MOST_BOLD:
        yield line_of("loss", "blue", curve.samples, curve.loss)
        return
    yield line_of("loss", "blue", curve.samples, curve.loss, width=1.0, is_faint=True)
    points = [
        (at, loss) for at, loss in zip(curve.samples, curve.loss, strict=True) if at is not None and loss is not None
    ]
    yield ChartSeries("mean", "blue", *smoothed(points, SMOOTHED_POINTS), width=2.2)


def evaluation_charts(report: Report) -> tuple[Chart, ...]:
    """AUC, log loss and the further figures of the evaluations over samples."""
    told, run = report.story.evaluations, report.overview
    auc = [(one, one.auc) for one in told if one.auc is not None]
    logloss = [(one, one.logloss) for one in told if one.logloss is not None]
    charts: list[Chart] = []
    known = [("auc", "AUC on the test set", auc, run.truth_auc), ("logloss", "Log loss on the test set", logloss, None)]
    for number, further in enumerate(dict.fromkeys(name for one in told for name in one.metrics)):
        values = [(one, value) for one in told if (value := one.metrics.get(further)) is not None]
        known.append((f"metric-{number}", f"{further} on the test set", values, None))
    for name, title, found, limit in known:
        if not found:
            continue
        series = [_evaluated(title, found)]
        if limit is not None:
            ends = (0.0, float(max(one.samples for one, _ in found)))
            series.append(ChartSeries("true probabilities", "muted", ends, (limit, limit), is_dashed=True))
        x, y = ChartAxis(SAMPLES, "count", least=0.0), ChartAxis(title, "figure")
        charts.append(Chart(name=name, title=title, x=x, y=y, series=tuple(series)))
    return tuple(charts)


def _evaluated(title: str, found: Sequence[tuple[Evaluation, float]]) -> ChartSeries:
    name = title.partition(" on ")[0]
    return ChartSeries(name, "violet", [float(one.samples) for one, _ in found], [value for _, value in found])


def speed_chart(report: Report) -> Chart | None:
    """Samples/s over time."""
    course = report.course
    if not has_values(course.counted_per_s) and not has_values(course.reported_per_s):
        return None
    return Chart(
        name="speed",
        title="Samples per second, all workers",
        x=time_axis(report),
        y=ChartAxis("samples per second", "rate", least=0.0),
        series=(
            line_of("each second", "blue", course.at_s, course.counted_per_s, width=1.0, is_faint=True),
            line_of("mean of five seconds", "blue", course.at_s, course.reported_per_s),
        ),
        spans=tuple(_spans(report)),
        marks=(*resume_marks(report), *_plan_marks(report.story.plans)),
        points=tuple(_losses(report)),
        about="Counted each second, and as the workers report it over their last five seconds. Numbers mark changes of "
        "the plan.",
    )


def _spans(report: Report) -> Iterator[ChartSpan]:
    for span in report.story.spans:
        colour = "ochre" if span.kind == "checkpoint" else "violet"
        tip = f"{span.kind}, {span.until_s - span.at_s:.1f} s: {span.text}"
        yield ChartSpan(span.kind, colour, span.at_s, span.until_s, tip)


def _plan_marks(plans: Sequence[PlanChange]) -> Iterator[ChartMark]:
    for plan in plans:
        tip = f"{plural(plan.workers, 'worker')}, {plan.servers} PS: {plan.reason}"
        yield ChartMark("change of the plan", plan.at_s, tip, str(plan.number))


def _losses(report: Report) -> Iterator[ChartPoint]:
    for fault in report.story.faults:
        if fault.note.kind == "process_lost":
            yield ChartPoint("process lost", "red", fault.note.at_s, None, fault.note.text, "triangle")


def plan_chart(report: Report) -> Chart | None:
    """The planned numbers of workers, PS and threads over time."""
    story, end_s = report.story, total_s(report)
    if not story.plans:
        return None
    at = [plan.at_s for plan in story.plans]
    # lines with equal numbers lie upon one another, so each is thinner than the one below it
    lines = [
        ("workers", "blue", at, [plan.workers for plan in story.plans], 5.0),
        ("PS", "ochre", at, [plan.servers for plan in story.plans], 3.0),
    ]
    if story.threads:
        threads = [at_s for at_s, _ in story.threads], [count for _, count in story.threads]
        lines.append(("threads of a worker", "teal", *threads, 1.5))
    series = (
        ChartSeries(
            name, colour, [*times, max(end_s, times[-1])], [*map(float, counts), counts[-1]], "step", width=width
        )
        for name, colour, times, counts, width in lines
    )
    return Chart(
        name="plan",
        title="Planned processes and threads",
        x=time_axis(report),
        y=ChartAxis("number", "count", least=0.0),
        series=tuple(series),
        marks=(*resume_marks(report), *_plan_marks(story.plans)),
    )


def process_charts(report: Report) -> tuple[Chart, ...]:
    """CPU and memory of each process over time. CPU is left out if it was never measured, as in a run of a second."""
    if not report.processes:
        return ()
    marks, charts = resume_marks(report), list[Chart]()
    if any(has_values(one.cpu_percent) for one in report.processes):
        charts.append(
            Chart(
                name="cpu",
                title="CPU of each process, percent of a core",
                x=time_axis(report),
                y=ChartAxis("percent of a core", "percent", least=0.0),
                series=tuple(_process_lines(report.processes, "cpu_percent")),
                marks=marks,
            )
        )
    charts.append(
        Chart(
            name="process-memory",
            title="Memory of each process",
            x=time_axis(report),
            y=ChartAxis("memory", "bytes", least=0.0),
            series=tuple(_process_lines(report.processes, "memory_bytes")),
            marks=marks,
            about="PSS: memory that several processes share is divided among them.",
        )
    )
    return tuple(charts)


def _process_lines(processes: Sequence[ProcessCourse], field: str) -> Iterator[ChartSeries]:
    """Many processes have two entries in the legend: the workers and the PS."""
    are_few = len(processes) <= len(CYCLE)
    for number, one in enumerate(processes):
        values: Values = getattr(one, field)
        if are_few:
            yield line_of(one.process, CYCLE[number], one.at_s, values, width=1.4)
            continue
        is_worker = one.process.startswith("worker-")
        group, colour = ("workers", "blue") if is_worker else ("PS", "ochre")
        yield line_of(one.process, colour, one.at_s, values, group=group, width=1.0, is_faint=True)


def memory_chart(report: Report) -> Chart | None:
    """Memory of the arena and of all processes over time."""
    course, memory = report.course, report.memory
    if not has_values(course.arena_bytes) and not has_values(course.process_bytes):
        return None
    series = [
        line_of("all processes (PSS)", "blue", course.process_at_s, course.process_bytes),
        line_of("arena", "ochre", course.at_s, course.arena_bytes),
    ]
    peak = max(memory.peak_arena_bytes or 0, memory.peak_process_bytes or 0)
    if memory.budget_bytes is not None and memory.budget_bytes <= NEAR_BUDGET * peak:
        budget = float(memory.budget_bytes)
        series.append(ChartSeries("budget", "red", (0.0, total_s(report)), (budget, budget), is_dashed=True))
    return Chart(
        name="memory",
        title="Memory of the run",
        x=time_axis(report),
        y=ChartAxis("memory", "bytes", least=0.0),
        series=tuple(one for one in series if has_values(one.y)),
        marks=resume_marks(report),
        about="The arena holds rows, their optimizer state and the index of ids.",
    )


def load_chart(report: Report) -> Chart | None:
    """The share of the load of each PS over time."""
    heat = report.heat
    if heat is None:
        return None
    return Chart(
        name="load",
        title="Share of the load of each parameter server",
        x=time_axis(report),
        y=ChartAxis("share of the load", "share", least=0.0, most=1.0),
        series=tuple(
            ChartSeries(f"PS {server}", CYCLE[number % len(CYCLE)], heat.at_s, shares, "stacked")
            for number, (server, shares) in enumerate(zip(heat.servers, heat.shares, strict=True))
        ),
        marks=tuple(
            ChartMark("hand-over", at_s, f"{plural(count, 'bucket')} handed over") for at_s, count in heat.moves
        ),
    )
