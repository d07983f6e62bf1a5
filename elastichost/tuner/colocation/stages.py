"""The transition table of feedback: the stages of a job beside others, and the action of each step. Pure.

    running -> shrunk -> lowered                               step down: crowded
    running -> shrunk -> paused -> evicted                     step down: short of memory
    running <- shrunk <- lowered, paused                       step up: there is room

Rules: every stage but the last has a step down, and every stage but the first a step back. A crowded host never pauses
a job: the host would lose the work of that job, and the other jobs seldom gain as much. `feedback` decides when a step
is made. An event that the table does not contain for a stage raises IllegalTransitionError.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from elastichost.errors import IllegalTransitionError

__all__ = ["TRANSITIONS", "ActionKind", "Stage", "StageEvent", "next_stage"]

ActionKind = Literal["shrink", "lower", "pause", "evict", "resume", "raise", "grow"]


class Stage(StrEnum):
    """How far a job was restricted."""

    RUNNING = "running"
    SHRUNK = "shrunk"  # it has fewer workers than at its start
    LOWERED = "lowered"  # it also has a low weight
    PAUSED = "paused"  # it computes nothing and keeps its memory
    EVICTED = "evicted"  # it was saved and ended, and waits in the queue


class StageEvent(StrEnum):
    """The causes of a step."""

    CROWDED = "crowded"
    CROWDED_LEAST = "crowded, at the least number of workers"
    MEMORY = "short of memory"
    MEMORY_LEAST = "short of memory, at the least number of workers"
    CRITICAL = "memory almost used up"
    STUCK = "paused for too long"
    ROOM = "room"
    ROOM_WHOLE = "room, and it was never shrunk"
    STARTED = "started again"


# (stage, event) -> (next stage, action)
TRANSITIONS: dict[tuple[Stage, StageEvent], tuple[Stage, ActionKind | None]] = {
    # the mildest step: one worker fewer, which also frees its memory
    (Stage.RUNNING, StageEvent.CROWDED): (Stage.SHRUNK, "shrink"),
    (Stage.RUNNING, StageEvent.MEMORY): (Stage.SHRUNK, "shrink"),
    # with the least number of workers, the next step follows at once
    (Stage.RUNNING, StageEvent.CROWDED_LEAST): (Stage.LOWERED, "lower"),
    # fewer workers did not suffice: others get the cores first
    (Stage.SHRUNK, StageEvent.CROWDED): (Stage.LOWERED, "lower"),
    (Stage.SHRUNK, StageEvent.CROWDED_LEAST): (Stage.LOWERED, "lower"),
    # a lower weight frees no memory; a paused job does not grow further
    (Stage.RUNNING, StageEvent.MEMORY_LEAST): (Stage.PAUSED, "pause"),
    (Stage.SHRUNK, StageEvent.MEMORY): (Stage.PAUSED, "pause"),
    (Stage.SHRUNK, StageEvent.MEMORY_LEAST): (Stage.PAUSED, "pause"),
    (Stage.LOWERED, StageEvent.MEMORY): (Stage.PAUSED, "pause"),
    (Stage.LOWERED, StageEvent.MEMORY_LEAST): (Stage.PAUSED, "pause"),
    # no time for milder steps: the kernel would kill a process next
    (Stage.RUNNING, StageEvent.CRITICAL): (Stage.PAUSED, "pause"),
    (Stage.SHRUNK, StageEvent.CRITICAL): (Stage.PAUSED, "pause"),
    (Stage.LOWERED, StageEvent.CRITICAL): (Stage.PAUSED, "pause"),
    # memory is still short after the pause: only the memory of the job itself can be freed
    (Stage.PAUSED, StageEvent.MEMORY): (Stage.EVICTED, "evict"),
    (Stage.PAUSED, StageEvent.MEMORY_LEAST): (Stage.EVICTED, "evict"),
    (Stage.PAUSED, StageEvent.CRITICAL): (Stage.EVICTED, "evict"),
    # memory stayed short: waiting jobs use the memory better
    (Stage.PAUSED, StageEvent.STUCK): (Stage.EVICTED, "evict"),
    # it computes again, with its own weight, because only memory was short
    (Stage.PAUSED, StageEvent.ROOM): (Stage.SHRUNK, "resume"),
    (Stage.PAUSED, StageEvent.ROOM_WHOLE): (Stage.RUNNING, "resume"),
    # it gets its weight back, and keeps its present workers
    (Stage.LOWERED, StageEvent.ROOM): (Stage.SHRUNK, "raise"),
    (Stage.LOWERED, StageEvent.ROOM_WHOLE): (Stage.RUNNING, "raise"),
    # it gets its workers back
    (Stage.SHRUNK, StageEvent.ROOM): (Stage.RUNNING, "grow"),
    # it was started from the queue again; only the count of its evictions is kept
    (Stage.EVICTED, StageEvent.STARTED): (Stage.RUNNING, None),
}


def next_stage(job: str, stage: Stage, event: StageEvent) -> tuple[Stage, ActionKind | None]:
    """Returns the stage after `event`, and the action. Raises IllegalTransitionError with the name of the job."""
    try:
        return TRANSITIONS[stage, event]
    except KeyError:
        raise IllegalTransitionError(f"co-location of {job}", stage.value, event.value) from None
