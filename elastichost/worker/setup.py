"""Builds what a worker trains with: the user's model with lookups in the arena, the readers, channels and strategy.

This is the only module that looks at the access mode. The access mode selects the lookups of the model, the class
that turns a batch's ids into rows, and the commit strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.optimizer import dense_optimizer
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.config.job import JobSpec
from elastichost.datasets import Split, open_reader
from elastichost.datasets.api import DatasetDescription, Reader
from elastichost.datasets.files import read_pinned
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.settings import decoded_directory, first_knobs
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.errors import ConfigError
from elastichost.gpu.availability import is_interpreted
from elastichost.plan import Access
from elastichost.sharding import rows_per_bucket
from elastichost.specs import EmbeddingSpec
from elastichost.user_model.build import build_model
from elastichost.wire.child import ChildArguments
from elastichost.worker.access.direct import DirectLookup
from elastichost.worker.access.direct_rows import DirectRowPreparer
from elastichost.worker.access.mixed import MixedLookup
from elastichost.worker.access.mixed_rows import MixedRowPreparer
from elastichost.worker.access.residence import ArenaResidence, ModelResidence
from elastichost.worker.access.row_channels import PullChannel, PushChannel, RowCutter
from elastichost.worker.access.rows import RowPreparer
from elastichost.worker.access.served import ServedLookup
from elastichost.worker.access.served_rows import ServedRowPreparer
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.commit.dense_transport import HeldParameters, MappedParameters, ReceivedParameters
from elastichost.worker.commit.device_commit import DeviceCommit, ResidentParameters
from elastichost.worker.commit.direct_commit import DirectCommit
from elastichost.worker.commit.lease_commit import ModelCommit
from elastichost.worker.commit.mixed_commit import MixedCommit
from elastichost.worker.commit.served_commit import ServedCommit
from elastichost.worker.commit.strategy import CommitStrategy
from elastichost.worker.commit.sync_commit import SyncCommit
from elastichost.worker.gpu.arena_memory import reason_against
from elastichost.worker.model.dense_vector import FlatDense
from elastichost.worker.model.device import choose_device, share_gpu_memory
from elastichost.worker.model.embedding import CollectionLookup, meta_collections, replace_collections, table_rows
from elastichost.worker.model.fusion import fuse_modules, interacting_collections, layer_precision
from elastichost.worker.readers.pool import ReaderPool
from elastichost.worker.source_requests import ThreadRequests
from elastichost.worker.steps.batch_step import BatchStep, EagerStep
from elastichost.worker.steps.model_runner import ModelRunner

if TYPE_CHECKING:
    from elastichost.worker.gpu.resident_model import ResidentModel

__all__ = ["LeaseParts", "SyncParts", "WorkerParts", "build_parts", "build_sync_parts"]

Strategy = TypeVar("Strategy", bound=CommitStrategy)
Rows = TypeVar("Rows", bound=RowPreparer)
Lookup = TypeVar("Lookup", bound=CollectionLookup)
PreparerArguments = tuple[Arena, tuple[str, ...], tuple[str, ...], PullChannel]  # arguments of a RowPreparer


@dataclass(frozen=True, slots=True)
class WorkerParts(Generic[Strategy, Rows]):
    """Everything a worker needs after Hello. loaded: the lookups that need the pulled rows of each batch (`load`);
    empty with direct access."""

    job: JobSpec
    arena: Arena
    watermarks: Watermarks
    device: torch.device
    runner: ModelRunner
    flat: FlatDense
    step: BatchStep
    strategy: Strategy
    loaded: tuple[ServedLookup | MixedLookup, ...]
    train_reader: Reader
    train_description: DatasetDescription
    test_reader: Reader | None
    test_description: DatasetDescription | None
    train_rows: Rows
    test_rows: RowPreparer
    residence: ModelResidence
    input: InputControl  # of `train_reader`
    readers: ReaderPool | None  # `train_reader`, if other processes read for this worker

    def rate_factor(self, samples: int) -> float:
        """The factor of the learning rates for a batch that ends with this sample, by `train.schedule`."""
        return self.job.train.schedule.factor(samples, self.train_description.samples * self.job.train.epochs)

    def take_traffic(self) -> tuple[int, int]:
        """(bytes sent, bytes received) in frames since the last call."""
        sent = received = 0
        for channel in (*self.strategy.channels, self.train_rows.channel):
            traffic = channel.traffic
            sent, received = sent + traffic.sent, received + traffic.received
            traffic.sent = traffic.received = 0
        return sent, received


LeaseParts = WorkerParts[ModelCommit, RowPreparer]
SyncParts = WorkerParts[SyncCommit, ServedRowPreparer]


def build_parts(
    arguments: ChildArguments, job: JobSpec, holder: DirectoryHolder, pump: Pump, waiting: RequestPolicy = BEFORE_RUN
) -> LeaseParts:
    """The parts of a worker that trains leases. Raises ModelError, DataError, ArenaError, and what `waiting` raises."""
    build: dict[Access, Callable[[_PartsBuilder], LeaseParts]] = {"direct": _direct, "served": _served, "mixed": _mixed}
    return build[arguments.access](_PartsBuilder(arguments, job, holder, pump, waiting))


def build_sync_parts(
    arguments: ChildArguments, job: JobSpec, holder: DirectoryHolder, pump: Pump, waiting: RequestPolicy = BEFORE_RUN
) -> SyncParts:
    """The parts of a worker in sync mode, where access is always served. Raises as `build_parts`."""
    builder = _PartsBuilder(arguments, job, holder, pump, waiting)
    flat, lookups = builder.swap(builder.served_lookup)
    strategy = SyncCommit(holder, pump, flat, builder.model.dense, builder.cutter(), lookups)
    pull = PullChannel(holder, builder.model, name="rows", pump=pump)  # used by the thread that trains
    train_rows = ServedRowPreparer(builder.arena, builder.features, builder.train_description.files, pull)
    test_rows = ServedRowPreparer(*builder.test_source())
    return builder.parts(flat, strategy, lookups, train_rows, test_rows)


def _direct(builder: _PartsBuilder) -> LeaseParts:
    if builder.uses_rows_on_gpu():
        return _on_gpu(builder)
    flat, lookups = builder.swap(builder.direct_lookup)
    dense = DenseStore(builder.arena)
    strategy = DirectCommit(builder.holder, builder.pump, flat, dense, builder.watermarks, lookups)
    train_rows, test_rows = (DirectRowPreparer(*of) for of in (builder.train_source(), builder.test_source()))
    return builder.parts(flat, strategy, (), train_rows, test_rows)


def _on_gpu(builder: _PartsBuilder) -> LeaseParts:
    """Direct access by the GPU. The modules are imported here: they need Triton."""
    from elastichost.gpu.lookup import DeviceLookup
    from elastichost.gpu.step import StepSwitches
    from elastichost.worker.gpu.arena_memory import ArenaMemory
    from elastichost.worker.gpu.trainer import DeviceTrainer

    worker = builder.holder.caller.process.index
    memory = ArenaMemory(builder.arena, worker, builder.device)
    dense = DenseStore(builder.arena)
    resident = builder.resident_model(dense)
    switches = StepSwitches.allocate(builder.device)

    def lookup(embeddings: Sequence[EmbeddingSpec]) -> DeviceLookup:
        placement = memory.placement(embeddings) if resident is None else resident.placement(embeddings)
        return DeviceLookup(embeddings, placement, switches.rate_scale, switches.is_refused)

    # in Triton's interpreter the layers stay torch's: those for the CPU write gradients to places of their own
    flat, lookups = builder.swap(lookup, fuses_layers=builder.device.type == "cuda")
    how = builder.holder, builder.pump, flat, dense, builder.watermarks, lookups
    if resident is None:
        strategy = DirectCommit(*how)
    else:
        strategy = DeviceCommit(*how, ResidentParameters(flat, dense, resident.restore))
    train_rows, test_rows = (DirectRowPreparer(*of) for of in (builder.train_source(), builder.test_source()))
    builder.sparse_device = builder.device
    runner = builder.runner()
    step = DeviceTrainer(
        runner,
        flat,
        dense,
        worker,
        switches,
        batch_size=builder.job.train.batch_size,
        most_rows=max(builder.arena.layout.row_space(table.index) for table in builder.model.tables),
        resident=None if resident is None else resident.dense_part(flat, dense_optimizer(builder.job), switches),
    )
    return builder.parts(flat, strategy, (), train_rows, test_rows, runner, step, resident)


def _served(builder: _PartsBuilder) -> LeaseParts:
    flat, lookups = builder.swap(builder.served_lookup)
    how = (flat, ReceivedParameters(flat), builder.push(), lookups)
    strategy = ServedCommit(builder.holder, builder.pump, *how)
    train_rows, test_rows = (ServedRowPreparer(*of) for of in (builder.train_source(), builder.test_source()))
    return builder.parts(flat, strategy, lookups, train_rows, test_rows)


def _mixed(builder: _PartsBuilder) -> LeaseParts:
    flat, lookups = builder.swap(builder.mixed_lookup)
    # The dense vector lies in the arena of host 0.
    is_here = builder.host == 0
    parameters = MappedParameters(flat, DenseStore(builder.arena)) if is_here else HeldParameters(flat)
    how = (flat, parameters, builder.push(), builder.watermarks, lookups)
    strategy = MixedCommit(builder.holder, builder.pump, *how)
    sources = builder.train_source(), builder.test_source()
    train_rows, test_rows = (MixedRowPreparer(*of, builder.host) for of in sources)
    return builder.parts(flat, strategy, lookups, train_rows, test_rows)


class _PartsBuilder:
    """Builds the parts that all kinds of access share."""

    def __init__(
        self, arguments: ChildArguments, job: JobSpec, holder: DirectoryHolder, pump: Pump, waiting: RequestPolicy
    ) -> None:
        self.job, self.host, self.holder, self.pump = job, arguments.host, holder, pump
        self.device, self._gpu = choose_device(arguments), arguments.gpu
        self._gpu_share = arguments.gpu_memory_fraction
        self.sparse_device = torch.device("cpu")
        arena_directory = Path(arguments.arena_directory)
        self.arena = Arena.attach(arena_directory)
        self.watermarks = Watermarks(arena_directory)
        model = self.model = self.arena.model
        with meta_collections():
            self._module = build_model(
                job, model.tables, table_rows(model.tables), model.num_dense_features, model.num_labels
            )
        self.features = tuple(job.data.categorical)
        self.input = InputControl(first_knobs(job.data.input), shared=decoded_directory(arena_directory))
        self._files = read_pinned(Path(arguments.run_dir))
        self.readers = self._pool(arguments, waiting)
        self._train_reader: Reader = self.readers or self._opened("train", control=self.input, waiting=waiting)
        self.train_description = self._train_reader.describe()
        self._test_reader = self._opened("test", waiting=waiting) if job.data.has_test else None
        self._test_description = self._test_reader.describe() if self._test_reader is not None else None

    def _pool(self, arguments: ChildArguments, waiting: RequestPolicy) -> ReaderPool | None:
        """The reader processes of this worker; None: it reads itself."""
        if self.job.data.input.reader_count(has_gpu=arguments.gpu is not None, spare_cores=0) == 0:
            return None
        described = self._opened("train", waiting=waiting)
        # A batch with which a reader was lost is read in the thread that reads ahead.
        own = partial(self._opened, "train", waiting=ThreadRequests(self.job.data.input, self.input.tell))
        return ReaderPool(arguments.socket_directory, arguments.index, described, own, self.input)

    def _opened(self, split: Split, *, waiting: RequestPolicy, control: InputControl | None = None) -> Reader:
        """The reader of the files with which the run began."""
        return open_reader(self.job, split, pinned=self._files, control=control, waiting=waiting)

    def direct_lookup(self, embeddings: Sequence[EmbeddingSpec]) -> DirectLookup:
        return DirectLookup(self.arena, embeddings, self.device)

    def served_lookup(self, embeddings: Sequence[EmbeddingSpec]) -> ServedLookup:
        return ServedLookup(embeddings, self.device, self.model.sequence_features)

    def mixed_lookup(self, embeddings: Sequence[EmbeddingSpec]) -> MixedLookup:
        return MixedLookup(self.arena, embeddings, self.device)

    def swap(
        self, make: Callable[[Sequence[EmbeddingSpec]], Lookup], *, fuses_layers: bool = True
    ) -> tuple[FlatDense, tuple[Lookup, ...]]:
        """Replaces the collections of the user's model by lookups, and its layers by fused ones if `fuses_layers`.
        Returns (its dense part, the lookups)."""
        paths = list(dict.fromkeys(e.module for e in self.model.embeddings))
        lookups = {path: make([e for e in self.model.embeddings if e.module == path]) for path in paths}
        replace_collections(self._module, lookups)
        if self.job.model.fused:
            fuse_modules(self._module)
            self._narrow(lookups)
        precision = layer_precision(self.job) if fuses_layers else None
        return FlatDense(self._module, self.model.dense, self.device, precision), tuple(lookups.values())

    def _narrow(self, lookups: Mapping[str, CollectionLookup]) -> None:
        """Lets collections of a fused interaction give bfloat16, where the job computes in it."""
        if self.job.train.precision == "bfloat16":
            for path in interacting_collections(self._module):
                narrow = getattr(lookups.get(path), "narrow_pooled", None)
                if narrow is not None:
                    narrow()

    def train_source(self) -> PreparerArguments:
        """Arguments of the row preparer for training, which the prefetch thread uses."""
        return self.arena, self.features, self.train_description.files, PullChannel(self.holder, self.model)

    def test_source(self) -> PreparerArguments:
        """Arguments of the row preparer for evaluations, which the training thread uses."""
        files = self._test_description.files if self._test_description is not None else ()
        return self.arena, self.features, files, PullChannel(self.holder, self.model, name="test", pump=self.pump)

    def cutter(self) -> RowCutter:
        layout, tables = self.arena.layout, self.model.tables
        rows = [layout.bucket_capacity(table.index) if table.is_dynamic else rows_per_bucket(table) for table in tables]
        return RowCutter(self.model, rows)

    def push(self) -> PushChannel:
        return PushChannel(self.holder, self.cutter(), self.pump)

    def uses_rows_on_gpu(self) -> bool:
        """Whether the GPU of this process reads and updates rows in place. Says why not, when there is a GPU. In
        Triton's interpreter the CPU stands for the GPU."""
        if self._gpu is None or (self.device.type != "cuda" and not is_interpreted()):
            return False
        reason = reason_against(self.model)
        if reason and self.job.resources.model_memory == "gpu":
            raise ConfigError(
                f'resources.model_memory is "gpu", but {reason}',
                hint='set resources.model_memory = "host", or change the table',
            )
        if reason:
            print(f"rows are looked up on the CPU: {reason}", flush=True)
        return not reason

    def resident_model(self, dense: DenseStore) -> ResidentModel | None:
        """Rows in memory of this process' GPU; None: they stay in the arena. Raises GpuMemoryError, ModelLostError."""
        if self.job.resources.model_memory != "gpu":
            return None
        from elastichost.worker.gpu.resident_model import ResidentModel

        rows = ResidentModel(self.arena, dense, self.device, self.pump)
        share_gpu_memory(self.device, self._gpu_share, rows.device_bytes)
        return rows

    def runner(self) -> ModelRunner:
        job = self.job
        how = (job.model.outputs, self.device, job.train.precision, self.sparse_device)
        return ModelRunner(self._module, self.features, *how)

    def parts(
        self,
        flat: FlatDense,
        strategy: Strategy,
        loaded: tuple[ServedLookup | MixedLookup, ...],
        train_rows: Rows,
        test_rows: RowPreparer,
        runner: ModelRunner | None = None,
        step: BatchStep | None = None,
        residence: ModelResidence | None = None,
    ) -> WorkerParts[Strategy, Rows]:
        runner = runner if runner is not None else self.runner()
        return WorkerParts(
            job=self.job,
            arena=self.arena,
            watermarks=self.watermarks,
            device=self.device,
            runner=runner,
            flat=flat,
            step=step if step is not None else EagerStep(runner, flat),
            strategy=strategy,
            loaded=loaded,
            train_reader=self._train_reader,
            train_description=self.train_description,
            test_reader=self._test_reader,
            test_description=self._test_description,
            train_rows=train_rows,
            test_rows=test_rows,
            residence=residence if residence is not None else ArenaResidence(self.arena.directory),
            input=self.input,
            readers=self.readers,
        )
