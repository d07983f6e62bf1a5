"""The table of the tuner's aims and measurements. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

import msgspec

from benchmarks.harness.aggregates import spread_of
from benchmarks.harness.aims import at_least, at_most
from benchmarks.tuner import accuracy, coverage, live, real, stay, stay_live
from benchmarks.tuner.emulated import benchmark as emulated
from benchmarks.tuner.memory import benchmark as memory
from benchmarks.tuner.results.row import Row, reached, reached_once
from benchmarks.tuner.results.simulated_rows import simulated_rows
from benchmarks.tuner.search import benchmark as search

__all__ = ["rows_of"]


def rows_of(figures: Mapping[str, msgspec.Raw]) -> list[Row]:
    """The rows of the table. figures: kept figures by part; a part without figures has no rows."""
    makers: dict[str, Callable[[msgspec.Raw], Iterator[Row]]] = {
        "simulated": simulated_rows,
        "real": _real,
        "coverage": _coverage,
        "accuracy": _accuracy,
        "search": _search,
        "live": _live,
        "stay": _stay,
        "stay_live": _stay_live,
        "memory": _memory,
        "emulated": _emulated,
    }
    return [row for name, make in makers.items() if name in figures for row in make(figures[name])]


def _real(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=real.Figures)
    ours, paper, optimus, pollux, corrected, table = (
        found.models[name] for name in ("elastichost", "dlrover_rm", "optimus", "pollux", "pollux+", "table")
    )
    yield Row(
        f"held-out error after {real.MOST} configurations, real runs: median (95 %), P90",
        f"paper's sum {paper.median:.1%}, Optimus {optimus.median:.1%}, Pollux {pollux.median:.1%}; Pollux with "
        f"our correction by similar measurements {corrected.median:.1%}; a table without a model {table.median:.1%}",
        "<= 8 %, <= 12 %",
        f"{ours.median:.1%} ({ours.low:.1%}-{ours.high:.1%}), {ours.p90:.1%}",
        reached((at_most(0.08), ours.median, ours.high), (at_most(0.12), ours.p90, ours.p90)),
    )
    by_job = [arms["elastichost"].coverage for arms in found.by_case.values()]
    yield Row(
        "true speeds within the 90 % interval, real runs: all, by job",
        "",
        "85-95 %",
        f"{ours.coverage:.0%}, {min(by_job):.0%} to {max(by_job):.0%}",
        reached((at_least(0.85), ours.coverage, min(by_job)), (at_most(0.95), ours.coverage, max(by_job))),
    )


def _coverage(raw: msgspec.Raw) -> Iterator[Row]:
    jobs = msgspec.json.decode(raw, type=coverage.Figures).jobs
    means = {count: fmean(job.unseen[count].coverage for job in jobs) for count in coverage.COUNTS}
    every = [one.coverage for job in jobs for one in job.unseen.values()]
    yield Row(
        f"the same on jobs that the scale of errors was not chosen with, after {', '.join(map(str, means))} "
        "configurations; the lowest and the highest of a job",
        "",
        "85-95 %",
        f"{', '.join(f'{mean:.0%}' for mean in means.values())}; {min(every):.0%} to {max(every):.0%}",
        reached(
            *((at_least(0.85), mean, min(every)) for mean in means.values()),
            *((at_most(0.95), mean, max(every)) for mean in means.values()),
        ),
    )


def _accuracy(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=accuracy.Figures)
    ours, paper = found.cases["elastichost"], found.cases["dlrover_rm"]
    yield Row(
        "held-out error on simulated queues: median, P90, share in the 90 % interval",
        f"the paper's sum {paper.mape_median:.1%}, {paper.mape_p90:.1%}, {paper.coverage:.0%}",
        "<= 8 %, <= 12 %, 85-95 %",
        f"{ours.mape_median:.1%}, {ours.mape_p90:.1%}, {ours.coverage:.0%}",
        reached(*((one.aim, one.value, one.value) for one in accuracy.verdicts_of(found) if one.value is not None)),
    )
    fixed = {name: found.cases[f"{name}, cores fixed"].mape_median for name in ("dlrover_rm", "optimus", "pollux")}
    yield Row(
        "the same if only workers and PS vary, as in the models of Optimus and Pollux: median",
        f"the paper's sum {fixed['dlrover_rm']:.1%}, Optimus {fixed['optimus']:.1%}, Pollux {fixed['pollux']:.1%}",
        "",
        f"{found.cases['elastichost, cores fixed'].mape_median:.1%}",
        "",
    )


def _live(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=live.Figures)
    for name, words in (("default", "the default plan"), ("bad", "a bad plan")):
        end, plan, soon_s = found.end_over_best[name], found.plan_over_best[name], found.soon_s[name]
        soon = "never" if soon_s is None else f"{soon_s:.0f} s"
        late_s = math.inf if soon_s is None else soon_s
        yield Row(
            f"retail job from {words}: final speed over that of the best static plan ({found.best}); the same for the "
            "last plan; seconds until within 5 %",
            "",
            ">= 0.95 within 60 s",
            f"{end}; {plan}; {soon}",
            reached((at_least(0.95), end.median, end.least), (at_most(60.0), late_s, late_s)),
        )
    rounds, chance = found.least_by_round["default"], found.alone_by_chance
    yield Row(
        "slowest 5 s over the same 5 s of the default plan: by round; of the median course",
        f"the default plan over itself {chance}" if chance is not None else "",
        ">= 0.9 in each round",
        f"{rounds}; {found.least_over_default['default']:.2f}",
        reached((at_least(0.9), rounds.median, rounds.least)),
    )


def _stay(raw: msgspec.Raw) -> Iterator[Row]:
    runs = msgspec.json.decode(raw, type=stay.Figures).runs
    best, bad = (stay.summary_of([run for run in runs if run.start == start]) for start in stay.STARTS)
    kept = fmean(run.changes == 0 for run in runs if run.start == "best")
    yield Row(
        f"simulated runs from the best plan ({best.runs}): no change; at most two changes and no 5 s below 0.85",
        "",
        "0.9 stay",
        f"{kept:.2f}; {best.calm:.2f}",
        reached_once((at_least(0.9), kept)),
    )
    yield Row(
        f"simulated runs from a bad plan ({bad.runs}): speed of the last plan over that of the best: mean, P10",
        "",
        "",
        f"{bad.final:.3f}, {bad.final_p10:.3f}",
        "",
    )


def _stay_live(raw: msgspec.Raw) -> Iterator[Row]:
    rows = msgspec.json.decode(raw, type=stay_live.Figures).rows
    alone = [value for row in rows if row.start == "off" for value in row.slowest]
    for row in rows:
        if row.start != "best":
            continue
        unchanged = sum(changes == 0 for changes in row.changes) / row.runs
        slowest, most = spread_of(row.slowest), max(row.changes)
        yield Row(
            f"real runs from the best plan, history {row.history}: unchanged; most changes; slowest 5 s over the first "
            "plan",
            f"without a tuner {spread_of(alone).shown('.2f')}" if alone else "",
            "0.9 stay; <= 2; >= 0.85",
            f"{unchanged:.2f}; {most}; {slowest.shown('.2f')}",
            reached(
                (at_least(0.9), unchanged, unchanged),
                (at_most(2), most, most),
                (at_least(0.85), slowest.median, slowest.least),
            ),
        )


def _memory(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=memory.Figures)
    for name, words in (
        ("unknown", "nothing known about the job"),
        ("known", "with its own history"),
        ("misknown", "with the history of another job"),
    ):
        one = found.arms[name]
        shares, lead = f"{one.precision.shown('.3f')}, {one.recall.shown('.3f')}", f"{one.leads[1]:.1f} moves"
        yield Row(
            f"running out of memory predicted in time, {words}: precision, recall; median lead",
            "",
            f">= {found.aims['precision']:g}, >= {found.aims['recall']:g}, lead of one move",
            f"{shares}; {one.median_lead_s:.0f} s, {lead}",
            reached(
                (at_least(found.aims["precision"]), one.precision.mean, one.precision.low),
                (at_least(found.aims["recall"]), one.recall.mean, one.recall.low),
            ),
        )
    for run in found.real:
        if run.lead_s is not None and run.action_s is not None:
            yield Row(
                f"real job, {run.arm}: lead before memory would have run out",
                "",
                f">= {run.action_s:.1f} s, an action",
                f"{run.lead_s:.1f} s; {run.status}",
                reached_once((at_least(run.action_s), run.lead_s if run.status == "done" else -math.inf)),
            )


def _emulated(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=emulated.Figures)
    calm = found.steady
    yield Row(
        f"{calm.workers} emulated workers: delay of heartbeats (p99), supervisor's share of a core",
        "",
        "<= 100 ms, <= 25 %",
        f"{1e3 * calm.heartbeat_p99_s:.0f} ms, {calm.supervisor_cores:.0%}",
        reached_once(*((one.aim, one.value) for one in emulated.verdicts_of(found) if one.value is not None)),
    )
    for one in found.tuned:
        yield Row(
            f"emulated {one.name}, without history: true speed of the last plan over that of the best; settled after",
            "",
            ">= 0.95",
            f"{one.share:.3f}; {one.settled_s:.0f} s",
            reached_once((at_least(0.95), one.share)),
        )


def _search(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=search.Figures)
    for words, arms, most in (
        ("cold", found.cold, 7),
        ("warm", found.warm, 3),
        ("cold, recorded grids", found.real_cold, 7),
        ("warm, recorded grids", found.real_warm, 3),
    ):
        if "elastichost" not in arms:  # no grid was recorded
            continue
        ours, bayesian = arms["elastichost"], arms.get("bayesian")
        others = f"Gaussian-process BO {bayesian.soon.shown('.2f')}" if bayesian is not None else ""
        yield Row(
            f"runs within 5 % of the best after at most {most} configurations, {words}",
            f"{others}; BO with a parametric model: <= 10" if most == 7 else others,
            ">= 0.9",
            ours.soon.shown(".2f"),
            reached((at_least(0.9), ours.soon.value, ours.soon.low)),
        )
    yield Row(
        "decision of one job, p99, CPU time",
        "0.4 s (a MIP allocator)",
        "<= 50 ms",
        f"{1e3 * found.decision_p99_s:,.0f} ms",
        reached_once((at_most(0.05), found.decision_p99_s)),
    )
