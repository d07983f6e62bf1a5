"""From what is and what should be to what has to be done, in order. Pure.

Give up first (nothing else matters then), then kill what hangs, then start what is missing (PS before workers:
workers wait for them), then drain and stop what is not wanted any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.supervisor.lifecycle import LIVE, State

__all__ = [
    "USER_ERRORS",
    "Action",
    "Death",
    "Drain",
    "Failure",
    "GiveUp",
    "Kill",
    "Limits",
    "ObservedProcess",
    "Spawn",
    "StopProcess",
    "reconcile",
]

# Errors that the next life would meet again: the job, its data or its host must change first.
USER_ERRORS = frozenset(
    {
        "ArenaFullError",
        "CheckpointError",
        "ConfigError",
        "DataError",
        "IdOutOfRangeError",
        "ModelError",
        "NonFiniteError",
        "PreflightError",
    }
)


class Failure(msgspec.Struct, frozen=True):
    """What a process said of its end. `error_type` is a class name of `errors`, or another exception's."""

    error_type: str
    message: str
    hint: str = ""
    traceback_text: str = ""


class ObservedProcess(msgspec.Struct, frozen=True):
    """The newest life of one process. `since_s`: when it came into this state; `moved_s`: its last sign of progress."""

    process: ProcessId
    state: State
    since_s: float
    moved_s: float
    failure: Failure | None = None


class Death(msgspec.Struct, frozen=True):
    """One unasked end of a life. `cause` is for people: "signal 9 (SIGKILL)", "exit code 1", "hang"."""

    name: str  # "worker-0"
    at_s: float
    kind: Literal["exit", "hang", "start"]
    cause: str


class Limits(msgspec.Struct, frozen=True):
    restarts: int
    restart_window_s: float
    hang_timeout_s: float
    start_timeout_s: float
    drain_timeout_s: float = 30.0
    report_timeout_s: float = 5.0


class Spawn(msgspec.Struct, frozen=True):
    spec: ProcessSpec
    life: int
    reason: str


class Drain(msgspec.Struct, frozen=True):
    process: ProcessId
    reason: str


class StopProcess(msgspec.Struct, frozen=True):
    process: ProcessId
    reason: str


class Kill(msgspec.Struct, frozen=True):
    process: ProcessId
    kind: Literal["exit", "hang", "start"]
    reason: str


class GiveUp(msgspec.Struct, frozen=True):
    """The job fails. `failure` is the process' own words where it had any."""

    kind: Literal["failure", "restart budget", "hang"]
    process: ProcessId
    reason: str
    failure: Failure | None = None


Action = GiveUp | Kill | Spawn | Drain | StopProcess


def reconcile(
    observed: Sequence[ObservedProcess], plan: Plan, deaths: Sequence[Death], limits: Limits, now_s: float
) -> tuple[Action, ...]:
    """Actions that bring `observed` nearer to `plan`. `observed` holds the newest life of each process ever started;
    `deaths` is the restart history, oldest first."""
    for seen in observed:
        if seen.state == State.FAILED and seen.failure and seen.failure.error_type in USER_ERRORS:
            return (GiveUp("failure", seen.process, seen.failure.message, seen.failure),)
    wanted = {f"{spec.role}-{spec.index}": spec for spec in plan.processes}
    newest = {seen.process.name: seen for seen in observed}
    kills = [kill for seen in observed if (kill := _overdue(seen, limits, now_s))]
    spawns: list[Action] = []
    for name, spec in sorted(wanted.items(), key=lambda item: (item[1].role == "worker", item[1].role, item[1].index)):
        action = _start(name, spec, newest.get(name), deaths, limits, now_s)
        if isinstance(action, GiveUp):
            return (action,)
        if action is not None:
            spawns.append(action)
    return (*kills, *spawns, *_unwanted(observed, wanted, plan.reason))


def _overdue(seen: ObservedProcess, limits: Limits, now_s: float) -> Kill | None:
    """A requested process has no pid to kill yet: the launcher watches over its fork server's answers itself."""
    state_s, still_s = now_s - seen.since_s, now_s - seen.moved_s
    match seen.state:
        case State.STARTED | State.CONNECTED if state_s > limits.start_timeout_s:
            reason = f"still {seen.state.value} after {state_s:.0f} s"
            return Kill(seen.process, "start", reason)
        case State.READY | State.RUNNING | State.DRAINED if still_s > limits.hang_timeout_s:
            return Kill(seen.process, "hang", f"no progress for {still_s:.0f} s")
        case State.DRAINING if min(state_s, still_s) > limits.drain_timeout_s:
            return Kill(seen.process, "hang", f"not drained after {state_s:.0f} s")
        case State.REPORTING if state_s > limits.report_timeout_s:
            return Kill(seen.process, "exit", f"reported an error {state_s:.0f} s ago and has not exited")
        case _:
            return None


def _start(
    name: str,
    spec: ProcessSpec,
    seen: ObservedProcess | None,
    deaths: Sequence[Death],
    limits: Limits,
    now_s: float,
) -> Spawn | GiveUp | None:
    if seen is None:
        return Spawn(spec, 1, "the plan wants it")
    if seen.state in LIVE:
        return None
    recent = [d for d in deaths if d.name == name and now_s - d.at_s <= limits.restart_window_s]
    if len(recent) > limits.restarts:
        causes = "; ".join(dict.fromkeys(death.cause for death in recent))
        said = f"{name} ended {len(recent)} times in {limits.restart_window_s:g} s ({causes})"
        kind: Literal["hang", "restart budget"] = "restart budget"
        if all(death.kind == "hang" for death in recent):
            kind = "hang"
        return GiveUp(kind, seen.process, said, seen.failure)
    cause = recent[-1].cause if recent else "it has stopped"
    return Spawn(spec, seen.process.life + 1, f"{seen.process} ended: {cause}")


def _unwanted(observed: Iterable[ObservedProcess], wanted: dict[str, ProcessSpec], reason: str) -> tuple[Action, ...]:
    actions: list[Action] = []
    for seen in observed:
        if seen.process.name in wanted:
            continue
        match seen.state:
            case State.READY | State.RUNNING if seen.process.role == "worker":
                actions.append(Drain(seen.process, reason))
            case State.CONNECTED | State.READY | State.RUNNING | State.DRAINED:
                actions.append(StopProcess(seen.process, reason))
            case State.REQUESTED | State.STARTED:
                actions.append(Kill(seen.process, "exit", f"not wanted and not connected yet: {reason}"))
            case _:
                pass
    return tuple(actions)
