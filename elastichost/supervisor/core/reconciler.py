"""Compares the processes of a run with its plan, and returns the actions that bring them nearer to it. Pure.

Rules, in the order of the actions:

1. GiveUp: the job fails when a process that is to run has reported an error that its next incarnation would report
   again (USER_ERRORS), or has died more often than `resources.restarts` in `restart_window_s`. No other action is
   returned with it.
2. Kill: a process that does not start, hangs, does not drain, or does not exit in time.
3. Spawn: a process that is in the plan and not running; PS before workers, because workers wait for PS, and readers
   last. A worker that has drained and is in the plan again gets StopProcess first; its next incarnation follows.
4. Repin: a process that runs on other cores, or with other threads, than the plan has. Only when all processes of the
   plan are at work and the buckets are with the PS of the plan.
5. Drain: a worker that is not in the plan, when rules 3 and 4 have nothing left to do or the plan has no workers. So
   the old workers train until the new ones are at work. StopProcess: any other process that is not in the plan; it is
   killed instead if it has not connected yet.

A PS that owns buckets (`owners`) is kept, and started again after a death, even if the plan does not have it: it is
stopped only after its buckets are handed over.

Theory of operation. `reconcile` is level-triggered, like a Kubernetes controller: it is called every turn with all
facts, has no memory, and returns only actions that are possible now. An action changes the state of the process (for
example to `draining`), so the next turn does not return it again. A killed process is observed as `failed`; the next
turn returns a Spawn with the next incarnation number, until the budget of restarts is spent. Deaths of kind "slow" (a
straggler that was replaced) do not count against the budget, and processes that were ended on purpose leave no Death.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from elastichost.errors import ElastichostError, ModelError, NonFiniteError, SampleRange, named_error
from elastichost.plan import Plan, ProcessId, ProcessSpec, Role
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
_START_ORDER: dict[Role, int] = {"probe": 0, "server": 0, "worker": 1, "reader": 2}
# Why the first incarnation of a process starts, for a reader who does not know the roles.
FIRST_START = {
    "reader": "it reads for a worker",
    "probe": "it builds the model once, to learn its tables and parameters",
    "server": "a parameter server of the plan",
    "worker": "a worker of the plan",
}
# Errors that the next incarnation would have again: the job, its data or its host must change first.
USER_ERRORS = frozenset(
    {
        "ArenaFullError",
        "CheckpointError",
        "ConfigError",
        "DataError",
        "IdOutOfRangeError",
        "MemoryBudgetError",
        "ModelError",
        "ModelLostError",
        "NonFiniteError",
        "PreflightError",
        "SourceGoneError",
    }
)


class Failure(msgspec.Struct, frozen=True):
    """The error that a process reported before its end. error_type: the name of a class of `errors`, or of another
    exception."""

    error_type: str
    message: str
    hint: str = ""
    traceback_text: str = ""
    samples: SampleRange | None = None  # of a NonFiniteError


class ObservedProcess(msgspec.Struct, frozen=True):
    """The newest incarnation of one process. since_s: when it entered this state. moved_s: its last sign of progress.
    spec: how it was started, with its present cores and threads. asked: the same with the cores and threads of an
    unconfirmed Repin; None: there is none."""

    process: ProcessId
    state: State
    since_s: float
    moved_s: float
    failure: Failure | None = None
    spec: ProcessSpec | None = None
    asked: ProcessSpec | None = None
    signs: Signs = Signs(has_worked=True)


class Death(msgspec.Struct, frozen=True):
    """One unexpected end of an incarnation. kind "slow": a straggler was replaced, which does not count against the
    restart budget. cause: text for the user, such as "signal 9 (SIGKILL)" or "exit code 1". incarnation 0: not
    known."""

    name: str  # "worker-0"
    at_s: float
    kind: Literal["exit", "hang", "start", "slow"]
    cause: str
    incarnation: int = 0


class Limits(msgspec.Struct, frozen=True):
    """restarts: of each process in `restart_window_s`. Timeouts are for one state of a process."""

    restarts: int
    restart_window_s: float
    hang_timeout_s: float
    start_timeout_s: float
    drain_timeout_s: float = 30.0
    report_timeout_s: float = 5.0
    stop_timeout_s: float = 10.0


class Spawn(msgspec.Struct, frozen=True):
    """Start this incarnation. is_restart: the incarnation before was lost; False: it was stopped, or there was none."""

    spec: ProcessSpec
    incarnation: int
    reason: str
    is_restart: bool = False


class Repin(msgspec.Struct, frozen=True):
    """Move a running process to the cores and threads of `spec`."""

    process: ProcessId
    spec: ProcessSpec


class Drain(msgspec.Struct, frozen=True):
    process: ProcessId
    reason: str


class StopProcess(msgspec.Struct, frozen=True):
    process: ProcessId
    reason: str


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL. kind "unwanted": it holds neither leases nor buckets, so its end does not count as a death."""

    process: ProcessId
    kind: Literal["exit", "hang", "start", "slow", "unwanted"]
    reason: str


class GiveUp(msgspec.Struct, frozen=True):
    """The job fails. failure: the error that the process reported, if it reported one."""

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
    """Actions that bring `observed` nearer to `plan`, in the order to perform them.

    observed: the newest incarnation of each process that was ever started. deaths: oldest first. owners: indices of PS
    that own buckets and so must run. is_handed_over: the PS of the plan own all buckets, as the plan has it.
    """
    planned = {f"{spec.role}-{spec.index}": spec for spec in plan.processes}
    kept = {seen.process.name: seen.spec for seen in observed if seen.spec is not None and _owns(seen, owners)}
    wanted = {**kept, **planned}
    for seen in observed:
        # The plan is empty only when all is saved: an error of a process that is told to stop changes nothing then.
        is_wanted = seen.process.name in wanted or (not plan.workers and bool(plan.processes))
        if is_wanted and seen.state == State.FAILED and seen.failure and seen.failure.error_type in USER_ERRORS:
            return (GiveUp("failure", seen.process, seen.failure.message, seen.failure),)
    newest = {seen.process.name: seen for seen in observed}
    kills = [kill for seen in observed if (kill := _overdue(seen, limits, now_s) or _lingering(seen, limits, now_s))]
    spawns: list[Action] = []
    for name, spec in sorted(wanted.items(), key=lambda item: (_START_ORDER[item[1].role], item[1].index)):
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
    killed = {kill.process for kill in kills}  # one action at most for each process: a second one may be illegal then
    others = [seen for seen in observed if seen.process not in killed]
    return (*kills, *spawns, *repins, *_unwanted(others, wanted, plan.reason, may_drain=may_drain))


def _owns(seen: ObservedProcess, owners: frozenset[int]) -> bool:
    return seen.process.role == "server" and seen.process.index in owners


def _lingering(seen: ObservedProcess, limits: Limits, now_s: float) -> Kill | None:
    """A kill for a process that was told to stop and has not exited in time."""
    state_s = now_s - seen.since_s
    if seen.state == State.STOPPING and state_s > limits.stop_timeout_s:
        return Kill(seen.process, "unwanted", f"it was told to stop {state_s:.0f} s ago and has not exited")
    return None


def _repins(seen_wanted: Iterable[ObservedProcess], planned: dict[str, ProcessSpec]) -> list[Action]:
    """A Repin for each process whose cores or threads differ from the plan; none is sent twice."""
    repins: list[Action] = []
    for seen in seen_wanted:
        spec, last = planned[seen.process.name], seen.asked or seen.spec
        if last is not None and (last.cores, last.threads) != (spec.cores, spec.threads):
            repins.append(Repin(seen.process, spec))
    return repins


def _overdue(seen: ObservedProcess, limits: Limits, now_s: float) -> Kill | None:
    """A kill for a process that has been too long in its state, or hangs. A requested process is left out: it has no
    pid yet, and the launcher itself checks that the fork server answers."""
    state_s, still_s = now_s - seen.since_s, now_s - seen.moved_s
    # A PS that starts restores its rows, which takes minutes if there are many, and workers that start wait for it.
    # Both show progress meanwhile. A worker that hangs while it builds the model shows none.
    starts_for_s = min(state_s, still_s)
    match seen.state:
        case State.STARTED | State.CONNECTED if starts_for_s > limits.start_timeout_s:
            reason = f"it is still {seen.state.value} after {state_s:.0f} s"
            return Kill(seen.process, "start", reason)
        case State.READY | State.RUNNING | State.DRAINED if reason := hang_reason(
            still_s, seen.signs, limits.hang_timeout_s
        ):
            return Kill(seen.process, "hang", reason)
        case State.DRAINING if min(state_s, still_s) > limits.drain_timeout_s:
            return Kill(seen.process, "hang", f"it has not drained after {state_s:.0f} s")
        case State.REPORTING if state_s > limits.report_timeout_s:
            return Kill(seen.process, "exit", f"it reported an error {state_s:.0f} s ago and has not exited")
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
        return Spawn(spec, 1, FIRST_START[spec.role])
    if seen.state == State.DRAINED:
        return StopProcess(seen.process, "it has drained, and the plan has it again: its next incarnation follows")
    if seen.state in LIVE:
        return None
    all_recent = [d for d in deaths if d.name == name and now_s - d.at_s <= limits.restart_window_s]
    recent = [death for death in all_recent if death.kind != "slow"]
    if len(recent) > limits.restarts:
        causes = "; ".join(dict.fromkeys(death.cause for death in recent))
        said = (
            f"{name} ended {len(recent)} time{'s' * (len(recent) != 1)} in {limits.restart_window_s:g} s, and "
            f"resources.restarts is {limits.restarts} ({causes})"
        )
        kind: Literal["hang", "restart budget"] = "restart budget"
        if all(death.kind == "hang" for death in recent):
            kind = "hang"
        return GiveUp(kind, seen.process, said, seen.failure)
    if seen.state == State.EXITED:
        return Spawn(spec, seen.process.incarnation + 1, f"in the plan again; {seen.process} was stopped")
    cause = all_recent[-1].cause if all_recent else "it was stopped, or its host was lost"
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
                actions.append(Kill(seen.process, "unwanted", f"not in the plan and not connected yet: {reason}"))
            case _:
                pass
    return tuple(actions)


# --- errors of processes ----------------------------------------------------------------------------------------------


def error_of(failure: Failure) -> ElastichostError:
    """The typed error that a process reported. An exception that `errors` does not define becomes JobFailedError."""
    error = named_error(failure.error_type, failure.message, hint=failure.hint)
    match error:
        case ModelError():
            error.traceback_text = failure.traceback_text
        case NonFiniteError():
            error.samples = failure.samples
    return error
