"""Runs benchmarks, prints their outcomes, and judges their aims."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from benchmarks.harness.aggregates import shown
from benchmarks.harness.aims import Verdict, is_any_missed
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Measurement, interleave
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import print_table

__all__ = ["exit_code", "print_outcomes", "print_verdicts", "run", "say", "silent"]

M = TypeVar("M")


def silent(_: object) -> None:
    """Prints no progress: for short rounds, and for arms that print their progress themselves."""


def say(text: str) -> None:
    """Prints a line of progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def run(benchmark: Benchmark[M], told: Callable[[Measurement[M]], None] | None = None) -> Outcome[M]:
    """Measures all arms in all rounds. told: is called with each measurement; None prints a line on stderr."""
    found: list[Measurement[M]] = []
    for one in interleave(benchmark.arms, benchmark.rounds):
        found.append(one)
        if told is None:
            say(_progress(benchmark, one))
        else:
            told(one)
    return Outcome(benchmark, tuple(found))


def _progress(benchmark: Benchmark[M], one: Measurement[M]) -> str:
    case = f"{benchmark.case}, " if benchmark.case else ""
    place = f"{case}{one.arm}, round {one.round + 1} of {benchmark.rounds.count}"
    if one.found is None:
        return f"{place}: FAILED: {one.failure}"
    figures = (figure for figure in benchmark.figures if not figure.arms or one.arm in figure.arms)
    told = ((figure, figure.over([one.found])) for figure in figures)
    values = (f"{figure.heading} {_first(shown(value, figure.form))}" for figure, value in told if value is not None)
    return f"{place}: {'; '.join(values)}"


def _first(text: str) -> str:
    """Removes the spread, which a single measurement does not have."""
    return text.partition(" (")[0]


def print_outcomes(outcomes: Sequence[Outcome[Any]]) -> None:
    """Prints a table of figures for each title, then a table of comparisons and aims, then the failures."""
    for title, group in groupby(outcomes, key=lambda outcome: outcome.benchmark.title):
        _print_figures(title, list(group))
    rows = [row for outcome in outcomes for row in _comparisons(outcome)]
    if rows:
        print()
        print_table(("", "measured", "aim", ""), rows)
    for outcome in outcomes:
        for arm, why in outcome.failures.items():
            print(f"FAILED {arm}: {why}")


def _print_figures(title: str, outcomes: Sequence[Outcome[Any]]) -> None:
    figures: tuple[Figure[Any], ...] = outcomes[0].benchmark.figures
    columns = [
        (f"{outcome.benchmark.case}: {arm}" if outcome.benchmark.case else arm, outcome, arm)
        for outcome in outcomes
        for arm in outcome.benchmark.arms
    ]
    print(f"\n{title}")
    # the longer dimension becomes the rows
    if len(columns) >= len(figures):
        rows = [(name, *(_cell(outcome, arm, figure) for figure in figures)) for name, outcome, arm in columns]
        print_table(("", *(figure.heading for figure in figures)), rows)
    else:
        rows = [(f.heading, *(_cell(outcome, arm, f) for _, outcome, arm in columns)) for f in figures]
        print_table(("", *(name for name, _, _ in columns)), rows)


def _cell(outcome: Outcome[Any], arm: str, figure: Figure[Any]) -> str:
    found = outcome.figure(figure.name, arm)
    return "" if figure.arms and arm not in figure.arms else shown(found, figure.form)


def _comparisons(outcome: Outcome[Any]) -> Iterable[tuple[str, str, str, str]]:
    """Rows of the table: every paired figure with its aim, if it has one, then the other aims."""
    case = f"{outcome.benchmark.case}: " if outcome.benchmark.case else ""
    verdicts, pairs = outcome.verdicts(), outcome.benchmark.pairs
    for figure in pairs:
        told = [verdict for verdict in verdicts if verdict.aim.figure == figure.name]
        aim, word = (str(told[0].aim), told[0].word) if told else ("", "")
        yield case + figure.heading, shown(outcome.pair(figure), figure.form), aim, word
    for verdict in verdicts:
        if verdict.aim.figure not in {figure.name for figure in pairs}:
            yield case + verdict.aim.label, verdict.shown, str(verdict.aim), verdict.word


def print_verdicts(verdicts: Iterable[Verdict]) -> None:
    """Prints the aims and their verdicts, for a suite that prints its own tables."""
    print_table(
        ("aims", "measured", "aim", ""),
        [(verdict.aim.label, verdict.shown, str(verdict.aim), verdict.word) for verdict in verdicts],
    )


def exit_code(outcomes: Iterable[Outcome[Any]]) -> int:
    """1 if an arm failed or an aim was missed, else 0."""
    return int(any(outcome.failures or is_any_missed(outcome.verdicts()) for outcome in outcomes))
