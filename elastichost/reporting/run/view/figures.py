"""The figures of a run over time: speed, learning, plan, processes, memory, load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elastichost.reporting.render.axes import Style, byte_ticks, count_ticks, legend_above
from elastichost.reporting.render.palette import CYCLE, LINES
from elastichost.reporting.render.svg import Drawing, TimeScale, new_figure, time_scale
from elastichost.reporting.run.facts import PlanChange, Report, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["heat_figure", "learning_figure", "memory_figure", "plan_figure", "process_figure", "throughput_figure"]

MOST_NUMBERED = 24  # plan changes; if there are more, their numbers are left out because they would overlap
NAN = float("nan")
NEAR_BUDGET = 4.0  # the budget is drawn only up to this multiple of the peak: a higher line would flatten the others


def _numbers(values: Values, scale: float = 1.0) -> list[float]:
    """The values divided by `scale`; None becomes NaN, which breaks a line."""
    return [NAN if value is None else value / scale for value in values]


def _has(values: Values) -> bool:
    return any(value is not None for value in values)


def _time_axis(axes: Axes, report: Report, scale: TimeScale) -> None:
    total_s = _total_s(report)
    axes.set_xlim(0, max(total_s, 1.0) / scale.seconds)
    axes.set_xlabel(f"{scale.unit} of running time")
    _mark_sessions(axes, report, scale)


def _mark_sessions(axes: Axes, report: Report, scale: TimeScale) -> None:
    for session in report.sessions[1:]:
        axes.axvline(session.at_s / scale.seconds, color=LINES.muted, linewidth=0.6, zorder=0.5)


def _total_s(report: Report) -> float:
    last = report.sessions[-1] if report.sessions else None
    return last.at_s + last.duration_s if last is not None else report.overview.running_s


def throughput_figure(report: Report) -> Drawing | None:
    """Samples/s over time. None: nothing was measured."""
    course, scale = report.course, time_scale(_total_s(report))
    if not _has(course.counted_per_s) and not _has(course.reported_per_s):
        return None
    figure, (axes,) = new_figure(2.9)
    at = _numbers(course.at_s, scale.seconds)
    axes.plot(at, _numbers(course.counted_per_s), color=LINES.workers, alpha=0.35, linewidth=0.8, label="each second")
    axes.plot(at, _numbers(course.reported_per_s), color=LINES.workers, label="mean over five seconds")
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    axes.set_ylabel("samples/s, all workers")
    count_ticks(axes.yaxis)
    _time_axis(axes, report, scale)
    tips = {**_shade(axes, report, scale), **_mark_plans(axes, report.story.plans, scale)}
    tips |= _mark_losses(axes, report, scale)
    legend_above(axes)
    label = f"Samples per second of all workers over {_total_s(report):.0f} seconds of running time"
    return Drawing("throughput", figure, label, tips)


def _shade(axes: Axes, report: Report, scale: TimeScale) -> dict[str, str]:
    tips: dict[str, str] = {}
    named: set[str] = set()
    least_s = _total_s(report) / 700  # a narrower span would be invisible
    for number, span in enumerate(report.story.spans):
        colour = LINES.checkpoint if span.kind == "checkpoint" else LINES.evaluation
        gid = f"span-{number}"
        label = "" if span.kind in named else span.kind
        named.add(span.kind)
        until_s = max(span.until_s, span.at_s + least_s)
        edges = span.at_s / scale.seconds, until_s / scale.seconds
        axes.axvspan(*edges, color=colour, alpha=0.22, linewidth=0, zorder=0.6, gid=gid, label=label)
        tips[gid] = f"{span.kind}, {span.until_s - span.at_s:.1f} s: {span.text}"
    return tips


def _mark_plans(axes: Axes, plans: Sequence[PlanChange], scale: TimeScale) -> dict[str, str]:
    tips: dict[str, str] = {}
    for plan in plans:
        at, gid = plan.at_s / scale.seconds, f"plan-{plan.number}"
        axes.axvline(at, color=LINES.muted, linewidth=0.7, linestyle=(0, (2, 2)), zorder=0.8)
        if len(plans) <= MOST_NUMBERED:
            box: Style = {
                "boxstyle": "circle,pad=0.22",
                "facecolor": LINES.paper,
                "edgecolor": LINES.muted,
                "linewidth": 0.7,
            }
            where: Style = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "center"}
            number = axes.annotate(str(plan.number), (at, 0.96), fontsize=7.0, bbox=box, gid=gid, **where)
            number.set_zorder(4 + plan.number / 1000)
            number.set_annotation_clip(False)
        tips[gid] = f"{plan.number}: {_plan_words(plan)}: {plan.reason}"
    return tips


def _plan_words(plan: PlanChange) -> str:
    return f"{plan.workers} worker{'s' * (plan.workers != 1)}, {plan.servers} PS"


def _mark_losses(axes: Axes, report: Report, scale: TimeScale) -> dict[str, str]:
    tips: dict[str, str] = {}
    lost = [fault for fault in report.story.faults if fault.note.kind == "process_lost"]
    for number, fault in enumerate(lost):
        gid = f"lost-{number}"
        place: Style = {"transform": axes.get_xaxis_transform(), "clip_on": False, "zorder": 5}
        label = "" if number else "process lost"
        at = fault.note.at_s / scale.seconds
        axes.plot([at], [0.0], "^", color=LINES.fault, markersize=5, gid=gid, label=label, linestyle="none", **place)
        tips[gid] = fault.note.text
    return tips


def learning_figure(report: Report) -> Drawing | None:
    """Loss and AUC over samples. None: the run has neither."""
    course, evaluations = report.course, [one for one in report.story.evaluations if one.auc is not None]
    has_loss = any(course.loss)  # the loss of an emulated model is always 0
    if not has_loss and not evaluations:
        return None
    panels = has_loss + bool(evaluations)
    figure, axes = new_figure(0.5 + 1.8 * panels, panels, sharex=True)
    if has_loss:
        points = _unwound(course.samples, course.loss)
        axes[0].plot([samples for samples, _ in points], [loss for _, loss in points], color=LINES.workers)
        axes[0].set_ylabel("loss")
    if evaluations:
        samples, auc = [one.samples for one in evaluations], [one.auc or NAN for one in evaluations]
        axes[-1].plot(samples, auc, "o-", color=LINES.evaluation, markersize=4, linewidth=1.0, label="on the test set")
        truth = report.overview.truth_auc
        if truth is not None:
            axes[-1].axhline(truth, color=LINES.muted, linestyle=(0, (4, 3)), linewidth=0.9, label="true probabilities")
        axes[-1].set_ylabel("AUC")
        legend_above(axes[-1])
    axes[-1].set_xlim(left=0)
    count_ticks(axes[-1].xaxis, 8)
    axes[-1].set_xlabel("samples trained")
    return Drawing("learning", figure, "Loss and AUC over the samples trained")


def _unwound(samples: Values, losses: Values) -> list[tuple[float, float]]:
    """(samples, loss) points; a new line begins where the run went back to a checkpoint."""
    points: list[tuple[float, float]] = []
    last = -1.0
    for count, loss in zip(samples, losses, strict=True):
        if count is None or loss is None:
            points.append((NAN, NAN))
            continue
        if count < last:
            points.append((NAN, NAN))
        points.append((count, loss))
        last = count
    return points


def plan_figure(report: Report) -> Drawing | None:
    """The planned numbers of workers, PS and threads over time. None: there was no plan."""
    from matplotlib.ticker import MaxNLocator

    story, scale, total_s = report.story, time_scale(_total_s(report)), _total_s(report)
    if not story.plans:
        return None
    figure, (axes,) = new_figure(2.0)
    at = [plan.at_s for plan in story.plans]
    lines = [
        ("workers", LINES.workers, at, [plan.workers for plan in story.plans], 0.0),
        ("PS", LINES.servers, at, [plan.servers for plan in story.plans], -0.04),
    ]
    if story.threads:
        lines.append(
            ("threads of a worker", LINES.threads, [at for at, _ in story.threads], [n for _, n in story.threads], 0.04)
        )
    for name, colour, times, counts, aside in lines:
        # an offset, so that lines with equal numbers do not cover one another
        steps = [count + aside for count in (*counts, counts[-1])]
        ends = [time / scale.seconds for time in (*times, max(total_s, times[-1]))]
        axes.step(ends, steps, where="post", color=colour, label=name, linewidth=1.6)
    axes.set_ylim(bottom=-0.2, top=1.12 * max(max(counts) for _, _, _, counts, _ in lines) + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    _time_axis(axes, report, scale)
    tips = _mark_plans(axes, story.plans, scale)
    legend_above(axes)
    return Drawing("plan", figure, "Planned workers, parameter servers and threads over time", tips)


def process_figure(report: Report) -> Drawing | None:
    """CPU and memory of each process over time. None: no process was measured."""
    scale = time_scale(_total_s(report))
    if not report.processes:
        return None
    with_cpu = any(_has(one.cpu_percent) for one in report.processes)  # a single measurement has no CPU use
    figure, axes = new_figure(4.2 if with_cpu else 2.3, 1 + with_cpu, sharex=True)
    are_few = len(report.processes) <= len(CYCLE)
    named: set[str] = set()
    for number, one in enumerate(report.processes):
        role = one.process.partition("-")[0]
        colour = CYCLE[number] if are_few else LINES.workers if role == "worker" else LINES.servers
        name = one.process if are_few else "workers" if role == "worker" else "PS"
        style: Style = {"color": colour, "linewidth": 1.1 if are_few else 0.7, "alpha": 1.0 if are_few else 0.55}
        label = "" if name in named else name
        named.add(name)
        at = _numbers(one.at_s, scale.seconds)
        if with_cpu:
            axes[0].plot(at, _numbers(one.cpu_percent), **style)
        axes[-1].plot(at, _numbers(one.memory_bytes), **style)
        axes[0].lines[-1].set_label(label)
    if with_cpu:
        axes[0].set_ylabel("CPU, % of a core")
    axes[-1].set_ylabel("memory (PSS)")
    for each in axes:
        each.set_ylim(bottom=0)
    byte_ticks(axes[-1])
    _mark_sessions(axes[0], report, scale)
    _time_axis(axes[-1], report, scale)
    legend_above(axes[0], 6 if are_few else 2)
    title = "CPU and memory" if with_cpu else "Memory"
    return Drawing("processes", figure, f"{title} of each process over time")


def memory_figure(report: Report) -> Drawing | None:
    """Memory of the arena and of all processes over time. None: nothing was measured."""
    course, scale, memory = report.course, time_scale(_total_s(report)), report.memory
    if not _has(course.arena_bytes) and not _has(course.process_bytes):
        return None
    figure, (axes,) = new_figure(2.3)
    at = _numbers(course.at_s, scale.seconds)
    processes = _numbers(course.process_bytes)
    label = "all processes (PSS)"
    axes.plot(_numbers(course.process_at_s, scale.seconds), processes, color=LINES.workers, label=label)
    axes.plot(at, _numbers(course.arena_bytes), color=LINES.servers, label="arena (rows and optimizer state)")
    peak = max(memory.peak_arena_bytes or 0, memory.peak_process_bytes or 0)
    if memory.budget_bytes is not None and memory.budget_bytes <= NEAR_BUDGET * peak:
        axes.axhline(memory.budget_bytes, color=LINES.fault, linestyle=(0, (4, 3)), linewidth=1.0, label="budget")
    axes.set_ylim(bottom=0)
    byte_ticks(axes)
    _time_axis(axes, report, scale)
    legend_above(axes)
    return Drawing("memory", figure, "Bytes of the arena and of all processes over time")


def heat_figure(report: Report) -> Drawing | None:
    """The share of the load of each PS over time. None: nothing was recorded."""
    heat, scale = report.heat, time_scale(_total_s(report))
    if heat is None:
        return None
    figure, (axes,) = new_figure(2.4)
    at = [at_s / scale.seconds for at_s in heat.at_s]
    colours = [CYCLE[number % len(CYCLE)] for number in range(len(heat.servers))]
    names = [f"PS {server}" for server in heat.servers]
    axes.stackplot(at, heat.shares, colors=colours, labels=names, alpha=0.75, edgecolor=LINES.paper, linewidth=0.5)
    tips: dict[str, str] = {}
    for number, (at_s, buckets) in enumerate(heat.moves):
        gid = f"move-{number}"
        axes.axvline(at_s / scale.seconds, color=LINES.ink, linewidth=1.0, linestyle=(0, (2, 2)), gid=gid)
        tips[gid] = f"{buckets} bucket{'s' * (buckets != 1)} handed over"
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of the load")
    _time_axis(axes, report, scale)
    if len(names) <= len(CYCLE):
        legend_above(axes, len(CYCLE))
    return Drawing("heat", figure, "Share of the load of each parameter server over time", tips)
