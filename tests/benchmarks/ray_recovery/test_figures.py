"""The figures of the recovery benchmark on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from benchmarks.harness.aggregates import Spread
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.interleave import Measurement
from benchmarks.harness.outcome import Outcome
from benchmarks.ray_recovery.figures import (
    GroupHurt,
    NodeLost,
    Outcomes,
    WorkerKilled,
    figures_of,
    nodes_lost_of,
    peer_nodes_lost_of,
    peer_workers_killed_of,
    workers_killed_of,
)

M = TypeVar("M")
KILLED = [WorkerKilled(0.1, 0.3, 0.5), WorkerKilled(0.2, 0.4, None), WorkerKilled(0.1, 0.9, 0.7)]
LOST = [NodeLost(2.0, None, 3.0), NodeLost(2.5, 5.0, 15.0)]


def never(number: int) -> Any:
    """An arm that no test may run."""
    raise AssertionError(number)


def outcome(benchmark: Benchmark[M], found: Sequence[M]) -> Outcomes:
    """An outcome with these measurements."""
    (arm,) = benchmark.arms
    return {arm: Outcome(benchmark, tuple(Measurement(arm, number, one) for number, one in enumerate(found)))}


def test_medians_of_measurements() -> None:
    found = outcome(workers_killed_of(never, 3), KILLED) | outcome(nodes_lost_of(never, 2), LOST)
    figures = figures_of(found)
    assert figures["ray_train"] is None
    assert figures["elastichost"] == {
        "worker_noticed": Spread(0.1, 0.1, 0.2),
        "worker_back": Spread(0.4, 0.3, 0.9),
        "worker_full": Spread(0.6, 0.5, 0.7),
        "never_full": 1,
        "node_noticed": Spread(2.25, 2.0, 2.5),
        "node_back": Spread(9.0, 3.0, 15.0),
        "in_run": 1,
    }


def test_a_side_that_was_left_out_has_no_figures() -> None:
    found = outcome(peer_workers_killed_of(never, 1), [GroupHurt(9.0, 3, 10)])
    found |= outcome(peer_nodes_lost_of(never, 1), [GroupHurt(40.0, 2, 30)])
    figures = figures_of(found, "2.60", is_elastic=True)
    assert figures["elastichost"] is None
    peer = cast(dict[str, Any], figures["ray_train"])
    assert (peer["version"], peer["is_elastic"], peer["workers_after"]) == ("2.60", True, [2])
    assert (peer["worker_back"].median, peer["node_back"].median, peer["steps_again"].median) == (9.0, 40.0, 20.0)
