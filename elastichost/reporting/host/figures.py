"""The figures of a host with many jobs: jobs over time, cores and memory by job, speeds beside other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elastichost.human_readable import bytes_words, duration_words
from elastichost.reporting.host.facts import HostReport, JobRow, JobSpan, SpanState
from elastichost.reporting.render.axes import Style, byte_ticks, legend_above
from elastichost.reporting.render.markup import cleaned
from elastichost.reporting.render.palette import CYCLE, LINES
from elastichost.reporting.render.svg import Drawing, TimeScale, new_figure, time_scale
from elastichost.reporting.run.view.words import moment_words
from elastichost.tuner.colocation.kinds import KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_BARS", "core_figure", "gantt_figure", "host_memory_figure", "speed_figure"]

LEFT_IN = 1.45  # left margin, wide enough for job names
NAME_LENGTH = 20
MOST_BARS = 80
BAR_IN = 0.19
MOST_POINTS = 400
NEAR = 4.0  # the limit is drawn only up to this multiple of the memory in use: a higher line would flatten the rest
KIND_COLOURS: dict[str, str] = dict(zip(KINDS, CYCLE, strict=False))
# of each state's bar: the height in rows, and the opacity
BARS: dict[SpanState, tuple[float, float]] = {
    "waiting": (0.12, 0.55),
    "starting": (0.62, 0.45),
    "running": (0.62, 0.95),
    "paused": (0.62, 0.0),
    "stopping": (0.34, 0.95),
}


def colour_of(kind: str) -> str:
    return KIND_COLOURS.get(kind, LINES.muted)


def _time_axis(axes: Axes, report: HostReport, scale: TimeScale) -> None:
    axes.set_xlim(0, max(report.summary.elapsed_s, 1.0) / scale.seconds)
    axes.set_xlabel(f"{scale.unit} since the host began")


def _name_kinds(axes: Axes, jobs: Sequence[JobRow]) -> None:
    """Adds each kind of job to the legend once."""
    present = {job.kind for job in jobs}
    for kind in (*KINDS, *sorted(present - set(KINDS))):
        if kind in present:
            axes.fill_between(
                [0.0, 0.0], [0.0, 0.0], color=colour_of(kind), label=cleaned(kind) or "unknown kind", linewidth=0
            )


def gantt_figure(report: HostReport) -> Drawing | None:
    """The states of each job over time, of at most the last MOST_BARS jobs. None: no job was submitted."""
    jobs = [job for job in report.jobs if job.spans][-MOST_BARS:]
    if not jobs:
        return None
    scale = time_scale(report.summary.elapsed_s)
    figure, (axes,) = new_figure(0.95 + BAR_IN * len(jobs), left_in=LEFT_IN)
    tips: dict[str, str] = {}
    for row, job in enumerate(jobs):
        tips |= _bars(axes, row, job, scale)
        _end_mark(axes, row, job, scale)
    _name_kinds(axes, jobs)
    axes.set_yticks(range(len(jobs)), [_shown(job.job) for job in jobs])
    axes.set_ylim(len(jobs) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    _time_axis(axes, report, scale)
    legend_above(axes)
    return Drawing("gantt", figure, "The states of each job over time", tips)


def _shown(name: str) -> str:
    name = cleaned(name)
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"


def _bars(axes: Axes, row: int, job: JobRow, scale: TimeScale) -> dict[str, str]:
    tips = {}
    for number, span in enumerate(job.spans):
        gid, (height, strength) = f"bar-{row}-{number}", BARS[span.state]
        style: Style = {"facecolor": colour_of(job.kind), "linewidth": 0.0, "alpha": strength}
        if span.state == "waiting":
            style["facecolor"] = LINES.muted
        elif span.state == "paused":
            style = {"facecolor": "none", "edgecolor": colour_of(job.kind), "linewidth": 0.9}
        elif span.state == "stopping":
            style["facecolor"] = LINES.fault
        place = (span.at_s / scale.seconds, span.seconds / scale.seconds)
        axes.broken_barh([place], (row - height / 2, height), gid=gid, **style)
        tips[gid] = _span_words(job, span)
    return tips


def _span_words(job: JobRow, span: JobSpan) -> str:
    when = f"{moment_words(span.at_s)} to {moment_words(span.until_s)}, {duration_words(span.seconds)}"
    kind = f" ({job.kind})" if job.kind else ""
    return f"{job.job}{kind}: {span.state}, {when}"


def _end_mark(axes: Axes, row: int, job: JobRow, scale: TimeScale) -> None:
    if job.state == "failed" and job.ended_s is not None:
        at = job.ended_s / scale.seconds
        axes.plot([at], [row], "x", color=LINES.fault, markersize=6, markeredgewidth=1.6, clip_on=False, zorder=5)


def core_figure(report: HostReport) -> Drawing | None:
    """Cores in use, stacked by job. None: nothing was measured."""
    if not report.course.at_s:
        return None
    figure, (axes,) = new_figure(2.4, left_in=LEFT_IN)
    lines = [line.cores for line in report.course.lines]
    tips, top = _stack(axes, report, lines, "core")
    cores = report.summary.cores
    if cores:
        style: Style = {"color": LINES.ink, "linestyle": (0, (4, 3)), "linewidth": 1.0}
        axes.axhline(cores, label="cores of the host", **style)
    axes.set_ylim(0, 1.08 * max(top, cores, 0.1))
    axes.set_ylabel("cores in use")
    legend_above(axes)
    return Drawing("cores", figure, "Cores in use over time, by job", tips)


def host_memory_figure(report: HostReport) -> Drawing | None:
    """Memory in use, stacked by job, and the memory charged to all jobs. None: nothing was measured."""
    course, summary = report.course, report.summary
    if not course.at_s:
        return None
    scale = time_scale(summary.elapsed_s)
    figure, (axes,) = new_figure(2.4, left_in=LEFT_IN)
    tips, top = _stack(axes, report, [line.memory_bytes for line in course.lines], "memory")
    at = [at_s / scale.seconds for at_s in course.at_s]
    axes.plot(at, course.charged_bytes, color=LINES.ink, linewidth=1.1, label="charged", drawstyle="steps-pre")
    top = max(top, *course.charged_bytes)
    if summary.memory_bytes and summary.memory_bytes <= NEAR * top:
        style: Style = {"color": LINES.fault, "linestyle": (0, (4, 3)), "linewidth": 1.0}
        axes.axhline(summary.memory_bytes, label="limit of all jobs", **style)
        top = max(top, summary.memory_bytes)
    axes.set_ylim(0, 1.08 * max(top, 1))
    byte_ticks(axes)
    legend_above(axes)
    return Drawing("memory", figure, "Memory in use over time, by job, and memory charged", tips)


def _stack(
    axes: Axes, report: HostReport, values: Sequence[Sequence[float]], name: str
) -> tuple[dict[str, str], float]:
    """Draws one band for each job, the first job at the bottom. Returns the tooltips and the highest point."""
    scale = time_scale(report.summary.elapsed_s)
    course, by_name = report.course, {job.job: job for job in report.jobs}
    at = [at_s / scale.seconds for at_s in course.at_s]
    tips: dict[str, str] = {}
    bottom = [0.0] * len(at)
    for number, (line, own) in enumerate(zip(course.lines, values, strict=True)):
        top = [below + value for below, value in zip(bottom, own, strict=True)]
        job, gid = by_name[line.job], f"{name}-{number}"
        style: Style = {"color": colour_of(job.kind), "alpha": 0.85 if number % 2 == 0 else 0.6, "linewidth": 0}
        there = [place for place, value in enumerate(own) if value > 0] or [0]
        part = slice(max(0, there[0] - 1), there[-1] + 1)
        axes.fill_between(at[part], bottom[part], top[part], step="pre", gid=gid, **style)
        most = f"{max(own):.2f} cores" if name == "core" else bytes_words(round(max(own)))
        tips[gid] = f"{job.job}: at most {most}"
        bottom = top
    _name_kinds(axes, [by_name[line.job] for line in course.lines])
    _time_axis(axes, report, scale)
    return tips, max(bottom, default=0.0)


def speed_figure(report: HostReport) -> Drawing | None:
    """Predicted and measured speeds beside other jobs, as shares of the speed alone. None: no job has both."""
    if not report.together:
        return None
    figure, (axes,) = new_figure(3.4, left_in=LEFT_IN)
    tips: dict[str, str] = {}
    longest = sorted(report.together, key=lambda one: one.seconds, reverse=True)[:MOST_POINTS]
    longest_s = longest[0].seconds
    for number, one in enumerate(longest):
        size = 3.0 + 5.0 * (one.seconds / longest_s) ** 0.5
        gid = f"speed-{number}"
        style: Style = {"markersize": size, "alpha": 0.8, "markeredgecolor": LINES.paper, "markeredgewidth": 0.5}
        axes.plot([one.predicted], [one.measured], "o", color=colour_of(one.kind), gid=gid, **style)
        beside = f"beside {', '.join(one.others)}" if one.others else "alone"
        tips[gid] = (
            f"{one.job} {beside} from {moment_words(one.at_s)} for {duration_words(one.seconds)}: predicted "
            f"{one.predicted:.2f}, measured {one.measured:.2f}"
        )
    _name_kinds(axes, report.jobs)
    top = 1.06 * max(1.0, *(max(one.predicted, one.measured) for one in report.together))
    axes.plot(
        [0, top], [0, top], color=LINES.muted, linewidth=0.8, linestyle=(0, (4, 3)), label="as predicted", zorder=0.9
    )
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_xlabel("predicted speed, as a share of the speed alone")
    axes.set_ylabel("measured speed")
    axes.grid(visible=True, axis="both")
    legend_above(axes)
    return Drawing("speeds", figure, "Speeds beside other jobs: predicted and measured", tips)
