"""From what is and what should be to what has to be done, in order. Pure.

Give up first (nothing else matters then), then kill what hangs, then start what is missing (PS before workers:
workers wait for them). When that is there and the buckets are where they should be, move what runs on other cores than
it should, and then drain and stop what is not wanted any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from elastichost import errors
from elastichost.errors import ElastichostError, JobFailedError, SampleRange
from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.supervisor.core.lifecycle import LIVE, State
from elastichost.supervisor.core.liveness import Signs, hang_reason

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
    "Repin",
    "Spawn",
    "StopProcess",
    "error_of",
    "reconcile",
]

_AT_WORK = frozenset({State.READY, State.RUNNING})
# Errors that the next incarnation would meet again: the job, its data or its host must change first.
USER_ERRORS = frozenset(
    {
        "ArenaFullError",
        "CheckpointError",
        "ConfigError",
        "DataError",
        "IdOutOfRangeError",
        "MemoryBudgetError",
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
    samples: SampleRange | None = None  # of a NonFiniteError


class ObservedProcess(msgspec.Struct, frozen=True):
    """The newest incarnation of one process. `since_s`: when it came into this state; `moved_s`: its last sign of
    progress. `spec`: as it was started, with the cores and threads it has now; `asked`: with those it was told to take
    last."""

    process: ProcessId
    state: State
    since_s: float
    moved_s: float
    failure: Failure | None = None
    spec: ProcessSpec | None = None
    asked: ProcessSpec | None = None
    signs: Signs = Signs(has_worked=True)


class Death(msgspec.Struct, frozen=True):
    """One unasked end of an incarnation; one of kind "slow" was replaced, which costs nothing of the budget. `cause` is
    for people: "signal 9 (SIGKILL)", "exit code 1", "hang". `incarnation` 0: not known."""

    name: str  # "worker-0"
    at_s: float
    kind: Literal["exit", "hang", "start", "slow"]
    cause: str
    incarnation: int = 0


class Limits(msgspec.Struct, frozen=True):
    restarts: int
    restart_window_s: float
    hang_timeout_s: float
    start_timeout_s: float
    drain_timeout_s: float = 30.0
    report_timeout_s: float = 5.0
    stop_timeout_s: float = 10.0


class Spawn(msgspec.Struct, frozen=True):
    """`is_restart`: the incarnation before was lost; otherwise it ended as asked, or there was none."""

    spec: ProcessSpec
    incarnation: int
    reason: str
    is_restart: bool = False


class Repin(msgspec.Struct, frozen=True):
    """The process goes on, on the cores and with the threads of `spec`."""

    process: ProcessId
    spec: ProcessSpec


class Drain(msgspec.Struct, frozen=True):
    process: ProcessId
    reason: str


class StopProcess(msgspec.Struct, frozen=True):
    process: ProcessId
    reason: str


class Kill(msgspec.Struct, frozen=True):
    """`kind` "unwanted": it holds nothing, so its end is no death."""

    process: ProcessId
    kind: Literal["exit", "hang", "start", "slow", "unwanted"]
    reason: str


class GiveUp(msgspec.Struct, frozen=True):
    """The job fails. `failure` is the process' own words where it had any."""

    kind: Literal["failure", "restart budget", "hang"]
    process: ProcessId
    reason: str
    failure: Failure | None = None


Action = GiveUp | Kill | Spawn | Repin | Drain | StopProcess


def reconcile(
    observed: Sequence[ObservedProcess],
    plan: Plan,
    deaths: Sequence[Death],
    limits: Limits,
    now_s: float,
    owners: frozenset[int] = frozenset(),
    *,
    is_handed_over: bool = True,
) -> tuple[Action, ...]:
    """Actions that bring `observed` nearer to `plan`. `observed` holds the newest incarnation of each process ever
    started; `deaths` is the restart history, oldest first. `owners`: PS that own buckets. They are kept, and started
    again, whatever the plan says, until they have handed over. `is_handed_over`: the buckets are where the plan wants
    them."""
    planned = {f"{spec.role}-{spec.index}": spec for spec in plan.processes}
    kept = {seen.process.name: seen.spec for seen in observed if seen.spec is not None and _owns(seen, owners)}
    wanted = {**kept, **planned}
    for seen in observed:
        is_wanted = seen.process.name in wanted or not plan.workers
        if is_wanted and seen.state == State.FAILED and seen.failure and seen.failure.error_type in USER_ERRORS:
            return (GiveUp("failure", seen.process, seen.failure.message, seen.failure),)
    newest = {seen.process.name: seen for seen in observed}
    kills = [kill for seen in observed if (kill := _overdue(seen, limits, now_s) or _lingering(seen, limits, now_s))]
    spawns: list[Action] = []
    for name, spec in sorted(wanted.items(), key=lambda item: (item[1].role == "worker", item[1].role, item[1].index)):
        action = _start(name, spec, newest.get(name), deaths, limits, now_s)
        if isinstance(action, GiveUp):
            return (action,)
        if action is not None:
            spawns.append(action)
    seen_wanted = [newest[name] for name in planned if name in newest]
    is_there = len(seen_wanted) == len(planned) and all(seen.state in _AT_WORK for seen in seen_wanted)
    repins = _repins(seen_wanted, planned) if is_there and is_handed_over else []
    is_placed = is_there and is_handed_over and not repins and all(seen.asked is None for seen in seen_wanted)
    may_drain = is_placed or not plan.workers
    return (*kills, *spawns, *repins, *_unwanted(observed, wanted, plan.reason, may_drain=may_drain))


def _owns(seen: ObservedProcess, owners: frozenset[int]) -> bool:
    return seen.process.role == "server" and seen.process.index in owners


def _lingering(seen: ObservedProcess, limits: Limits, now_s: float) -> Kill | None:
    """It was told to exit, holds nothing, and is still there."""
    state_s = now_s - seen.since_s
    if seen.state == State.STOPPING and state_s > limits.stop_timeout_s:
        return Kill(seen.process, "unwanted", f"told to stop {state_s:.0f} s ago and has not exited")
    return None


def _repins(seen_wanted: Iterable[ObservedProcess], planned: dict[str, ProcessSpec]) -> list[Action]:
    """What runs on other cores, or with other threads, than the plan says; each is told once."""
    repins: list[Action] = []
    for seen in seen_wanted:
        spec, last = planned[seen.process.name], seen.asked or seen.spec
        if last is not None and (last.cores, last.threads) != (spec.cores, spec.threads):
            repins.append(Repin(seen.process, spec))
    return repins


def _overdue(seen: ObservedProcess, limits: Limits, now_s: float) -> Kill | None:
    """A requested process has no pid to kill yet: the launcher watches over its fork server's answers itself."""
    state_s, still_s = now_s - seen.since_s, now_s - seen.moved_s
    match seen.state:
        case State.STARTED | State.CONNECTED if state_s > limits.start_timeout_s:
            reason = f"still {seen.state.value} after {state_s:.0f} s"
            return Kill(seen.process, "start", reason)
        case State.READY | State.RUNNING | State.DRAINED if reason := hang_reason(
            still_s, seen.signs, limits.hang_timeout_s
        ):
            return Kill(seen.process, "hang", reason)
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
) -> Spawn | StopProcess | GiveUp | None:
    if seen is None:
        return Spawn(spec, 1, "in the plan, not running")
    if seen.state == State.DRAINED:
        return StopProcess(seen.process, "it was not wanted when it was drained; its next incarnation is")
    if seen.state in LIVE:
        return None
    all_recent = [d for d in deaths if d.name == name and now_s - d.at_s <= limits.restart_window_s]
    recent = [death for death in all_recent if death.kind != "slow"]
    if len(recent) > limits.restarts:
        causes = "; ".join(dict.fromkeys(death.cause for death in recent))
        said = f"{name} ended {len(recent)} times in {limits.restart_window_s:g} s ({causes})"
        kind: Literal["hang", "restart budget"] = "restart budget"
        if all(death.kind == "hang" for death in recent):
            kind = "hang"
        return GiveUp(kind, seen.process, said, seen.failure)
    if seen.state == State.EXITED:
        return Spawn(spec, seen.process.incarnation + 1, f"in the plan again; {seen.process} had stopped")
    cause = all_recent[-1].cause if all_recent else "it has stopped"
    is_restart = any(death.name == name and death.incarnation in (0, seen.process.incarnation) for death in deaths)
    return Spawn(spec, seen.process.incarnation + 1, f"{seen.process} ended: {cause}", is_restart)


def _unwanted(
    observed: Iterable[ObservedProcess], wanted: dict[str, ProcessSpec], reason: str, *, may_drain: bool
) -> tuple[Action, ...]:
    actions: list[Action] = []
    for seen in observed:
        if seen.process.name in wanted:
            continue
        match seen.state:
            case State.READY | State.RUNNING if seen.process.role == "worker":
                if may_drain:
                    actions.append(Drain(seen.process, reason))
            case State.CONNECTED | State.READY | State.RUNNING | State.DRAINED:
                actions.append(StopProcess(seen.process, reason))
            case State.REQUESTED | State.STARTED:
                actions.append(Kill(seen.process, "unwanted", f"not wanted and not connected yet: {reason}"))
            case _:
                pass
    return tuple(actions)


# --- errors of processes ----------------------------------------------------------------------------------------------

_ERROR_TYPES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, ElastichostError)
}


def error_of(failure: Failure) -> ElastichostError:
    """The typed error that a process reported, as if it had been raised here."""
    kind = _ERROR_TYPES.get(failure.error_type)
    if kind is errors.ModelError:
        return errors.ModelError(failure.message, traceback_text=failure.traceback_text, hint=failure.hint)
    if kind is errors.NonFiniteError:
        return errors.NonFiniteError(failure.message, samples=failure.samples, hint=failure.hint)
    if kind is None or kind is errors.IllegalTransitionError:
        return JobFailedError(f"{failure.error_type}: {failure.message}", hint=failure.hint)
    return kind(failure.message, hint=failure.hint)
