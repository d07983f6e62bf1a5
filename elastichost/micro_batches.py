"""Sync mode: how a step's positions are cut into micro-batches, and who computes which. Pure.

A *step* is one update of the model, from train.batch_size consecutive positions of a unit (`batches` says what its last
one is). Its number is the version of the dense vector that it begins with. Its *micro-batches* depend on nothing but
its positions, so their gradients are the same bits whoever computes them; summed in their order they give the same
update for any *crew*, as the workers of such a run are called together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from elastichost.batches import MIN_SAMPLES, batch_stop, batches_of

__all__ = [
    "CREW",
    "CREW_INCARNATION",
    "MAX_MICRO_BATCHES",
    "MicroBatch",
    "assign",
    "key_of",
    "micro_range",
    "micro_ranges",
    "step_of",
    "step_range",
    "steps_of",
]

MAX_MICRO_BATCHES = 128
# The crew as a whole holds the leases; in the dense vector's applied records it has the place of this worker.
CREW = 255
CREW_INCARNATION = 1


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Positions [start, stop) of a unit, as number `micro` of the `micros` of a step of so many positions."""

    step: int
    micro: int
    micros: int
    positions: int
    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int
    shuffle_seed: int
    is_left_out: bool

    @property
    def key(self) -> int:
        return key_of(self.step, self.micro)


def micro_ranges(start: int, stop: int, micros: int) -> tuple[tuple[int, int], ...]:
    """The positions [start, stop) as at most `micros` consecutive ranges, each of MIN_SAMPLES or more if there are as
    many. Their sizes differ by one at most, and none is larger than the first."""
    if start >= stop:
        return ()
    count = min(micros, max(1, (stop - start) // MIN_SAMPLES))
    size, larger = divmod(stop - start, count)
    edges = [start + number * size + min(number, larger) for number in range(count + 1)]
    return tuple(pairwise(edges))


def step_range(start: int, stop: int, batch_size: int, step: int) -> tuple[int, int]:
    """Positions of the step that is number `step` (from 0) of the range [start, stop) of a unit."""
    first = start + step * batch_size
    return first, batch_stop(first, stop, batch_size)


def micro_range(start: int, stop: int, batch_size: int, micros: int, step: int, micro: int) -> tuple[int, int]:
    """Positions of a micro-batch of the step that is number `step` (from 0) of the range [start, stop) of a unit."""
    return micro_ranges(*step_range(start, stop, batch_size, step), micros)[micro]


def key_of(step: int, micro: int) -> int:
    """Grows from micro-batch to micro-batch."""
    return (step << 8) | micro


def step_of(key: int) -> int:
    return key >> 8


def steps_of(start: int, stop: int, batch_size: int) -> int:
    """How many steps the positions [start, stop) of a unit are."""
    return batches_of(stop - start, batch_size)


def assign(rates: Mapping[int, float], micros: int) -> tuple[int, ...]:
    """The worker (index) of each micro-batch, so that all are done as early as may be. `rates`: samples per second of
    each worker; 0 where that is not known. Empty without workers."""
    if not rates:
        return ()
    known = [rate for rate in rates.values() if rate > 0]
    usual = sum(known) / len(known) if known else 1.0
    speed = {worker: rate if rate > 0 else usual for worker, rate in rates.items()}
    counts = dict.fromkeys(sorted(rates), 0)
    for _ in range(micros):
        counts[min(counts, key=lambda worker: ((counts[worker] + 1) / speed[worker], worker))] += 1
    return tuple(worker for worker, count in counts.items() for _ in range(count))
