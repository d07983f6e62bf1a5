"""Decides which samples of worker speeds are recorded, and converts them to a compact form. Pure.

`health.observe` folds every sample. Most samples change only the stored speeds: no worker becomes slow, recovers,
starts or ends, and there is no remark. Such a sample need not be recorded, because the next recorded sample holds the
stored speeds of that time. So a replay that gets only the recorded samples gives the same remarks for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from elastichost.plan import ProcessId
from elastichost.tuner.health import HealthState, Remark, WorkerSpeed

__all__ = ["WorkerSpeeds", "is_telling", "packed", "rounded", "unpacked"]

DIGITS = 5  # significant digits of a recorded speed; only ratios of speeds are compared with limits such as SLOW


class WorkerSpeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The speeds of all workers in one record, in compact form.

    workers: (index, incarnation) of each worker; None: the same workers as in the record before. compute_per_s,
    wall_per_s: one value for each worker, as in `health.WorkerSpeed`; wall_per_s = (): it is None for all workers.
    idle: positions in `workers` of the workers that had nothing to train. gpu: positions of the workers on a GPU."""

    workers: tuple[tuple[int, int], ...] | None = None
    compute_per_s: tuple[float | None, ...] = ()
    wall_per_s: tuple[float | None, ...] = ()
    idle: tuple[int, ...] = ()
    gpu: tuple[int, ...] = ()


def rounded(speed: float) -> float:
    """Rounds a speed to the recorded precision. Live decisions use the rounded number, so that a replay gives the same
    result."""
    return float(f"{speed:.{DIGITS}g}")


def is_telling(recorded: HealthState, state: HealthState, remarks: Sequence[Remark]) -> bool:
    """Whether this sample must be recorded. recorded: the state after the last recorded sample. state: the state after
    this sample."""
    return bool(remarks) or _standing(recorded) != _standing(state)


def _standing(state: HealthState) -> object:
    """The parts of a state that decide about remarks: since when each worker is slow, and when it was replaced."""
    held = {
        process: (incarnation.hopeless_s, incarnation.slow_s, incarnation.was_told)
        for process, incarnation in state.incarnations.items()
    }
    return held, dict(state.replaced_s)


def packed(
    speeds: Sequence[WorkerSpeed], state: HealthState, before: tuple[tuple[int, int], ...] | None
) -> WorkerSpeeds:
    """Converts one sample to its recorded form. state: the state after the sample; for a worker that trained nothing
    the stored speed is recorded. before: (index, incarnation) of the workers of the record before."""
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
    """Converts a record back to speeds; the inverse of `packed`. before: workers of the record before. Raises
    ValueError if the number of speeds differs from the number of workers."""
    workers = before if found.workers is None else found.workers
    wall = found.wall_per_s or (None,) * len(workers)
    if len(found.compute_per_s) != len(workers) or len(wall) != len(workers):
        raise ValueError(f"the record has {len(found.compute_per_s)} speeds for {len(workers)} workers")
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
