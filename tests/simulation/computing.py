"""The toy samples and the toy model that simulated workers train. Each number is a function of its inputs.

A gradient line is (source, batch_number, samples, value). Async: source = worker and incarnation, batch_number = its
sequence number. Sync: source = a bit for the micro-batch, batch_number = the step; the sum of a step's sources has a
bit for each of its micro-batches. `value` depends on the pulled rows and the dense vector, so that one wrong row
changes all later values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.batches import batch_stop
from elastichost.config.job import JobSpec
from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.remote import RemoteRate
from elastichost.datasets.sources.control import InputControl
from elastichost.plan import ProcessId
from elastichost.sharding import bucket_count, mix64, rows_per_bucket
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.wire.child import ChildArguments
from elastichost.wire.facts import Lease
from elastichost.worker.access.key_dedup import UniqueKeys
from elastichost.worker.access.residence import ArenaResidence
from elastichost.worker.access.row_channels import PullChannel, PushChannel, RowCutter
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import NOTHING_PULLED, PulledRows
from elastichost.worker.access.served_rows import KeyedBatch
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.commit.dense_transport import ReceivedParameters
from elastichost.worker.commit.direct_commit import DirectCommit
from elastichost.worker.commit.lease_commit import ModelCommit
from elastichost.worker.commit.served_commit import ServedCommit
from elastichost.worker.commit.strategy import CommitStrategy
from elastichost.worker.commit.sync_commit import SyncCommit
from elastichost.worker.model.weight_gradient import BackwardPass
from elastichost.worker.pipeline import PREFETCH_PULLED, LeaseFinished
from elastichost.worker.setup import WorkerParts
from elastichost.worker.steps.batch_step import EagerStep
from tests.simulation.memory import ARENA, SimArena
from tests.simulation.rows import WIDTH, RowBook
from tests.simulation.world import active

__all__ = [
    "DENSE",
    "MODEL",
    "Learned",
    "Samples",
    "SimParts",
    "SimPipeline",
    "build_parts",
    "build_sync_parts",
    "learn",
    "line_identity",
]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

PARAMETERS, ELEMENTS = 2, 3
INCARNATIONS = 4096  # `source` = worker * INCARNATIONS + incarnation


def _model() -> ModelSpec:
    """A table with four buckets and a table with one bucket."""
    tables = (TableSpec("big", 0, ("a",), "int", rows=4096), TableSpec("small", 1, ("b",), "int", rows=100))
    embeddings = tuple(
        EmbeddingSpec(t.name, t.index, t.index, "m", "bag", t.features, WIDTH, "sum", RowOptimizerSpec(), -0.5, 0.5)
        for t in tables
    )
    return ModelSpec(tables, embeddings, DenseSpec((), PARAMETERS, ELEMENTS), 0, 1)


MODEL = _model()
DENSE = np.array([0.25, -0.5, 1.0], np.float32)


# --- samples ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """The data set. bad_percent: share of rows that cannot be read. poison: (unit, position) that kills the worker that
    trains it: at once, or at the next crash point named `poison_point` if that is not ""."""

    units: tuple[int, ...]
    seed: int = 0
    bad_percent: int = 0
    poison: frozenset[tuple[int, int]] = frozenset()
    poison_point: str = ""

    def good(self, unit: int, start: int, stop: int) -> list[int]:
        """The positions of a range that can be read."""
        return [p for p in range(start, stop) if (self._hash(unit, p) >> 24) % 100 >= self.bad_percent]

    def is_good(self, unit: int, position: int) -> bool:
        return bool(self.good(unit, position, position + 1))

    def _hash(self, unit: int, position: int) -> int:
        return mix64(mix64(self.seed ^ (unit << 20)) + position)

    def items(self, unit: int, start: int, stop: int) -> dict[tuple[int, int], int]:
        """(table, row) of the good samples, in the order of frames -> number of samples that have it."""
        counts: dict[tuple[int, int], int] = {}
        for position in self.good(unit, start, stop):
            draw = self._hash(unit, position)
            for table in MODEL.tables:
                of_bucket = rows_per_bucket(table)
                row = (draw >> 8) % bucket_count(table) * of_bucket + (draw >> 12) % 2
                counts[table.index, row] = counts.get((table.index, row), 0) + 1
        return dict(sorted(counts.items()))

    def batch(self, unit: int, start: int, stop: int) -> SampleBatch:
        size, nothing = len(self.good(unit, start, stop)), np.zeros(0, np.float32)
        keys, lengths = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return SampleBatch(unit, start, stop, size, stop - start - size, nothing, keys, lengths, nothing)


def keys_of(items: dict[tuple[int, int], int]) -> tuple[Int64, Int64]:
    """Keys, which equal row numbers, table after table, and the bounds of the tables."""
    keys = np.array([row for _, row in items], np.int64)
    counts = [sum(table == t.index for table, _ in items) for t in MODEL.tables]
    return keys, np.cumsum([0, *counts]).astype(np.int64)


# --- the model ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """Results of one batch: loss; value of each item's line, float32 [n]; gradient, float32 [2]; new value of the
    buffer."""

    loss: float
    values: Float32
    gradient: Float32
    buffer: np.float32


def learn(samples: Samples, batch: SampleBatch, weights: Float32, dense: Float32) -> Learned:
    """Computes one batch. weights: float32 [n, WIDTH] of its items. dense: float32 [3]."""
    draw = np.float32((samples._hash(batch.unit, batch.start) % 1000) / 997)
    hidden = np.float32(0.0)
    for value in weights[:, 3].tolist():
        hidden = np.float32(hidden * np.float32(0.7) + np.float32(value))
    hidden = np.float32(hidden + dense[0] * np.float32(0.3) + dense[1] * np.float32(0.2) + draw)
    values = (np.arange(1, len(weights) + 1, dtype=np.float32) * hidden * np.float32(0.013)).astype(np.float32)
    gradient = np.array([hidden * np.float32(0.11), draw * dense[2]], np.float32)
    return Learned(float(abs(hidden)) + 0.1, values, gradient, np.float32(dense[2] * np.float32(0.9) + hidden * draw))


def line_identity(worker: int, incarnation: int) -> float:
    return float(worker * INCARNATIONS + incarnation)


# --- a worker's parts -----------------------------------------------------------------------------------------------


class SimFlat:
    """Stands for `worker.model.dense_vector.FlatDense`."""

    def __init__(self) -> None:
        self.values: Float32 = np.zeros(ELEMENTS, np.float32)
        self.gradient: Float32 = np.zeros(PARAMETERS, np.float32)
        self.backward_pass = BackwardPass()

    def loaded(self) -> None:
        """Computes with `values` as the dense vector."""

    def zero_gradients(self) -> None:
        self.gradient[:] = 0.0

    @property
    def has_finite_gradients(self) -> bool:
        return bool(np.isfinite(self.gradient).all())

    def write_into(self, out: Float32) -> None:
        """Does nothing: `write_push` copies everything."""

    def write_push(self, out: Float32) -> None:
        out[:PARAMETERS], out[PARAMETERS:] = self.gradient, self.values[PARAMETERS:]


class SimLookup:
    """Stands for `worker.access.served.ServedLookup` and `worker.access.direct.DirectLookup`."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.sums: Float32 = np.zeros(0, np.float32)

    def load(self, pulled: PulledRows, sums: Float32) -> None:
        self.sums = sums

    def set_learning_rate_scale(self, scale: float) -> None:
        self.scale = scale


class SimLoss:
    """A loss value with its gradients."""

    def __init__(self, value: float, backward: Callable[[float], None], share: float = 1.0) -> None:
        self._value, self._backward, self._share = value, backward, share

    def item(self) -> float:
        return self._value

    def __mul__(self, share: float) -> SimLoss:
        return SimLoss(self._value, self._backward, share)

    def backward(self) -> None:
        self._backward(self._share)


class SimRunner:
    """Stands for `worker.steps.model_runner.ModelRunner`."""

    def __init__(self, parts: SimParts) -> None:
        self._parts = parts
        self.warnings: list[str] = []

    def train(self, is_training: bool) -> None:
        """Does nothing: the model is always in training mode."""

    def loss(self, batch: PreparedBatch) -> SimLoss:
        world, parts = active(), self._parts
        world.sleep(parts.compute_s * (0.3 + world.random.random()))
        made = batch.samples
        if any((made.unit, p) in parts.samples.poison for p in parts.samples.good(made.unit, made.start, made.stop)):
            world.note("is poisoned")
            if not parts.samples.poison_point:
                world.kill(world.running)
            world.running.dies_at[parts.samples.poison_point] = 1
        items = parts.samples.items(made.unit, made.start, made.stop)
        weights = np.zeros((len(items), WIDTH), np.float32)
        if parts.loaded:
            weights = batch.pulled.weights.reshape(-1, WIDTH)
        learned = learn(parts.samples, made, weights, parts.flat.values)
        parts.flat.values[PARAMETERS:] = learned.buffer  # like a running mean that the forward pass updates
        source, batch_number = parts.identity(batch)

        def backward(share: float) -> None:
            parts.flat.gradient[:] = learned.gradient * np.float32(share)
            lines = np.zeros((len(items), WIDTH), np.float32)
            lines[:, 0], lines[:, 1], lines[:, 2] = source, batch_number, list(items.values())
            lines[:, 3] = learned.values * np.float32(share)
            if parts.loaded:
                parts.lookup.sums.reshape(-1, WIDTH)[:] = lines
                return
            book = world.book
            assert isinstance(book, RowBook)
            for number, item in enumerate(items):
                if number == len(items) // 2:
                    world.crash_point("worker.batch.midway")
                book.row(*item).update(lines[number], parts.lookup.scale)

        return SimLoss(learned.loss, backward)


class SimRows:
    """Stands for `worker.access.rows.RowPreparer`."""

    batches_ahead = PREFETCH_PULLED

    def __init__(self, samples: Samples, channel: PullChannel, *, served: bool) -> None:
        self.channel = channel
        self._samples, self._served = samples, served

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        if not self._served:
            return self._prepared(batch, lease_id, epoch, NOTHING_PULLED)
        keyed = self.find_keys(batch, lease_id)
        unique = keyed.unique
        pulled = self.channel.pull(unique.keys, unique.bounds, weights=True, create=create, clock=clock)
        return self.with_rows(keyed, pulled, epoch=epoch, lookup_s=0.0)

    def find_keys(self, batch: SampleBatch, tag: int) -> KeyedBatch:
        keys, bounds = keys_of(self._samples.items(batch.unit, batch.start, batch.stop))
        shape: Any = None
        return KeyedBatch(batch, tag, UniqueKeys(keys, bounds, np.zeros(0, np.int64)), shape, 0.0)

    def with_rows(self, keyed: KeyedBatch, pulled: PulledRows, *, epoch: int, lookup_s: float) -> PreparedBatch:
        return self._prepared(keyed.samples, keyed.tag, epoch, pulled)

    def _prepared(self, batch: SampleBatch, lease_id: int, epoch: int, pulled: PulledRows) -> PreparedBatch:
        nothing = np.zeros(0, np.int64)
        return PreparedBatch(batch, lease_id, epoch, nothing, nothing, nothing, [], pulled, 0.0)


class SimPipeline:
    """Stands for `worker.pipeline.Pipeline`, without its thread: a batch is read and pulled when it is requested."""

    def __init__(
        self,
        reader: Samples,
        units: tuple[Unit, ...],
        batch_size: int,
        prepare: Callable[[SampleBatch, Lease], Any],
        ahead: int = 1,
        remote: RemoteRate | None = None,
        control: object = None,
        orders: object = None,
    ) -> None:
        self._samples, self._batch_size, self._prepare = reader, batch_size, prepare
        self._leases: deque[Lease] = deque()
        self._reading: tuple[Lease, int] | None = None
        self._generation = 0

    def add(self, lease: Lease, shuffle_seed: int | None) -> None:
        self._leases.append(lease)

    def get(self, timeout_s: float) -> Any:
        if self._reading is None:
            if not self._leases:
                active().sleep(timeout_s)
                return None
            lease = self._leases.popleft()
            self._reading = lease, lease.start
        lease, at = self._reading
        if at == lease.stop:
            self._reading = None
            return LeaseFinished(lease)
        stop, generation = min(batch_stop(at, lease.stop, self._batch_size), lease.stop), self._generation
        self._reading = lease, stop
        prepared = self._prepare(self._samples.batch(lease.unit, at, stop), lease)
        return prepared if generation == self._generation else None

    @property
    def leases_waiting(self) -> int:
        return len(self._leases)

    def take_read_s(self) -> float:
        return 0.0

    def take_stages(self) -> tuple[()]:
        return ()

    @property
    def is_idle(self) -> bool:
        return not self._leases and self._reading is None

    def discard(self) -> None:
        self._generation += 1
        self._leases.clear()
        self._reading = None

    def close(self) -> None:
        self.discard()


class SimParts:
    """Stands for `worker.setup.WorkerParts`; strategies and channels are the real ones."""

    take_traffic, rate_factor = WorkerParts.take_traffic, WorkerParts.rate_factor

    def __init__(
        self, arguments: ChildArguments, job: JobSpec, samples: Samples, holder: DirectoryHolder, pump: Pump
    ) -> None:
        self.job, self.samples, self.device = job, samples, SimpleNamespace(type="cpu")
        self._process: ProcessId = arguments.process
        arena: Any = SimArena.attach(ARENA)
        self.arena, served = arena, arguments.access == "served"
        self.flat, self.lookup = SimFlat(), SimLookup()
        self.loaded = (self.lookup,) if served else ()
        self.watermarks = Watermarks(ARENA)  # type: ignore[arg-type]
        self.strategy = self._strategy(holder, pump, served)
        runner: Any = SimRunner(self)
        flat: Any = self.flat
        self.runner, self.step = runner, EagerStep(runner, flat)
        self.train_reader, self.test_reader, self.input = samples, None, InputControl()
        self.readers = None
        self.residence = ArenaResidence(ARENA)  # type: ignore[arg-type]
        self.train_description = description(samples)
        self.train_rows = SimRows(samples, PullChannel(holder, MODEL, pump=pump), served=served)
        self.test_rows = self.train_rows
        self.compute_s = active().compute_s

    def _strategy(self, holder: DirectoryHolder, pump: Pump, served: bool) -> CommitStrategy:
        flat: Any = self.flat
        lookups: Any = (self.lookup,)
        if not served:
            return DirectCommit(holder, pump, flat, DenseStore(self.arena), self.watermarks, lookups)
        cutter = RowCutter(MODEL, [rows_per_bucket(table) for table in MODEL.tables])
        if self.job.train.mode == "sync":
            return SyncCommit(holder, pump, flat, MODEL.dense, cutter, lookups)
        return ServedCommit(holder, pump, flat, ReceivedParameters(flat), PushChannel(holder, cutter, pump), lookups)

    def identity(self, batch: PreparedBatch) -> tuple[float, float]:
        """`source` and `batch_number` of the lines of this batch."""
        if isinstance(self.strategy, ModelCommit):
            own = line_identity(self._process.index, self._process.incarnation)
            return own, float(self.strategy.next_sequence)
        return float(1 << (batch.lease_id & 255)), float(batch.lease_id >> 8)


def description(samples: Samples) -> DatasetDescription:
    starts = np.cumsum([0, *samples.units]).tolist()
    units = tuple(Unit(i, starts[i], count, 0, i) for i, count in enumerate(samples.units))
    return DatasetDescription(sum(samples.units), units, ("simulated",), {}, (), 0, 1)


def build_parts(
    arguments: ChildArguments, job: JobSpec, holder: DirectoryHolder, pump: Pump, waiting: object
) -> SimParts:
    """Stands for `worker.setup.build_parts` and `build_sync_parts`. It takes a while, like building a model."""
    world = active()
    world.sleep(0.01 + 0.05 * world.random.random())
    samples = world.samples
    assert isinstance(samples, Samples)
    return SimParts(arguments, job, samples, holder, pump)


build_sync_parts = build_parts
