"""The charts of a host with many jobs: jobs over time, cores and memory by job, speeds beside other jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elastichost.human_readable import duration_words
from elastichost.reporting.host.facts import HostReport, JobRow, JobSpan
from elastichost.reporting.render.bars import Bar, BarRow, BarTable, ticks_of
from elastichost.reporting.render.chart import Chart, ChartAxis, ChartPoint, ChartSeries
from elastichost.reporting.render.chart_table import moment_words
from elastichost.reporting.render.palette import CYCLE
from elastichost.tuner.colocation.kinds import KINDS

__all__ = ["MOST_ROWS", "core_chart", "host_memory_chart", "job_bars", "together_chart"]

NAME_LENGTH = 28
MOST_ROWS = 80
MOST_POINTS = 400
NEAR = 4.0  # the limit is drawn only up to this multiple of the memory in use: a higher line would flatten the rest
KIND_COLOURS: dict[str, str] = dict(zip(KINDS, CYCLE, strict=False))
STRIP_PX = 14
# of each state's bar: its top and its height in pixels
BARS: dict[str, tuple[float, float]] = {
    "waiting": (6.0, 2.0),
    "starting": (1.0, 12.0),
    "running": (1.0, 12.0),
    "paused": (1.5, 11.0),
    "stopping": (4.0, 6.0),
}


def _colour_of(kind: str) -> str:
    return KIND_COLOURS.get(kind, "muted")


def _kinds(jobs: Sequence[JobRow]) -> Iterator[tuple[str, str]]:
    """(CSS class, name) of each kind of job that is present."""
    present = {job.kind for job in jobs}
    for kind in (*KINDS, *sorted(present - set(KINDS))):
        if kind in present:
            yield f"fill-{_colour_of(kind)}", kind or "unknown kind"


def _time(report: HostReport) -> ChartAxis:
    return ChartAxis("time since the host began", "moment", least=0.0, most=max(report.summary.elapsed_s, 1.0))


def job_bars(report: HostReport) -> BarTable | None:
    """The states of each job over time, of at most the last MOST_ROWS jobs. None: no job was submitted."""
    jobs = [job for job in report.jobs if job.spans][-MOST_ROWS:]
    if not jobs:
        return None
    most_s = max(report.summary.elapsed_s, 1.0)
    ticks = tuple((tick.left, moment_words(tick.at).removesuffix(".0")) for tick in ticks_of(most_s, are_seconds=True))
    rows = tuple(_row(job, most_s) for job in jobs)
    name = "The states of each job over time"
    return BarTable(name, "job", "end", rows, ticks, "time since the host began", tuple(_kinds(jobs)), STRIP_PX)


def _row(job: JobRow, most_s: float) -> BarRow:
    name = job.job if len(job.job) <= NAME_LENGTH else f"{job.job[: NAME_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    bars = tuple(_bar(job, span, most_s) for span in job.spans)
    words = "; ".join(_span_words(span) for span in job.spans)
    return BarRow(name, bars, job.state, f"{job.job}{f' ({job.kind})' if job.kind else ''}: {words}")


def _bar(job: JobRow, span: JobSpan, most_s: float) -> Bar:
    top, height = BARS[span.state]
    colour = {"waiting": "muted", "stopping": "red"}.get(span.state, _colour_of(job.kind))
    left, width = 100 * span.at_s / most_s, 100 * span.seconds / most_s
    tip = f"{job.job}{f' ({job.kind})' if job.kind else ''}: {_span_words(span)}"
    return Bar(left, width, top, height, f"fill-{colour} state-{span.state}", tip)


def _span_words(span: JobSpan) -> str:
    when = f"{moment_words(span.at_s)} to {moment_words(span.until_s)}"
    return f"{span.state}, {when}, {duration_words(span.seconds)}"


def core_chart(report: HostReport) -> Chart | None:
    """Cores in use, stacked by job. None: nothing was measured."""
    course, cores = report.course, report.summary.cores
    if not course.at_s:
        return None
    series = [*_stack(report, [line.cores for line in course.lines])]
    if cores:
        series.append(_limit(report, "cores of the host", "ink", float(cores)))
    axis = ChartAxis("cores", "count", least=0.0)
    about = "CPU time of all processes of each job, stacked in the order in which the jobs started."
    return Chart(name="cores", title="Cores in use", x=_time(report), y=axis, series=tuple(series), about=about)


def host_memory_chart(report: HostReport) -> Chart | None:
    """Memory in use, stacked by job, and the memory charged to all jobs. None: nothing was measured."""
    course, limit = report.course, report.summary.memory_bytes
    if not course.at_s:
        return None
    series = [*_stack(report, [line.memory_bytes for line in course.lines])]
    series.append(ChartSeries("charged", "ink", course.at_s, course.charged_bytes, "step_before"))
    totals = [sum(now) for now in zip(*(line.memory_bytes for line in course.lines), strict=True)]
    if limit and limit <= NEAR * max(*course.charged_bytes, *totals, 0.0, 1.0):
        series.append(_limit(report, "limit of all jobs", "red", float(limit)))
    return Chart(
        name="memory",
        title="Memory in use",
        x=_time(report),
        y=ChartAxis("memory", "bytes", least=0.0),
        series=tuple(series),
        about="Rows, copies and private memory of each job, stacked. The line is the memory charged to all jobs "
        "together: the sum of their peaks.",
    )


def _stack(report: HostReport, values: Sequence[Sequence[float]]) -> Iterator[ChartSeries]:
    for number, (line, own) in enumerate(zip(report.course.lines, values, strict=True)):
        yield ChartSeries(line.job, CYCLE[number % len(CYCLE)], report.course.at_s, own, "stacked")


def _limit(report: HostReport, name: str, colour: str, value: float) -> ChartSeries:
    return ChartSeries(name, colour, (0.0, max(report.summary.elapsed_s, 1.0)), (value, value), is_dashed=True)


def together_chart(report: HostReport) -> Chart | None:
    """Predicted and measured speeds beside other jobs, as shares of the speed alone. None: no job has both."""
    if not report.together:
        return None
    longest = sorted(report.together, key=lambda one: one.seconds, reverse=True)[:MOST_POINTS]
    points = []
    for one in longest:
        beside = f"beside {', '.join(one.others)}" if one.others else "alone"
        tip = (
            f"{one.job} {beside} from {moment_words(one.at_s)} for {duration_words(one.seconds)}: predicted "
            f"{one.predicted:.2f}, measured {one.measured:.2f}"
        )
        name = one.kind or "unknown kind"
        points.append(ChartPoint(name, _colour_of(one.kind), one.predicted, one.measured, tip))
    top = 1.06 * max(1.0, *(max(one.predicted, one.measured) for one in report.together))
    return Chart(
        name="together",
        title="Measured speed, as a share of the speed alone",
        x=ChartAxis("predicted speed, as a share of the speed alone", "share", least=0.0, most=top),
        y=ChartAxis("measured speed", "share", least=0.0, most=top),
        series=(ChartSeries("as predicted", "muted", (0.0, top), (0.0, top), is_dashed=True),),
        points=tuple(points),
        about="Each point is one job during a time in which the same other jobs ran.",
        is_tall=True,
    )
