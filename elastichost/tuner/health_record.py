"""Which looks at the workers' speeds a record needs, and in which form. Pure.

`health.observe` folds every look, but most leave things as they were: nobody becomes slow or is slow no more, nobody
comes or goes, nothing is remarked. What such a look changes is what is known of speeds only, and the next look that is
recorded holds that as it is then. So a state that was fed the recorded ones alone says the same of each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from elastichost.plan import ProcessId
from elastichost.tuner.health import HealthState, Remark, WorkerSpeed

__all__ = ["WorkerSpeeds", "is_telling", "packed", "rounded", "unpacked"]

DIGITS = 5  # of a speed; SLOW and the like are compared with its ratio to others


class WorkerSpeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """workers: (index, incarnation), None: those of the record before. Then one value for each of them; wall_per_s ():
    it is known of none. idle: places of those that had nothing to train, gpu: of those on one."""

    workers: tuple[tuple[int, int], ...] | None = None
    compute_per_s: tuple[float | None, ...] = ()
    wall_per_s: tuple[float | None, ...] = ()
    idle: tuple[int, ...] = ()
    gpu: tuple[int, ...] = ()


def rounded(speed: float) -> float:
    """As it is recorded: what decides must be the same number."""
    return float(f"{speed:.{DIGITS}g}")


def is_telling(recorded: HealthState, state: HealthState, remarks: Sequence[Remark]) -> bool:
    """Whether a look is to be recorded. recorded: the state after the last one that was; state: after this one."""
    return bool(remarks) or _standing(recorded) != _standing(state)


def _standing(state: HealthState) -> object:
    """What is held against whom."""
    held = {
        process: (incarnation.hopeless_s, incarnation.slow_s, incarnation.was_told)
        for process, incarnation in state.incarnations.items()
    }
    return held, dict(state.replaced_s)


def packed(
    speeds: Sequence[WorkerSpeed], state: HealthState, before: tuple[tuple[int, int], ...] | None
) -> WorkerSpeeds:
    """state: after the look; a worker that trained nothing has the speed that is known of it. before: workers of the
    record before."""
    incarnations = [state.incarnations[speed.process] for speed in speeds]
    workers = tuple((speed.process.index, speed.process.incarnation) for speed in speeds)
    wall = tuple(incarnation.wall_per_s for incarnation in incarnations)
    return WorkerSpeeds(
        workers if workers != before else None,
        tuple(incarnation.compute_per_s for incarnation in incarnations),
        wall if any(value is not None for value in wall) else (),
        tuple(place for place, speed in enumerate(speeds) if not speed.has_work),
        tuple(place for place, speed in enumerate(speeds) if speed.is_gpu),
    )


def unpacked(found: WorkerSpeeds, before: tuple[tuple[int, int], ...]) -> tuple[WorkerSpeed, ...]:
    """What `packed` was made of. Raises ValueError where it does not fit the workers of the record before."""
    workers = before if found.workers is None else found.workers
    wall = found.wall_per_s or (None,) * len(workers)
    if len(found.compute_per_s) != len(workers) or len(wall) != len(workers):
        raise ValueError(f"{len(found.compute_per_s)} speeds of {len(workers)} workers")
    idle, gpu = frozenset(found.idle), frozenset(found.gpu)
    return tuple(
        WorkerSpeed(
            ProcessId("worker", *worker),
            found.compute_per_s[place],
            wall[place],
            has_work=place not in idle,
            is_gpu=place in gpu,
        )
        for place, worker in enumerate(workers)
    )
