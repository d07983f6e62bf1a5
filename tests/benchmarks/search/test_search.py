"""The benchmark of searches compares equal trials."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.harness.interleave import ArmFailedError
from benchmarks.harness.runner import run, silent
from benchmarks.search.benchmark import ARMS, COMMANDS, ONE_BY_ONE, TOGETHER, benchmark_of
from benchmarks.search.trials import SearchRun

VALUES = (("0.1", "0.001"), ("0.2", "0.002"))


def arms(**other: tuple[tuple[str, str], ...]) -> dict[str, Callable[[int], SearchRun]]:
    times = {TOGETHER: 30.0, ONE_BY_ONE: 60.0, COMMANDS: 120.0}
    return {
        arm: lambda number, arm=arm: SearchRun(times[arm] + number, other.get(arm, VALUES), 0.7)  # type: ignore[misc]
        for arm in ARMS
    }


def test_the_search_is_compared_with_both_ways_of_one_after_another() -> None:
    outcome = run(benchmark_of(arms(), rounds=1), told=silent)
    ratios = [outcome.pair(pair).median for pair in outcome.benchmark.pairs]  # type: ignore[union-attr]
    assert ratios == [0.5, 0.25]
    assert [verdict.is_met for verdict in outcome.verdicts()] == [True, True]


def test_arms_with_other_trials_are_not_compared() -> None:
    outcome = run(benchmark_of(arms(commands=VALUES[:1]), rounds=1), told=silent)
    with pytest.raises(ArmFailedError, match="same trials"):
        outcome.verdicts()
