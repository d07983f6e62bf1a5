"""The rows of the simulated clusters: each claim with its counter-case. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks.harness.aims import at_least, at_most
from benchmarks.tuner.results.row import Row, reached, reached_once
from benchmarks.tuner.simulated import results
from benchmarks.tuner.simulated.columns import Column, best_of
from benchmarks.tuner.simulated.conditions.seeds import require_unseen
from benchmarks.tuner.simulated.plan import KNOWING, OURS, PAPER_RIVALS

__all__ = ["simulated_rows"]

WORDS = {
    "random": "requests drawn at random",
    "sensible": "sensible requests",
    "tuned": "well-tuned requests",
    results.MISFIT: "sensible requests, true speeds 20 % off every model",
}


def simulated_rows(raw: msgspec.Raw) -> Iterator[Row]:
    """The rows of one run. raw: its figures as JSON. Raises ConfigError if constants were chosen on its seeds."""
    found = msgspec.json.decode(raw, type=results.Results)
    require_unseen(found.plan.first_seed, found.plan.seeds)
    for name, column in found.columns.items():
        yield from _condition(WORDS[name], column)
    drawn = found.columns.get("random")
    if drawn is not None:
        yield from _as_in_the_paper(drawn)
    for name in ("sensible", "tuned"):
        if name in found.columns:
            yield from _used(WORDS[name], found.columns[name])
    yield from _cured(found)
    yield from _seen(found)
    yield from _started(found)
    yield from _decided(found)


def _condition(words: str, column: Column) -> Iterator[Row]:
    """The claim under one condition, and its counter-cases."""
    means, tails, rival = column.ratios[OURS], column.tail_ratios[OURS], column.best_rival
    best = means[rival]
    bound = f"oracle {column.ratios[KNOWING][rival].shown('.2f')}" if KNOWING in means else ""
    yield Row(
        f"{words}: mean JCT over the best of all rivals ({rival}), {len(column.figures[OURS])} seeds",
        bound,
        "<= 0.65",
        best.shown(".2f"),
        reached((at_most(0.65), best.mean, best.high)),
    )
    for other, name in (("tuned", "well-tuned manual plans that never change"), ("dlrover_rm", "DLRover-RM")):
        if other in means:
            mean, tail = means[other], tails[other]
            yield Row(
                f"counter-case, {words}: mean JCT, P95 JCT over {name}",
                "",
                "<= 0.65, <= 1",
                f"{mean.shown('.2f')}, {tail.shown('.2f')}",
                reached((at_most(0.65), mean.mean, mean.high), (at_most(1.0), tail.mean, tail.high)),
            )
    if KNOWING in means:
        oracle = means[KNOWING]
        yield Row(
            f"counter-case, {words}: mean JCT over an oracle (true speeds, exact, best of three urgencies)",
            "",
            "<= 1.05",
            oracle.shown(".2f"),
            reached((at_most(1.05), oracle.mean, oracle.high)),
        )
    changes = column.spreads[OURS]["changes"]
    others = ", ".join(
        f"{name} {column.spreads[name]['changes'].mean:.1f}" for name in ("oracle", rival) if name in column.spreads
    )
    yield Row(
        f"counter-case, {words}: changes per job",
        others,
        "<= 10",
        changes.shown(".1f"),
        reached((at_most(10.0), changes.mean, changes.high)),
    )


def _as_in_the_paper(column: Column) -> Iterator[Row]:
    """The comparison of the DLRover-RM paper: its three rivals, with requests drawn at random."""
    rival = best_of(column.figures, PAPER_RIVALS)
    mean, tail = column.ratios[OURS][rival], column.tail_ratios[OURS][rival]
    ours = column.spreads[OURS]
    rm = column.ratios.get("dlrover_rm")
    yield Row(
        f"requests drawn at random: mean JCT, P95 JCT over the best of static, elastic scheduler, Optimus ({rival})",
        "paper 0.69" if rm is None else f"paper 0.69; DLRover-RM here {rm[rival].shown('.2f')}",
        "<= 0.65",
        f"{mean.shown('.2f')}, {tail.shown('.2f')}",
        reached((at_most(0.65), mean.mean, mean.high), (at_most(0.65), tail.mean, tail.high)),
    )
    if "static" in column.spreads:
        static = column.spreads["static"]["completed"]
        points = 100 * (ours["completed"].mean - static.mean)
        yield Row(
            "requests drawn at random: completed jobs, percentage points more than with users' plans; with sensible "
            "requests users' plans complete all",
            "paper +6",
            ">= +6",
            f"{points:+.1f} ({ours['completed'].mean:.3f} against {static.shown('.3f')})",
            reached((at_least(6.0), points, 100 * (ours["completed"].low - static.high))),
        )
    yield Row(
        "requests drawn at random: OOM kills per job",
        f"{rival} {column.spreads[rival]['oom_kills'].mean:.2f}",
        "none avoidable",
        ours["oom_kills"].shown(".3f"),
        reached((at_most(0.0), ours["oom_kills"].mean, ours["oom_kills"].high)),
    )


def _used(words: str, column: Column) -> Iterator[Row]:
    """How much of their grants jobs use, against the best rival that follows requests, and against the best of all."""
    ours = column.spreads[OURS]
    followers = tuple(name for name in column.figures if name not in ("tuned", KNOWING, OURS))
    rivals = dict.fromkeys((best_of(column.figures, followers), column.best_rival))
    for field, name, paper in (("cpu_used", "CPU", 0.15), ("memory_used", "memory", 0.20)):
        for rival in rivals:
            other = column.spreads[rival][field]
            gain, least = ours[field].mean / other.mean - 1, ours[field].low / other.high - 1
            yield Row(
                f"{words}: {name} used over allocated, against {rival}",
                f"paper +{paper:.0%}, over users' plans",
                f">= +{paper:.0%}",
                f"{gain:+.0%} ({ours[field].shown('.2f')} against {other.shown('.2f')})",
                reached((at_least(paper), gain, least)),
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
            reached((at_most(paper), over.mean, over.high)),
        )


def _seen(found: results.Results) -> Iterator[Row]:
    if found.care is None:
        return
    for one, words in (
        (found.care.stragglers, "stragglers"),
        (found.care.memory, "raises of a memory charge, which follows the peak"),
    ):
        if one.precision is not None and one.recall is not None:
            yield Row(
                f"{words}: precision, recall, in time ({one.count} cases)",
                "",
                ">= 0.9, >= 0.95, lead of one move",
                f"{one.precision.shown('.2f')}, {one.recall.shown('.2f')}, {one.in_time:.2f}",
                reached(
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
            reached(*((at_least(0.9), one.mean, one.low) for one in (start.workers, start.servers, start.cores))),
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
                reached_once((at_most(aim_s), took_s)),
            )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms"
