"""The table of the tuner's aims and measurements. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec
import numpy as np

from benchmarks.harness.aggregates import Interval, ratio
from benchmarks.harness.aims import Aim, at_least, at_most
from benchmarks.tuner import accuracy, live, real
from benchmarks.tuner.emulated import benchmark as emulated
from benchmarks.tuner.memory import benchmark as memory
from benchmarks.tuner.search import benchmark as search
from benchmarks.tuner.simulated import results

__all__ = ["Row", "rows_of"]


Reached = Literal["yes", "not each time", "once", "**no**", ""]


class Row(msgspec.Struct, frozen=True):
    """One row. others: the figure to beat, and its source. reached: "yes" if a repetition would reach the aim too; "not
    each time" if the mean or median reaches it, but the unfavourable end of its interval or the worst round does not;
    "once" if it was measured only once; "" without an aim."""

    what: str
    others: str
    aim: str
    ours: str
    reached: Reached


Judged = tuple[Aim, float, float]  # an aim, the mean or median, and the unfavourable end of its interval


def _reached(*judged: Judged) -> Reached:
    if not all(aim.is_met(typically) for aim, typically, _ in judged):
        return "**no**"
    return "yes" if all(aim.is_met(at_worst) for aim, _, at_worst in judged) else "not each time"


def _reached_once(*judged: tuple[Aim, float]) -> Reached:
    """The verdict on a single run: it is not known whether another run would reach the aim."""
    return "once" if all(aim.is_met(value) for aim, value in judged) else "**no**"


def rows_of(figures: Mapping[str, msgspec.Raw]) -> list[Row]:
    """The rows of the table. figures: kept figures by part; a part without figures has no rows."""
    makers: dict[str, Callable[[msgspec.Raw], Iterator[Row]]] = {
        "simulated": _simulated,
        "real": _real,
        "accuracy": _accuracy,
        "search": _search,
        "live": _live,
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
        _reached((at_most(0.08), ours.median, ours.high), (at_most(0.12), ours.p90, ours.p90)),
    )
    by_job = [arms["elastichost"].coverage for arms in found.by_case.values()]
    yield Row(
        "true speeds within the 90 % interval, real runs: all, by job",
        "",
        "85-95 %",
        f"{ours.coverage:.0%}, {min(by_job):.0%} to {max(by_job):.0%}",
        _reached((at_least(0.85), ours.coverage, min(by_job)), (at_most(0.95), ours.coverage, max(by_job))),
    )


def _accuracy(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=accuracy.Figures)
    ours, paper = found.cases["elastichost"], found.cases["dlrover_rm"]
    yield Row(
        "the same on simulated queues: median, P90, in the interval",
        f"the paper's sum {paper.mape_median:.1%}, {paper.mape_p90:.1%}, {paper.coverage:.0%}",
        "<= 8 %, <= 12 %, 85-95 %",
        f"{ours.mape_median:.1%}, {ours.mape_p90:.1%}, {ours.coverage:.0%}",
        _reached(*((one.aim, one.value, one.value) for one in accuracy.verdicts_of(found) if one.value is not None)),
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
            _reached((at_least(0.95), end.median, end.least), (at_most(60.0), late_s, late_s)),
        )
    rounds, chance = found.least_by_round["default"], found.alone_by_chance
    yield Row(
        "slowest 5 s over the same 5 s of the default plan: by round; of the median course",
        f"the default plan over itself {chance}" if chance is not None else "",
        ">= 0.9 in each round",
        f"{rounds}; {found.least_over_default['default']:.2f}",
        _reached((at_least(0.9), rounds.median, rounds.least)),
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
            _reached(
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
                _reached_once((at_least(run.action_s), run.lead_s if run.status == "done" else -math.inf)),
            )


def _emulated(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=emulated.Figures)
    calm = found.steady
    yield Row(
        f"{calm.workers} emulated workers: delay of heartbeats (p99), supervisor's share of a core",
        "",
        "<= 100 ms, <= 25 %",
        f"{1e3 * calm.heartbeat_p99_s:.0f} ms, {calm.supervisor_cores:.0%}",
        _reached_once(*((one.aim, one.value) for one in emulated.verdicts_of(found) if one.value is not None)),
    )
    for one in found.tuned:
        yield Row(
            f"emulated {one.name}, without history: true speed of the last plan over that of the best; settled after",
            "",
            ">= 0.95",
            f"{one.share:.3f}; {one.settled_s:.0f} s",
            _reached_once((at_least(0.95), one.share)),
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
            _reached((at_least(0.9), ours.soon.value, ours.soon.low)),
        )
    yield Row(
        "decision of one job, p99, CPU time",
        "0.4 s (a MIP allocator)",
        "<= 50 ms",
        _ms(found.decision_p99_s),
        _reached_once((at_most(0.05), found.decision_p99_s)),
    )


def _simulated(raw: msgspec.Raw) -> Iterator[Row]:
    found = msgspec.json.decode(raw, type=results.Results)
    ours, rival = found.spreads["elastichost"], found.spreads[found.best_rival]
    ratios = found.ratios["elastichost"]
    best, oracle = ratios[found.best_rival], ratios["oracle"]
    yield Row(
        "mean JCT over the best of static, elastic scheduler, Optimus; all of them start from requests drawn at random",
        f"paper 0.69; DLRover-RM here {found.ratios['dlrover_rm'][found.best_rival].shown('.2f')}",
        "<= 0.65",
        f"{best.shown('.2f')} ({found.best_rival})",
        _reached((at_most(0.65), best.mean, best.high)),
    )
    tail = _tail(found, found.best_rival)
    yield Row(
        "P95 JCT over the same policy's",
        "paper 0.69",
        "<= 0.65",
        tail.shown(".2f"),
        _reached((at_most(0.65), tail.mean, tail.high)),
    )
    yield from _strongest(found)
    yield Row(
        "mean JCT over that of an oracle (true speeds, exact, best of three urgencies)",
        "",
        "<= 1.05",
        oracle.shown(".2f"),
        _reached((at_most(1.05), oracle.mean, oracle.high)),
    )
    static = found.spreads["static"]["completed"]
    points = 100 * (ours["completed"].mean - static.mean)
    yield Row(
        "completed jobs, percentage points more than with users' plans, which are drawn at random",
        "paper +6",
        ">= +6",
        f"{points:+.1f} ({ours['completed'].mean:.3f} against {static.shown('.3f')})",
        _reached((at_least(6.0), points, 100 * (ours["completed"].low - static.high))),
    )
    yield Row(
        "OOM kills per job",
        f"{found.best_rival} {rival['oom_kills'].mean:.2f}",
        "none avoidable",
        ours["oom_kills"].shown(".3f"),
        _reached((at_most(0.0), ours["oom_kills"].mean, ours["oom_kills"].high)),
    )
    yield from _gains(found)
    yield from _cured(found)
    yield from _seen(found)
    yield from _started(found)
    yield from _decided(found)


def _tail(found: results.Results, rival: str) -> Interval:
    ours, others = (np.array([one.completion_p95_s for one in found.figures[name]]) for name in ("elastichost", rival))
    return ratio(ours, others)


def _strongest(found: results.Results) -> Iterator[Row]:
    """Rows for rivals that are stronger than those in the paper's comparison."""
    ratios = found.ratios["elastichost"]
    for rival, words in (("dlrover_rm", "DLRover-RM"), ("tuned", "well-tuned manual plans that never change")):
        if rival in ratios:
            mean, tail = ratios[rival], _tail(found, rival)
            yield Row(
                f"counter-case: mean JCT, P95 JCT over {words}",
                "",
                "<= 0.65, <= 1",
                f"{mean.shown('.2f')}, {tail.shown('.2f')}",
                _reached((at_most(0.65), mean.mean, mean.high), (at_most(1.0), tail.mean, tail.high)),
            )


def _gains(found: results.Results) -> Iterator[Row]:
    ours = found.spreads["elastichost"]
    for name, words, paper in (("cpu_used", "CPU", 0.15), ("memory_used", "memory", 0.20)):
        for rival in (found.best_rival, "tuned"):
            if rival in found.spreads:
                other = found.spreads[rival][name]
                gain, least = ours[name].mean / other.mean - 1, ours[name].low / other.high - 1
                yield Row(
                    f"{'' if rival == found.best_rival else 'counter-case: '}{words} used over allocated, against "
                    f"{rival}",
                    f"paper +{paper:.0%}",
                    f">= +{paper:.0%}",
                    f"{gain:+.0%} ({ours[name].shown('.2f')} against {other.shown('.2f')})",
                    _reached((at_least(paper), gain, least)),
                )


def _cured(found: results.Results) -> Iterator[Row]:
    if found.hot is None:
        return
    for arm, words, paper in (
        ("without hot servers", "no action", 0.636),
        ("stop-and-restart migration", "a migration that stops and restarts", 0.724),
    ):
        over = found.hot.over[arm]
        least = over.mean / found.hot.over["nothing gets hot"].mean
        yield Row(
            f"jobs with a hot PS (+{found.hot.size:.0%} of the work): JCT over {words}",
            f"paper {paper}",
            f"< {paper}",
            f"{over.shown('.2f')}; {least:.2f} if no PS were ever hot",
            _reached((at_most(paper), over.mean, over.high)),
        )


def _seen(found: results.Results) -> Iterator[Row]:
    if found.care is None:
        return
    for one, words in ((found.care.stragglers, "stragglers"), (found.care.memory, "running out of memory")):
        if one.precision is not None and one.recall is not None:
            yield Row(
                f"{words}: precision, recall, in time ({one.count} cases)",
                "",
                ">= 0.9, >= 0.95, lead of one move",
                f"{one.precision.shown('.2f')}, {one.recall.shown('.2f')}, {one.in_time:.2f}",
                _reached(
                    (at_least(0.9), one.precision.mean, one.precision.low),
                    (at_least(0.95), one.recall.mean, one.recall.low),
                ),
            )


def _started(found: results.Results) -> Iterator[Row]:
    if found.start is not None:
        start = found.start
        yield Row(
            "first plan compared with the last (smaller / larger): workers, PS, cores",
            "paper, read from a figure: 0.75-1, PS less",
            ">= 0.9",
            ", ".join(one.shown(".2f") for one in (start.workers, start.servers, start.cores)),
            _reached(*((at_least(0.9), one.mean, one.low) for one in (start.workers, start.servers, start.cores))),
        )


def _decided(found: results.Results) -> Iterator[Row]:
    for jobs, aim_s in (("8", 0.05), ("100", 0.2), ("4000", 1.0)):
        took_s = found.decisions_by_size.get("elastichost", {}).get(jobs)
        if took_s is not None:
            yield Row(
                f"decision for {int(jobs):,} jobs, p99, CPU time",
                "0.4 s (a MIP allocator)",
                f"<= {_ms(aim_s)}",
                _ms(took_s),
                _reached_once((at_most(aim_s), took_s)),
            )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms"
