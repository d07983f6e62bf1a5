"""Figures are over all rounds of an arm, comparisons within a round, verdicts on the typical value."""

from __future__ import annotations

import pytest

from benchmarks.harness.aggregates import Percentiles, Spread, percentiles_of
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Measurement, Rounds
from benchmarks.harness.outcome import Outcome

Lap = dict[str, float | list[float] | None]
RATES = {"slow": [100.0, 50.0, 200.0], "fast": [200.0, 150.0, 1000.0]}


def never(number: int) -> Lap:
    """An arm that no test may run."""
    raise AssertionError(number)


def rate(lap: Lap) -> float:
    found = lap["rate"]
    assert isinstance(found, float)
    return found


BENCHMARK = Benchmark[Lap](
    title="laps",
    arms={"slow": never, "fast": never},
    rounds=Rounds(3),
    figures=(
        Figure("rate", "samples/s", rate),
        Figure("waits", "s", lambda lap: lap.get("waits"), percentiles_of),
        Figure("only of fast", "", rate, max, arms=("fast",)),
    ),
    pairs=(PairedFigure("fast over slow", "", "fast", "slow", lambda fast, slow: rate(fast) / rate(slow)),),
    aims=(
        Aim("fast over slow", 3.0, "at least"),
        Aim("rate", 100.0, "at most", "slow"),
        Aim("rate", 99.0, "at most"),
        Aim("waits", 1.0, "at most", "fast"),
    ),
)


def outcome(**more: list[float] | None) -> Outcome[Lap]:
    measured = [
        Measurement(arm, number, Lap({"rate": found, **more}))
        for arm, rates in RATES.items()
        for number, found in enumerate(rates)
    ]
    return Outcome(BENCHMARK, tuple(measured))


def test_a_figure_is_over_all_rounds_of_an_arm() -> None:
    assert outcome().figure("rate", "slow") == Spread(100.0, 50.0, 200.0)
    assert outcome().figure("only of fast", "fast") == 1000.0
    assert outcome().figure("only of fast", "slow") is None
    with pytest.raises(KeyError):
        outcome().figure("no such", "slow")


def test_a_round_may_contribute_several_values_or_none() -> None:
    assert outcome(waits=[0.5, 2.0]).figure("waits", "slow") == Percentiles(6, 0.5, 2.0, 2.0)
    assert outcome(waits=None).figure("waits", "slow") is None


def test_arms_are_compared_within_rounds_in_which_both_were_measured() -> None:
    # the machine was slow in the second round: the quotient of the medians would be 2
    assert outcome().pair(BENCHMARK.pairs[0]) == Spread(3.0, 2.0, 5.0)
    without = Outcome(BENCHMARK, tuple(one for one in outcome().measured if (one.arm, one.round) != ("slow", 2)))
    assert without.pair(BENCHMARK.pairs[0]) == Spread(2.5, 2.0, 3.0)
    only = Outcome(BENCHMARK, tuple(one for one in outcome().measured if one.arm == "fast"))
    assert only.pair(BENCHMARK.pairs[0]) is None


def test_verdicts_are_on_medians_of_the_arm_that_an_aim_names_or_of_the_first() -> None:
    assert [verdict.value for verdict in outcome().verdicts()] == [3.0, 100.0, 100.0, None]
    assert [verdict.is_met for verdict in outcome().verdicts()] == [True, True, False, None]


def test_a_failed_arm_has_a_reason() -> None:
    failed = Outcome(BENCHMARK, (*outcome().measured, Measurement("slow", 3, None, "gone")))
    assert failed.failures == {"slow": "gone"} and outcome().failures == {}
    assert len(failed.values("slow")) == 3
