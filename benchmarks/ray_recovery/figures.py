"""Observations and figures of faults on a Ray cluster. Pure, and without Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.harness.aggregates import spread_of
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome

__all__ = [
    "GroupHurt",
    "NodeLost",
    "Outcomes",
    "WorkerKilled",
    "figures_of",
    "nodes_lost_of",
    "peer_nodes_lost_of",
    "peer_workers_killed_of",
    "workers_killed_of",
]

Outcomes = dict[str, Outcome[Any]]
OWN, PEER = "elastichost", "Ray Train"
OWN_WORKERS, OWN_NODES = f"{OWN}, worker killed", f"{OWN}, node lost"
PEER_WORKERS, PEER_NODES = f"{PEER}, worker killed", f"{PEER}, node lost"


class WorkerKilled(msgspec.Struct, frozen=True):
    """Seconds from the signal. back: the successor has committed a batch. full: training is at 95 % of the rate before;
    None if not within the watched time. The other workers train meanwhile."""

    noticed_s: float
    back_s: float
    full_s: float | None


class NodeLost(msgspec.Struct, frozen=True):
    """Seconds from the signal. ended: the run has ended, and `resume` is called at once; None if the run recovered
    itself. back: batches are committed again."""

    noticed_s: float
    ended_s: float | None
    back_s: float


class GroupHurt(msgspec.Struct, frozen=True):
    """One kill: seconds until a group of workers trains again, the size of that group, and the number of repeated
    steps."""

    back_s: float
    workers: int
    steps_lost: int


# --- what is measured -------------------------------------------------------------------------------------------------


def workers_killed_of(kill: Callable[[int], WorkerKilled], times: int) -> Benchmark[WorkerKilled]:
    """The benchmark of killed workers. never full: kills after which the full rate was not reached in the watched
    time."""
    return Benchmark(
        title=OWN_WORKERS,
        arms={OWN_WORKERS: kill},
        rounds=Rounds(times),
        figures=(
            Figure("noticed", "s", lambda one: one.noticed_s),
            Figure("back", "s", lambda one: one.back_s),
            Figure("full rate", "s", lambda one: one.full_s),
            Figure("never full", "times", lambda one: one.full_s is None, sum, ".0f"),
        ),
    )


def nodes_lost_of(lose: Callable[[int], NodeLost], times: int) -> Benchmark[NodeLost]:
    """The benchmark of lost nodes. within the run: lost nodes that the run survived; else it was resumed."""
    return Benchmark(
        title=OWN_NODES,
        arms={OWN_NODES: lose},
        rounds=Rounds(times),
        figures=(
            Figure("noticed", "s", lambda one: one.noticed_s),
            Figure("back", "s", lambda one: one.back_s),
            Figure("within the run", "times", lambda one: one.ended_s is None, sum, ".0f"),
        ),
    )


def peer_workers_killed_of(kill: Callable[[int], GroupHurt], times: int) -> Benchmark[GroupHurt]:
    return _peer(PEER_WORKERS, kill, times)


def peer_nodes_lost_of(lose: Callable[[int], GroupHurt], times: int) -> Benchmark[GroupHurt]:
    return _peer(PEER_NODES, lose, times)


def _peer(name: str, hurt: Callable[[int], GroupHurt], times: int) -> Benchmark[GroupHurt]:
    return Benchmark(
        title=name,
        arms={name: hurt},
        rounds=Rounds(times),
        figures=(
            Figure("back", "s", lambda one: one.back_s),
            Figure("workers after it", "", lambda one: one.workers, form=".0f"),
            Figure("steps again", "", lambda one: one.steps_lost, form=".0f"),
        ),
    )


# --- for programs -----------------------------------------------------------------------------------------------------


def figures_of(outcomes: Outcomes, version: str = "", *, is_elastic: bool = False) -> dict[str, object]:
    """The figures for the JSON output by side; None for a side that was left out. version: of Ray. is_elastic: whether
    its ScalingConfig accepts a range of workers."""
    found: dict[str, object] = {"elastichost": None, "ray_train": None}
    if OWN_WORKERS in outcomes:
        workers, nodes = outcomes[OWN_WORKERS], outcomes[OWN_NODES]
        found["elastichost"] = {
            "worker_noticed": workers.figure("noticed", OWN_WORKERS),
            "worker_back": workers.figure("back", OWN_WORKERS),
            "worker_full": workers.figure("full rate", OWN_WORKERS),
            "never_full": workers.figure("never full", OWN_WORKERS),
            "node_noticed": nodes.figure("noticed", OWN_NODES),
            "node_back": nodes.figure("back", OWN_NODES),
            "in_run": nodes.figure("within the run", OWN_NODES),
        }
    if PEER_WORKERS in outcomes:
        workers, nodes = outcomes[PEER_WORKERS], outcomes[PEER_NODES]
        hurt = (*workers.values(PEER_WORKERS), *nodes.values(PEER_NODES))
        found["ray_train"] = {
            "version": version,
            "is_elastic": is_elastic,
            "worker_back": workers.figure("back", PEER_WORKERS),
            "node_back": nodes.figure("back", PEER_NODES),
            "workers_after": [one.workers for one in nodes.values(PEER_NODES)],
            "steps_again": spread_of(float(one.steps_lost) for one in hurt),
        }
    return found
