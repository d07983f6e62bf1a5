"""Whether the simulator calls the very functions that live runs call: compares the function objects of both."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchmarks.simulator.policies import elastichost_memory, elastichost_policy
from elastichost.dispatcher.core import interference_control
from elastichost.supervisor import rebalancer
from elastichost.supervisor.autoscale import history_writer, stragglers, tuner_loop
from elastichost.supervisor.memory import monitor
from elastichost.tuner.policy import job_frontier

__all__ = ["is_policy_shared", "shared_functions"]

Function = Callable[..., Any]
STEP = "_measured"  # what `policy.advance` calls when a block is complete


def shared_functions() -> dict[str, tuple[Function, Function]]:
    """By purpose, the function that a live run or the dispatcher calls, and the one that the simulator calls."""
    ours = elastichost_policy
    return {
        "one job": (_step(_called(tuner_loop, "advance")), _step(_called(ours, "advance_block"))),
        "its frontier": (_called(job_frontier, "front_of"), _called(ours, "front_of")),
        "proposals": (_called(tuner_loop, "next_proposal"), _called(ours, "next_proposal")),
        "many jobs": (_called(interference_control, "decide"), _called(ours, "decide")),
        "memory": (_called(monitor, "decide"), _called(elastichost_memory, "decide")),
        "stragglers": (_called(stragglers, "observe"), _called(ours, "slow_workers")),
        "hot PS": (_called(rebalancer, "decide"), _called(ours, "balanced")),
        "history": (_called(history_writer, "record_of"), _called(ours, "record_of")),
    }


def _called(module: ModuleType, name: str) -> Function:
    """The function that a module calls by this name."""
    found: Function = vars(module)[name]
    return found


def is_policy_shared() -> bool:
    """Whether both functions of every pair are the same object."""
    return all(live is simulated for live, simulated in shared_functions().values())


def _step(entry: Function) -> Function:
    """The function that an entry of the policy calls with a complete block. Raises ValueError if it calls another."""
    if STEP not in entry.__code__.co_names:
        raise ValueError(f"{entry.__name__} does not call {STEP}")
    found: Function = entry.__globals__[STEP]
    return found
