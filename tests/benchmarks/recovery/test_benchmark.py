"""The figures of the recovery benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import pytest

from benchmarks.harness.aggregates import Percentiles
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.interleave import Measurement
from benchmarks.harness.outcome import Outcome
from benchmarks.recovery.benchmark import (
    GOODPUT,
    SERVER,
    WORKER,
    Stall,
    checkpoints_of,
    figures_of,
    hangs_of,
    kills_of,
    peer_of,
)
from benchmarks.recovery.torchrun import PeerHurt
from benchmarks.recovery.watched_run import Hurt, RunWatched

M = TypeVar("M")
NO_RUN = cast(RunWatched, None)


def never(number: int) -> Any:
    """An arm that no test may run."""
    raise AssertionError(number)


def outcome(benchmark: Benchmark[M], found: Sequence[M]) -> Outcome[M]:
    """An outcome in which every arm has these measurements."""
    return Outcome(
        benchmark, tuple(Measurement(arm, number, one) for arm in benchmark.arms for number, one in enumerate(found))
    )


def test_figures_of_kills_are_percentiles_over_all_kills() -> None:
    killed = outcome(kills_of(NO_RUN, 2), [Hurt(0.01, 0.2, 0.5, 0.3), Hurt(0.02, 0.3, None, 0.9)])
    figures = figures_of({"kills": killed})
    assert (
        figures["worker"]
        == figures["server"]
        == {
            "noticed": Percentiles(2, 0.01, 0.02, 0.02),
            "back": Percentiles(2, 0.2, 0.3, 0.3),
            "full": Percentiles(1, 0.5, 0.5, 0.5),
            "never_full": 1,
            "lost": Percentiles(2, 0.3, 0.9, 0.9),
            "goodput_at_one_a_minute": pytest.approx(0.99),
        }
    )
    assert figures["hang"] is figures["peer"] is None
    assert {verdict.aim.arm for verdict in killed.verdicts()} == {WORKER, SERVER}
    assert all(verdict.is_met for verdict in killed.verdicts())


def test_a_recovery_that_is_too_slow_misses_its_aims() -> None:
    slow = outcome(kills_of(NO_RUN, 1), [Hurt(0.3, 1.2, 1.5, 2.0)])
    assert {verdict.aim.figure for verdict in slow.verdicts()} == {"noticed", "back", "full rate", GOODPUT}
    assert not any(verdict.is_met for verdict in slow.verdicts())
    assert [verdict.is_met for verdict in outcome(hangs_of(NO_RUN, 2), [2.9, 3.2]).verdicts()] == [True]


def test_checkpoints_are_reported_by_size_and_share() -> None:
    found = outcome(checkpoints_of(never, 3), [Stall(stall_s, 2 * 10**9) for stall_s in (0.1, 0.2, 0.3)])
    figures = cast(dict[str, Any], figures_of({"checkpoints": found})["checkpoints"])
    assert (figures["times"], figures["bytes"]) == (3, 2 * 10**9)
    assert figures["stall_s_per_gb"] == pytest.approx(0.1)
    assert figures["share"] == pytest.approx(0.2 / 60.2)


def test_a_peer_that_never_came_back_is_counted_and_not_averaged() -> None:
    found = outcome(peer_of(never, 2), [PeerHurt(10.0, 20), PeerHurt(None, 30)])
    peer = cast(dict[str, Any], figures_of({"peer": found})["peer"])
    assert (peer["never_back"], peer["back"].p50, peer["steps_lost"]) == (1, 10.0, 25.0)
    stuck = outcome(peer_of(never, 1), [PeerHurt(None, 30)])
    assert cast(dict[str, Any], figures_of({"peer": stuck})["peer"])["back"] is None
