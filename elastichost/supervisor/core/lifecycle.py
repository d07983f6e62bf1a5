"""The life of one process, as a transition table. Pure: a state and an event give the next state.

Rules:

1. A state is an observed fact, never a request. `stopping` means that Stop was sent; only the exit of the process
   makes it `exited`.
2. A process ends as `exited` only if it exits with code 0 after Stop was sent or after it has drained. Every other end
   is `failed`.
3. A transition that is not in the table raises IllegalTransitionError.

States:

    requested -> started -> connected -> ready -> running -> stopping -> exited
                                                     |-> draining -> drained -> stopping
    any live state -> reporting | killing -> failed

Theory of operation. The launcher reports the pid (`started`) and the exit. Messages of the process give `connected`
(Hello), `ready` (Ready), `drained` (Drained) and `reporting` (a failure report). The supervisor's own messages give
`running` (work was sent), `draining`, `stopping` and `killing`.

Messages and requests cross on their way, so the table has entries for late ones: a process that is stopping or being
killed may still send Hello, Ready, Drained or a failure report; this changes nothing. A process that is to be stopped
or killed before its pid is reported goes to `killing`, and SIGKILL is sent when the pid is reported.
"""

from __future__ import annotations

from enum import StrEnum

from elastichost.errors import IllegalTransitionError

__all__ = ["LIVE", "TRANSITIONS", "LifecycleEvent", "State", "next_state"]


class State(StrEnum):
    REQUESTED = "requested"  # the fork server was asked to start it
    STARTED = "started"  # its pid is reported
    CONNECTED = "connected"  # it has sent Hello
    READY = "ready"  # a worker has built the model, a PS has its buckets, the probe has described the model
    RUNNING = "running"  # it has work: a worker was sent a lease, a PS is in the map that workers have
    DRAINING = "draining"  # it was asked to finish its batch and give its leases back
    DRAINED = "drained"  # it holds no lease
    REPORTING = "reporting"  # it has reported an error; its exit follows
    KILLING = "killing"  # SIGKILL was sent, or will be
    STOPPING = "stopping"  # Stop was sent
    EXITED = "exited"  # it ended as it was asked to
    FAILED = "failed"  # it ended in any other way


class LifecycleEvent(StrEnum):
    SPAWNED = "spawned"
    SPAWN_FAILED = "spawn failed"
    HELLO = "hello"
    READY = "ready"
    WORK = "work"
    DRAIN = "drain"
    DRAINED = "drained"
    REPORT = "report"
    KILL = "kill"
    STOP = "stop"
    EXIT_CLEAN = "exit with code 0"
    EXIT_OTHER = "exit otherwise"


LIVE = frozenset(State) - {State.EXITED, State.FAILED}

TRANSITIONS: dict[tuple[State, LifecycleEvent], State] = {
    # the fork server answered with a pid
    (State.REQUESTED, LifecycleEvent.SPAWNED): State.STARTED,
    # the fork server refused, or died before it answered
    (State.REQUESTED, LifecycleEvent.SPAWN_FAILED): State.FAILED,
    # to be ended before its pid is reported: it is killed as soon as the pid is
    (State.REQUESTED, LifecycleEvent.STOP): State.KILLING,
    (State.REQUESTED, LifecycleEvent.KILL): State.KILLING,
    (State.KILLING, LifecycleEvent.SPAWNED): State.KILLING,
    (State.KILLING, LifecycleEvent.SPAWN_FAILED): State.FAILED,
    # its first message
    (State.STARTED, LifecycleEvent.HELLO): State.CONNECTED,
    # it can take work
    (State.CONNECTED, LifecycleEvent.READY): State.READY,
    # a PS sends Ready again for each newer shard map
    (State.READY, LifecycleEvent.READY): State.READY,
    (State.RUNNING, LifecycleEvent.READY): State.RUNNING,
    # it was sent work
    (State.READY, LifecycleEvent.WORK): State.RUNNING,
    (State.RUNNING, LifecycleEvent.WORK): State.RUNNING,
    # it is not in the plan any more, or the run was asked to stop
    (State.CONNECTED, LifecycleEvent.DRAIN): State.DRAINING,
    (State.READY, LifecycleEvent.DRAIN): State.DRAINING,
    (State.RUNNING, LifecycleEvent.DRAIN): State.DRAINING,
    # Drain was sent to a worker before its Ready had arrived
    (State.DRAINING, LifecycleEvent.READY): State.DRAINING,
    # it has given all leases back
    (State.DRAINING, LifecycleEvent.DRAINED): State.DRAINED,
    # it was asked to exit
    (State.STARTED, LifecycleEvent.STOP): State.STOPPING,
    (State.CONNECTED, LifecycleEvent.STOP): State.STOPPING,
    (State.READY, LifecycleEvent.STOP): State.STOPPING,
    (State.RUNNING, LifecycleEvent.STOP): State.STOPPING,
    (State.DRAINING, LifecycleEvent.STOP): State.STOPPING,
    (State.DRAINED, LifecycleEvent.STOP): State.STOPPING,
    (State.STOPPING, LifecycleEvent.STOP): State.STOPPING,
    # messages that were on their way when Stop or SIGKILL was sent
    (State.STOPPING, LifecycleEvent.HELLO): State.STOPPING,
    (State.STOPPING, LifecycleEvent.READY): State.STOPPING,
    (State.STOPPING, LifecycleEvent.DRAINED): State.STOPPING,
    (State.KILLING, LifecycleEvent.HELLO): State.KILLING,
    (State.KILLING, LifecycleEvent.READY): State.KILLING,
    (State.KILLING, LifecycleEvent.DRAINED): State.KILLING,
    # it has reported why it will exit
    (State.STARTED, LifecycleEvent.REPORT): State.REPORTING,
    (State.CONNECTED, LifecycleEvent.REPORT): State.REPORTING,
    (State.READY, LifecycleEvent.REPORT): State.REPORTING,
    (State.RUNNING, LifecycleEvent.REPORT): State.REPORTING,
    (State.DRAINING, LifecycleEvent.REPORT): State.REPORTING,
    (State.DRAINED, LifecycleEvent.REPORT): State.REPORTING,
    (State.REPORTING, LifecycleEvent.REPORT): State.REPORTING,
    # an error while it stops: its exit code decides whether it failed
    (State.STOPPING, LifecycleEvent.REPORT): State.STOPPING,
    (State.KILLING, LifecycleEvent.REPORT): State.KILLING,
    # it was asked to stop or drain after it has reported an error
    (State.REPORTING, LifecycleEvent.STOP): State.REPORTING,
    (State.REPORTING, LifecycleEvent.DRAIN): State.REPORTING,
    # it hangs, does not stop in time, or has sent impossible figures
    (State.STARTED, LifecycleEvent.KILL): State.KILLING,
    (State.CONNECTED, LifecycleEvent.KILL): State.KILLING,
    (State.READY, LifecycleEvent.KILL): State.KILLING,
    (State.RUNNING, LifecycleEvent.KILL): State.KILLING,
    (State.DRAINING, LifecycleEvent.KILL): State.KILLING,
    (State.DRAINED, LifecycleEvent.KILL): State.KILLING,
    (State.REPORTING, LifecycleEvent.KILL): State.KILLING,
    (State.STOPPING, LifecycleEvent.KILL): State.KILLING,
    (State.KILLING, LifecycleEvent.KILL): State.KILLING,
    (State.KILLING, LifecycleEvent.STOP): State.KILLING,
    (State.KILLING, LifecycleEvent.DRAIN): State.KILLING,
    # exits: rule 2 of this module
    (State.STOPPING, LifecycleEvent.EXIT_CLEAN): State.EXITED,
    (State.DRAINED, LifecycleEvent.EXIT_CLEAN): State.EXITED,
    (State.STOPPING, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.DRAINED, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.STARTED, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.STARTED, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.CONNECTED, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.CONNECTED, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.READY, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.READY, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.RUNNING, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.RUNNING, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.DRAINING, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.DRAINING, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.REPORTING, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.REPORTING, LifecycleEvent.EXIT_OTHER): State.FAILED,
    (State.KILLING, LifecycleEvent.EXIT_CLEAN): State.FAILED,
    (State.KILLING, LifecycleEvent.EXIT_OTHER): State.FAILED,
}


def next_state(process: str, state: State, event: LifecycleEvent) -> State:
    """The state after `event`. Raises IllegalTransitionError with the process, its state and the event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(process, state.value, event.value) from None
