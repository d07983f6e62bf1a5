"""The life of one process, as a table. Pure: a state and an event give the next state.

    requested -> started -> connected -> ready -> running -> stopping -> exited
                                                     |-> draining -> drained -> stopping
    any of them -> reporting | killing -> failed

A state is what has been *seen*, never what was asked for: `stopping` means that Stop was sent, only the exit of the
process makes it `exited`.
"""

from __future__ import annotations

from enum import StrEnum

from elastichost.errors import IllegalTransitionError

__all__ = ["LIVE", "TRANSITIONS", "LifecycleEvent", "State", "next_state"]


class State(StrEnum):
    REQUESTED = "requested"  # asked of the fork server
    STARTED = "started"  # its pid is known
    CONNECTED = "connected"  # it said Hello
    READY = "ready"  # built (worker), owns its buckets (PS), has described the model (probe)
    RUNNING = "running"  # has work: a worker with a lease, a PS that workers know of
    DRAINING = "draining"  # asked to finish its batch and give its leases back
    DRAINED = "drained"  # holds nothing any more
    REPORTING = "reporting"  # told us of an error; its exit follows
    KILLING = "killing"  # SIGKILL was sent
    STOPPING = "stopping"  # Stop was sent
    EXITED = "exited"  # ended as asked
    FAILED = "failed"  # ended otherwise


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
    # the fork server refused, or died with the request in hand
    (State.REQUESTED, LifecycleEvent.SPAWN_FAILED): State.FAILED,
    # asked to go before it had a pid: it is killed as soon as it has one
    (State.REQUESTED, LifecycleEvent.STOP): State.KILLING,
    (State.REQUESTED, LifecycleEvent.KILL): State.KILLING,
    (State.KILLING, LifecycleEvent.SPAWNED): State.KILLING,
    (State.KILLING, LifecycleEvent.SPAWN_FAILED): State.FAILED,
    # first message
    (State.STARTED, LifecycleEvent.HELLO): State.CONNECTED,
    # it can work now
    (State.CONNECTED, LifecycleEvent.READY): State.READY,
    # a PS says Ready again for each newer shard map
    (State.READY, LifecycleEvent.READY): State.READY,
    (State.RUNNING, LifecycleEvent.READY): State.RUNNING,
    # it was given work
    (State.READY, LifecycleEvent.WORK): State.RUNNING,
    (State.RUNNING, LifecycleEvent.WORK): State.RUNNING,
    # the plan does not want it any more, or the job is asked to stop
    (State.CONNECTED, LifecycleEvent.DRAIN): State.DRAINING,
    (State.READY, LifecycleEvent.DRAIN): State.DRAINING,
    (State.RUNNING, LifecycleEvent.DRAIN): State.DRAINING,
    # a worker that was connecting while it was drained still says Ready
    (State.DRAINING, LifecycleEvent.READY): State.DRAINING,
    # it holds no lease any more
    (State.DRAINING, LifecycleEvent.DRAINED): State.DRAINED,
    # asked to exit
    (State.STARTED, LifecycleEvent.STOP): State.STOPPING,
    (State.CONNECTED, LifecycleEvent.STOP): State.STOPPING,
    (State.READY, LifecycleEvent.STOP): State.STOPPING,
    (State.RUNNING, LifecycleEvent.STOP): State.STOPPING,
    (State.DRAINING, LifecycleEvent.STOP): State.STOPPING,
    (State.DRAINED, LifecycleEvent.STOP): State.STOPPING,
    (State.STOPPING, LifecycleEvent.STOP): State.STOPPING,
    # what was on its way when Stop was sent
    (State.STOPPING, LifecycleEvent.HELLO): State.STOPPING,
    (State.STOPPING, LifecycleEvent.READY): State.STOPPING,
    (State.STOPPING, LifecycleEvent.DRAINED): State.STOPPING,
    (State.KILLING, LifecycleEvent.HELLO): State.KILLING,
    (State.KILLING, LifecycleEvent.READY): State.KILLING,
    (State.KILLING, LifecycleEvent.DRAINED): State.KILLING,
    # it told us why it will exit
    (State.STARTED, LifecycleEvent.REPORT): State.REPORTING,
    (State.CONNECTED, LifecycleEvent.REPORT): State.REPORTING,
    (State.READY, LifecycleEvent.REPORT): State.REPORTING,
    (State.RUNNING, LifecycleEvent.REPORT): State.REPORTING,
    (State.DRAINING, LifecycleEvent.REPORT): State.REPORTING,
    (State.DRAINED, LifecycleEvent.REPORT): State.REPORTING,
    (State.REPORTING, LifecycleEvent.REPORT): State.REPORTING,
    # an error while it stops: the exit decides what it was
    (State.STOPPING, LifecycleEvent.REPORT): State.STOPPING,
    (State.KILLING, LifecycleEvent.REPORT): State.KILLING,
    # it reported and still does not exit, or it is told to stop meanwhile
    (State.REPORTING, LifecycleEvent.STOP): State.REPORTING,
    (State.REPORTING, LifecycleEvent.DRAIN): State.REPORTING,
    # it does not answer, or does not stop in time
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
    # the exits: only a process that was asked to stop, or holds nothing, may end well
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
    """The state after `event`. Raises IllegalTransitionError naming the process, its state and the event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(process, state.value, event.value) from None
