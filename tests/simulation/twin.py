"""The expected result of sync mode, computed directly: one step after the other, without lost messages and kills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.config.job import JobSpec
from elastichost.supervisor.ledger.ledger import LedgerSettings
from elastichost.supervisor.ledger.state import epoch_order
from tests.simulation.computing import DENSE, MODEL, PARAMETERS, Learned, Samples, learn
from tests.simulation.memory import ARENA, Memory, SimArena
from tests.simulation.rows import WIDTH, Row
from tests.simulation.world import World, activate, active

__all__ = ["Twin", "TwinStep", "twin_of"]

Float32 = npt.NDArray[np.float32]
LeftOut = frozenset[tuple[int, int]]


class TwinStep(NamedTuple):
    """One committed step. rows: (table, row) -> (its update, its weights after the update)."""

    epoch: int
    unit: int
    start: int
    stop: int
    samples: int
    loss_sum: float
    rows: dict[tuple[int, int], tuple[tuple[float, ...], bytes]]
    vector: bytes
    state: bytes


@dataclass
class Twin:
    """`steps[i]` is the step that began with version i + 1 of the dense vector."""

    steps: list[TwinStep] = field(default_factory=list)

    def rows_before(self, version: int) -> dict[tuple[int, int], tuple[tuple[tuple[float, ...], ...], bytes]]:
        """Updates and weights of every row that was updated before this version."""
        found: dict[tuple[int, int], tuple[tuple[tuple[float, ...], ...], bytes]] = {}
        for step in self.steps[: version - 1]:
            for item, (update, weights) in step.rows.items():
                found[item] = ((*found.get(item, ((), b""))[0], update), weights)
        return found


def twin_of(samples: Samples, job: JobSpec, settings: LedgerSettings, left_out: LeftOut) -> Twin:
    """All steps of a job. left_out: (step, micro-batch) that no worker computes."""
    before, own = active(), World(0)
    activate(own)
    own.memory = Memory()
    try:
        arena: Any = SimArena.create(ARENA, plan_layout(MODEL, job.job.seed, 1 << 24))
        dense = DenseStore(arena)
        dense.load(DENSE, None, 1, 0, 0)
        rows: dict[tuple[int, int], Row] = {}
        steps = [_step(samples, job, dense, rows, number + 1, place, left_out) for number, place in _places(settings)]
        return Twin(steps)
    finally:
        activate(before)


def _places(settings: LedgerSettings) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """(epoch, unit, start, stop) of every step, numbered."""
    number, batch = 0, settings.batch_size
    for epoch in range(settings.epochs):
        for unit in epoch_order(settings, epoch):
            stops = [*range(batch, settings.units[unit], batch), settings.units[unit]]
            if len(stops) > 1 and stops[-1] - stops[-2] == 1:
                del stops[-2]  # a single sample joins the step before it
            for start, stop in pairwise([0, *stops]):
                yield number, (epoch, unit, start, stop)
                number += 1


def _micro_batches(start: int, stop: int, micros: int) -> list[tuple[int, int]]:
    """Splits a step into `micros` micro-batches, or fewer, so that each has two samples at least. With a remainder the
    first ones have one sample more."""
    count = max(1, min(micros, (stop - start) // 2))
    parts = np.array_split(np.arange(start, stop), count)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def _step(
    samples: Samples,
    job: JobSpec,
    dense: DenseStore,
    rows: dict[tuple[int, int], Row],
    number: int,
    place: tuple[int, int, int, int],
    left_out: LeftOut,
) -> TwinStep:
    """Computes one step on dense vector and rows. number: of the step; place: (epoch, unit, start, stop)."""
    epoch, unit, start, stop = place
    vector = dense.state_copy().vector
    planned = job.train.epochs * sum(samples.units)
    scale = job.train.schedule.factor(dense.samples_applied() + job.train.batch_size, planned)
    sums: dict[tuple[int, int], Float32] = {}
    gradient, buffers = np.zeros(PARAMETERS, np.float32), list[tuple[int, np.float32]]()
    loss_sum, trained = 0.0, 0
    for micro, (first, last) in enumerate(_micro_batches(start, stop, job.train.micro_batches)):
        batch_of = samples.batch(unit, first, last)
        learned = Learned(0.0, np.zeros(0, np.float32), np.zeros(PARAMETERS, np.float32), vector[2])
        if batch_of.size and (number, micro) not in left_out:
            items = samples.items(unit, batch_of.start, batch_of.stop)
            weights = np.array([rows.setdefault(item, Row()).weights for item in items], np.float32)
            learned = learn(samples, batch_of, weights, vector)
            share = np.float32(batch_of.size / (stop - start))
            for (item, count), value in zip(items.items(), learned.values, strict=True):
                line = np.array([1 << micro, number, count, value * share], np.float32)
                sums[item] = line if item not in sums else sums[item] + line
            loss_sum += learned.loss * batch_of.size
            trained += batch_of.size
            gradient = gradient + learned.gradient * share if micro else learned.gradient * share
            buffers.append((batch_of.size, learned.buffer))
        else:
            buffers.append((0, learned.buffer))
    pushed = np.empty(PARAMETERS + 1, np.float32)
    pushed[:PARAMETERS], pushed[PARAMETERS] = gradient, buffers[0][1]
    if len(buffers) > 1 and trained:
        pushed[PARAMETERS] = sum(count / trained * float(value) for count, value in buffers)
    applied: dict[tuple[int, int], tuple[tuple[float, ...], bytes]] = {}
    for item, line in sums.items():
        rows[item].update(line, scale)
        applied[item] = rows[item].updates[-1], rows[item].weights.tobytes()
    optimizer = job.train.optimizer_dense
    dense.apply_gradient(
        pushed,
        DenseOptimizerSpec(
            optimizer.name,
            optimizer.lr,
            optimizer.beta1,
            optimizer.beta2,
            optimizer.eps,
            optimizer.weight_decay,
            optimizer.momentum,
        ),
        scale,
        worker=0,
        incarnation=1,
        sequence=number,
        lease_id=1,
        stop=stop,
        samples=trained,
        skipped=stop - start - trained,
    )
    after = dense.state_copy()
    return TwinStep(epoch, unit, start, stop, trained, loss_sum, applied, after.vector.tobytes(), after.state.tobytes())


assert WIDTH == 4, "a line is (source, batch_number, samples, value)"
