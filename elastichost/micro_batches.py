"""Sync mode: how the positions of a step are cut into micro-batches, and which worker computes which. Pure.

A *step* is one update of the model, from train.batch_size consecutive positions of a unit (`batches` defines the last
step of a unit). Its number is the version of the dense vector that it begins with. Its *micro-batches* depend only on
its positions, so their gradients have the same bits whichever worker computes them. Summed in their order they give
the same update for any *crew*: the workers of a run in sync mode.
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
    "with_usual",
]

MAX_MICRO_BATCHES = 128
# The leases belong to the crew as a whole. In the applied records of the dense vector it has this worker index.
CREW = 255
CREW_INCARNATION = 1


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Positions [start, stop) of a unit: number `micro` of the `micros` micro-batches of a step. `positions`: the
    number of positions of the whole step."""

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
    """Cuts the positions [start, stop) into at most `micros` consecutive ranges. Each has MIN_SAMPLES positions or more
    if [start, stop) has as many. Their sizes differ by at most one, and the first is the largest."""
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
    """A number that identifies a micro-batch and grows from each micro-batch to the next."""
    return (step << 8) | micro


def step_of(key: int) -> int:
    return key >> 8


def steps_of(start: int, stop: int, batch_size: int) -> int:
    """The number of steps in the positions [start, stop) of a unit."""
    return batches_of(stop - start, batch_size)


def with_usual(rates: Mapping[int, float]) -> dict[int, float]:
    """The samples per second of each worker, with the mean of the others where it is 0, which means not known."""
    known = [rate for rate in rates.values() if rate > 0]
    usual = sum(known) / len(known) if known else 1.0
    return {worker: rate if rate > 0 else usual for worker, rate in rates.items()}


def assign(rates: Mapping[int, float], micros: int) -> tuple[int, ...]:
    """The index of the worker of each micro-batch, chosen so that the last one is finished as early as possible.
    `rates`: samples per second of each worker, 0 where not known. Empty without workers."""
    if not rates:
        return ()
    speed = with_usual(rates)
    counts = dict.fromkeys(sorted(rates), 0)
    for _ in range(micros):
        counts[min(counts, key=lambda worker: ((counts[worker] + 1) / speed[worker], worker))] += 1
    return tuple(worker for worker, count in counts.items() for _ in range(count))
