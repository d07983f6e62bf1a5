"""Prints tables of the simulations, with the figures of the DLRover-RM paper where it has some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness.aggregates import Interval
from benchmarks.tuner.simulated.columns import Column
from benchmarks.tuner.simulated.conditions.host_mixes import shown_hosts
from benchmarks.tuner.simulated.conditions.requests import DESCRIPTIONS
from benchmarks.tuner.simulated.health import Cure, Detection
from benchmarks.tuner.simulated.plan import KNOWING, Plan
from benchmarks.tuner.simulated.results import Care, Results

__all__ = ["WIDTH", "show"]

WIDTH = 160  # of output into files
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("mean JCT, s", "completion_mean_s", ",.0f"),
    ("P95 JCT, s", "completion_p95_s", ",.0f"),
    ("completed", "completed", ".3f"),
    ("waited, s", "waited_mean_s", ",.0f"),
    ("CPU used", "cpu_used", ".2f"),
    ("memory used", "memory_used", ".2f"),
    ("allocated", "allocated", ".2f"),
)
MORE: tuple[tuple[str, str, str], ...] = (
    ("OOM kills/job", "oom_kills", ".2f"),
    ("changes/job", "changes", ".1f"),
    ("hot", "hot", ".3f"),
    ("straggling", "straggling", ".3f"),
    ("replaced right", "replaced_right", ".2f"),
    ("moved right", "moved_right", ".2f"),
    ("refused/job", "refused", ".1f"),
    ("decision p99, ms", "decision_p99_s", ".1f"),
    ("events/s", "events_per_s", ",.0f"),
)


def show(results: Results, console: Console) -> None:
    """Prints all tables of the results."""
    plan = results.plan
    if results.is_for_tuning:
        console.print("TUNING SEEDS: constants were chosen on them, so this table is no evidence", soft_wrap=True)
    console.print(
        f"{plan.seeds} seeds from {plan.first_seed} x {plan.jobs} jobs on {plan.hosts} hosts "
        f"({shown_hosts(plan.hosts_mix)}), {_load(plan)}; moving: {plan.moving}; {results.seconds:.0f} s",
        soft_wrap=True,
    )
    for name, column in results.columns.items():
        title = f"Requests: {name}" if name == column.requests else f"Condition: {name}"
        seeds = len(next(iter(column.figures.values())))
        console.print(f"\n{title}, {seeds} seeds. {_given(column)}", soft_wrap=True)
        console.print(_policies("Jobs and resources: mean over seeds (95 %)", column, COLUMNS, with_interval=True))
        console.print(_policies("Faults, and the cost of decisions", column, MORE, with_interval=False))
        console.print(_ratios(column))
    for table in (_ablations(results), _care(results), _cures(results), _start(results), _sizes(results)):
        if table.rows:
            console.print(table)


def _load(plan: Plan) -> str:
    if plan.trace is None:
        return f"{plan.load:.0%} of the cores in use by the well-tuned policy while jobs arrive"
    folded = f" folded to {plan.trace.period_s / 3600:.1f} h" if plan.trace.period_s else ""
    return f"arrivals of the trace {Path(plan.trace.path).name}{folded}"


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    return table


def _given(column: Column) -> str:
    """What policies were given, in one sentence or two."""
    departs = (
        f"True speeds depart smoothly by {column.misfit:.0%} from what any model can fit. " if column.misfit else ""
    )
    return (
        f"{departs}{DESCRIPTIONS[column.requests]}; Optimus, Pollux, Sia, the Optimal Resource Allocator and the "
        "elastic scheduler keep the cores of a process. `tuned` runs the best static configuration in every column, "
        "`oracle` knows all true speeds"
    )


def _policies(title: str, column: Column, columns: Sequence[tuple[str, str, str]], *, with_interval: bool) -> Table:
    table = _table(title, "policy", *(heading for heading, _, _ in columns))
    for name, spreads in column.spreads.items():
        cells = []
        for _, field, form in columns:
            scale = 1e3 if field.endswith("p99_s") else 1.0
            spread = spreads[field]
            cells.append(spread.shown(form, scale) if with_interval else f"{scale * spread.mean:{form}}")
        table.add_row(name, *cells)
    return table


def _ratios(column: Column) -> Table:
    others = [name for name in (KNOWING, "tuned", "dlrover_rm") if name in column.ratios]
    if column.best_rival not in others:
        others.append(column.best_rival)
    headings = (f"over {name}" + (" (best rival)" if name == column.best_rival else "") for name in others)
    table = _table(
        "Mean JCT; P95 JCT over those of another policy, paired by seed (95 %); the paper: 0.69 over its best rival",
        "policy",
        *headings,
    )
    for name, means in column.ratios.items():
        tails = column.tail_ratios[name]
        table.add_row(name, *(f"{means[other].shown('.2f')}; {tails[other].mean:.2f}" for other in others))
    return table


def _ablations(results: Results) -> Table:
    title = "A part left out, compared with the whole policy (95 %)"
    table = _table(title, "arm", "mean JCT, ratio", "completed, points", "memory used, ratio", "OOM kills/job")
    for name, one in results.ablations.items():
        table.add_row(
            name,
            one.completion.shown(".3f"),
            one.completed_points.shown("+.1f"),
            one.memory_used.shown(".3f"),
            one.oom_kills.shown(".3f"),
        )
    return table


def _care(results: Results) -> Table:
    title = "Faults that our policy detects (95 %); lag: median, P95; in time: within 240 s, or one move before"
    table = _table(title, "fault", "count", "precision", "recall", "lag, s", "in time")
    for where, care in (("", results.care), ("; many stragglers", results.rough)):
        for what, found in () if care is None else _detections(care):
            table.add_row(what + where, *_detected(found))
    return table


def _detections(care: Care) -> tuple[tuple[str, Detection], ...]:
    return ("stragglers", care.stragglers), ("hot PS", care.hot), ("memory that runs out", care.memory)


def _detected(found: Detection) -> tuple[str, ...]:
    return (
        f"{found.count}",
        "-" if found.precision is None else found.precision.shown(".3f"),
        "-" if found.recall is None else found.recall.shown(".3f"),
        f"{found.lag_median_s:,.0f}, {found.lag_p95_s:,.0f}",
        f"{found.in_time:.3f}",
    )


def _cures(results: Results) -> Table:
    title = "Jobs with a fault: mean JCT with countermeasures over the mean JCT without (95 %)"
    table = _table(title, "fault", "jobs", "ours, s", "over", "ratio", "the paper")
    hot = "hot PS" if results.hot is None else f"a PS has {results.hot.size:.0%} more of the rows' work"
    papers = {"without hot servers": "0.636", "stop-and-restart migration": "0.724"}
    for what, cure in ((hot, results.hot), ("stragglers", results.stragglers)):
        for other, spread in ({} if cure is None else cure.over).items():
            table.add_row(what, *_cured(cure, other, spread), papers.get(other, ""))
    return table


def _cured(cure: Cure | None, other: str, spread: Interval) -> tuple[str, ...]:
    if cure is None:
        return ()
    ours = next(name for name in cure.mean_s if name not in cure.over)
    return f"{cure.jobs}", cure.mean_s[ours].shown(",.0f"), other, spread.shown(".3f")


def _start(results: Results) -> Table:
    title = "First plan compared with the last, after 20 jobs (95 %); the paper: workers 0.75-1, PS less"
    table = _table(title, "jobs", "workers", "PS", "cores", "true speed, first over last")
    one = results.start
    if one is not None:
        table.add_row(
            f"{one.jobs}", *(spread.shown(".2f") for spread in (one.workers, one.servers, one.cores, one.speed))
        )
    return table


def _sizes(results: Results) -> Table:
    sizes = list(next(iter(results.decisions_by_size.values()), {}))
    table = _table("p99 of a decision, ms of CPU, by jobs", "policy", *sizes)
    for name, row in results.decisions_by_size.items():
        table.add_row(name, *(f"{1e3 * row[size]:,.1f}" for size in sizes))
    return table
