"""The life of a job beside others, as a table: how far it was sent back, and what is done at each step. Pure.

    running -> shrunk -> lowered                               a rung down: crowded
    running -> shrunk -> paused -> evicted                     a rung down: short of memory
    running <- shrunk <- lowered, paused                       a rung up: there is room

Standing still is no remedy for a crowd: it gives away what it computed, and the others seldom gain as much. `feedback`
says when.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from elastichost.errors import IllegalTransitionError

__all__ = ["TRANSITIONS", "ActionKind", "Stage", "StageEvent", "next_stage"]

ActionKind = Literal["shrink", "lower", "pause", "evict", "resume", "raise", "grow"]


class Stage(StrEnum):
    RUNNING = "running"
    SHRUNK = "shrunk"  # has fewer workers than it was started with
    LOWERED = "lowered"  # and a low weight
    PAUSED = "paused"  # computes nothing, keeps its memory
    EVICTED = "evicted"  # saved, ended, and in the queue


class StageEvent(StrEnum):
    CROWDED = "crowded"
    CROWDED_LEAST = "crowded, and it has no fewer workers to have"
    MEMORY = "short of memory"
    MEMORY_LEAST = "short of memory, and it has no fewer workers to have"
    CRITICAL = "memory all but used up"
    STUCK = "paused for too long"
    ROOM = "room"
    ROOM_WHOLE = "room, and it was never shrunk"
    STARTED = "started again"


# what the state becomes, and what is done for it
TRANSITIONS: dict[tuple[Stage, StageEvent], tuple[Stage, ActionKind | None]] = {
    # the mildest step: a worker fewer, and its memory with it
    (Stage.RUNNING, StageEvent.CROWDED): (Stage.SHRUNK, "shrink"),
    (Stage.RUNNING, StageEvent.MEMORY): (Stage.SHRUNK, "shrink"),
    # one worker is the least: the next step
    (Stage.RUNNING, StageEvent.CROWDED_LEAST): (Stage.LOWERED, "lower"),
    # fewer workers did not suffice: others come first on the cores
    (Stage.SHRUNK, StageEvent.CROWDED): (Stage.LOWERED, "lower"),
    (Stage.SHRUNK, StageEvent.CROWDED_LEAST): (Stage.LOWERED, "lower"),
    # weight frees no memory: what computes no more grows no more
    (Stage.RUNNING, StageEvent.MEMORY_LEAST): (Stage.PAUSED, "pause"),
    (Stage.SHRUNK, StageEvent.MEMORY): (Stage.PAUSED, "pause"),
    (Stage.SHRUNK, StageEvent.MEMORY_LEAST): (Stage.PAUSED, "pause"),
    (Stage.LOWERED, StageEvent.MEMORY): (Stage.PAUSED, "pause"),
    (Stage.LOWERED, StageEvent.MEMORY_LEAST): (Stage.PAUSED, "pause"),
    # no time for milder steps: the kernel kills next
    (Stage.RUNNING, StageEvent.CRITICAL): (Stage.PAUSED, "pause"),
    (Stage.SHRUNK, StageEvent.CRITICAL): (Stage.PAUSED, "pause"),
    (Stage.LOWERED, StageEvent.CRITICAL): (Stage.PAUSED, "pause"),
    # paused, and memory is still short: only what it holds is left to take
    (Stage.PAUSED, StageEvent.MEMORY): (Stage.EVICTED, "evict"),
    (Stage.PAUSED, StageEvent.MEMORY_LEAST): (Stage.EVICTED, "evict"),
    (Stage.PAUSED, StageEvent.CRITICAL): (Stage.EVICTED, "evict"),
    # no room came: its memory is of more use to those that wait
    (Stage.PAUSED, StageEvent.STUCK): (Stage.EVICTED, "evict"),
    # back: it computes again, with its weight: memory was what was short
    (Stage.PAUSED, StageEvent.ROOM): (Stage.SHRUNK, "resume"),
    (Stage.PAUSED, StageEvent.ROOM_WHOLE): (Stage.RUNNING, "resume"),
    # its weight again, with the workers it has
    (Stage.LOWERED, StageEvent.ROOM): (Stage.SHRUNK, "raise"),
    (Stage.LOWERED, StageEvent.ROOM_WHOLE): (Stage.RUNNING, "raise"),
    # its workers again
    (Stage.SHRUNK, StageEvent.ROOM): (Stage.RUNNING, "grow"),
    # dispatched from the queue once more: nothing is held against it but that it was evicted
    (Stage.EVICTED, StageEvent.STARTED): (Stage.RUNNING, None),
}


def next_stage(job: str, stage: Stage, event: StageEvent) -> tuple[Stage, ActionKind | None]:
    """The stage after `event`, and what is done for it. Raises IllegalTransitionError naming the job."""
    try:
        return TRANSITIONS[stage, event]
    except KeyError:
        raise IllegalTransitionError(f"co-location of {job}", stage.value, event.value) from None
