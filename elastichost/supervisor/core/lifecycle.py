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

__all__ = ["LIVE", "STARTING", "TRANSITIONS", "Event", "State", "next_state"]


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


class Event(StrEnum):
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


STARTING = frozenset({State.REQUESTED, State.STARTED, State.CONNECTED})
LIVE = frozenset(State) - {State.EXITED, State.FAILED}

TRANSITIONS: dict[tuple[State, Event], State] = {
    # the fork server answered with a pid
    (State.REQUESTED, Event.SPAWNED): State.STARTED,
    # the fork server refused, or died with the request in hand
    (State.REQUESTED, Event.SPAWN_FAILED): State.FAILED,
    # asked to go before it had a pid: it is killed as soon as it has one
    (State.REQUESTED, Event.STOP): State.KILLING,
    (State.REQUESTED, Event.KILL): State.KILLING,
    (State.KILLING, Event.SPAWNED): State.KILLING,
    (State.KILLING, Event.SPAWN_FAILED): State.FAILED,
    # first message
    (State.STARTED, Event.HELLO): State.CONNECTED,
    # it can work now
    (State.CONNECTED, Event.READY): State.READY,
    # a PS says Ready again for each newer shard map
    (State.READY, Event.READY): State.READY,
    (State.RUNNING, Event.READY): State.RUNNING,
    # it was given work
    (State.READY, Event.WORK): State.RUNNING,
    (State.RUNNING, Event.WORK): State.RUNNING,
    # the plan does not want it any more, or the job is asked to stop
    (State.CONNECTED, Event.DRAIN): State.DRAINING,
    (State.READY, Event.DRAIN): State.DRAINING,
    (State.RUNNING, Event.DRAIN): State.DRAINING,
    # a worker that was connecting while it was drained still says Ready
    (State.DRAINING, Event.READY): State.DRAINING,
    # it holds no lease any more
    (State.DRAINING, Event.DRAINED): State.DRAINED,
    # asked to exit
    (State.STARTED, Event.STOP): State.STOPPING,
    (State.CONNECTED, Event.STOP): State.STOPPING,
    (State.READY, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.DRAINING, Event.STOP): State.STOPPING,
    (State.DRAINED, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.STOP): State.STOPPING,
    # what was on its way when Stop was sent
    (State.STOPPING, Event.HELLO): State.STOPPING,
    (State.STOPPING, Event.READY): State.STOPPING,
    (State.STOPPING, Event.DRAINED): State.STOPPING,
    (State.KILLING, Event.HELLO): State.KILLING,
    (State.KILLING, Event.READY): State.KILLING,
    (State.KILLING, Event.DRAINED): State.KILLING,
    # it told us why it will exit
    (State.STARTED, Event.REPORT): State.REPORTING,
    (State.CONNECTED, Event.REPORT): State.REPORTING,
    (State.READY, Event.REPORT): State.REPORTING,
    (State.RUNNING, Event.REPORT): State.REPORTING,
    (State.DRAINING, Event.REPORT): State.REPORTING,
    (State.DRAINED, Event.REPORT): State.REPORTING,
    (State.REPORTING, Event.REPORT): State.REPORTING,
    # an error while it stops: the exit decides what it was
    (State.STOPPING, Event.REPORT): State.STOPPING,
    (State.KILLING, Event.REPORT): State.KILLING,
    # it reported and still does not exit, or it is told to stop meanwhile
    (State.REPORTING, Event.STOP): State.REPORTING,
    (State.REPORTING, Event.DRAIN): State.REPORTING,
    # it does not answer, or does not stop in time
    (State.STARTED, Event.KILL): State.KILLING,
    (State.CONNECTED, Event.KILL): State.KILLING,
    (State.READY, Event.KILL): State.KILLING,
    (State.RUNNING, Event.KILL): State.KILLING,
    (State.DRAINING, Event.KILL): State.KILLING,
    (State.DRAINED, Event.KILL): State.KILLING,
    (State.REPORTING, Event.KILL): State.KILLING,
    (State.STOPPING, Event.KILL): State.KILLING,
    (State.KILLING, Event.KILL): State.KILLING,
    (State.KILLING, Event.STOP): State.KILLING,
    # the exits: only a process that was asked to stop, or holds nothing, may end well
    (State.STOPPING, Event.EXIT_CLEAN): State.EXITED,
    (State.DRAINED, Event.EXIT_CLEAN): State.EXITED,
    (State.STOPPING, Event.EXIT_OTHER): State.FAILED,
    (State.DRAINED, Event.EXIT_OTHER): State.FAILED,
    (State.STARTED, Event.EXIT_CLEAN): State.FAILED,
    (State.STARTED, Event.EXIT_OTHER): State.FAILED,
    (State.CONNECTED, Event.EXIT_CLEAN): State.FAILED,
    (State.CONNECTED, Event.EXIT_OTHER): State.FAILED,
    (State.READY, Event.EXIT_CLEAN): State.FAILED,
    (State.READY, Event.EXIT_OTHER): State.FAILED,
    (State.RUNNING, Event.EXIT_CLEAN): State.FAILED,
    (State.RUNNING, Event.EXIT_OTHER): State.FAILED,
    (State.DRAINING, Event.EXIT_CLEAN): State.FAILED,
    (State.DRAINING, Event.EXIT_OTHER): State.FAILED,
    (State.REPORTING, Event.EXIT_CLEAN): State.FAILED,
    (State.REPORTING, Event.EXIT_OTHER): State.FAILED,
    (State.KILLING, Event.EXIT_CLEAN): State.FAILED,
    (State.KILLING, Event.EXIT_OTHER): State.FAILED,
}


def next_state(process: str, state: State, event: Event) -> State:
    """The state after `event`. Raises IllegalTransitionError naming the process, its state and the event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(process, state.value, event.value) from None
