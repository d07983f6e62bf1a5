"""Building what a worker trains with: the user's model swapped onto the arena, its readers, its channels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.config.job import JobSpec
from elastichost.datasets import open_reader
from elastichost.datasets.api import DatasetDescription, Reader
from elastichost.sharding import rows_per_bucket
from elastichost.user_model.build import build_model
from elastichost.wire.child import ChildArguments
from elastichost.worker.access.direct import DirectLookup
from elastichost.worker.access.mixed import MixedLookup
from elastichost.worker.access.row_channels import PullChannel, PushChannel, RowCutter
from elastichost.worker.access.rows import RowPreparer
from elastichost.worker.access.served import GradientSums, ServedLookup
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.commit.committer import Committer
from elastichost.worker.model.dense_vector import FlatDense
from elastichost.worker.model.device import choose_device
from elastichost.worker.model.embedding import meta_collections, replace_collections, table_rows
from elastichost.worker.model.fusion import fuse_modules
from elastichost.worker.step import ModelRunner

__all__ = ["WorkerParts", "build_parts"]


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """Everything a worker needs after Hello. direct: lookups that update rows in place; served: those that rows have to
    be loaded into. With mixed access all are both, else one of the two is empty."""

    job: JobSpec
    arena: Arena
    watermarks: Watermarks
    device: torch.device
    runner: ModelRunner
    committer: Committer
    push: PushChannel
    cutter: RowCutter
    direct: tuple[DirectLookup, ...]
    served: tuple[ServedLookup | MixedLookup, ...]
    sums: GradientSums
    train_reader: Reader
    train_description: DatasetDescription
    test_reader: Reader | None
    test_description: DatasetDescription | None
    train_rows: RowPreparer
    test_rows: RowPreparer


def build_parts(arguments: ChildArguments, job: JobSpec, holder: DirectoryHolder, pump: Pump) -> WorkerParts:
    """Raises ModelError, DataError, ArenaError."""
    device = choose_device(arguments)
    arena_directory = Path(arguments.arena_directory)
    arena = Arena.attach(arena_directory)
    model = arena.model
    is_served, is_mixed = arguments.access == "served", arguments.access == "mixed"
    with meta_collections():
        module = build_model(job, model.tables, table_rows(model.tables), model.num_dense_features, model.num_labels)
    paths = list(dict.fromkeys(e.module for e in model.embeddings))
    of_path = {path: [e for e in model.embeddings if e.module == path] for path in paths}
    mixed = {path: MixedLookup(arena, of_path[path], device) for path in paths if is_mixed}
    served = {path: ServedLookup(of_path[path], device, model.sequence_features) for path in paths if is_served}
    direct = {path: DirectLookup(arena, of_path[path], device) for path in paths if not (is_served or is_mixed)}
    replace_collections(module, {**direct, **served, **mixed})
    if job.model.fused:
        fuse_modules(module)
    flat = FlatDense(module, model.dense, device)
    # The dense vector lies in the arena of host 0.
    dense = None if is_served or arguments.host != 0 else DenseStore(arena)
    bucket_rows = [
        arena.layout.bucket_capacity(table.index) if table.is_dynamic else rows_per_bucket(table)
        for table in model.tables
    ]
    cutter = RowCutter(model, bucket_rows)
    push = PushChannel(holder, cutter, pump)
    rows = push if is_served or is_mixed else None
    committer = Committer(holder, flat, dense, model.dense.elements, pump, rows)
    features = tuple(job.data.categorical)
    train_reader = open_reader(job, "train")
    train_description = train_reader.describe()
    test_reader = open_reader(job, "test") if _has_test(job) else None
    test_description = test_reader.describe() if test_reader is not None else None
    pull = PullChannel(holder, model)
    test_pull = PullChannel(holder, model, name="test", pump=pump)
    test_files = test_description.files if test_description is not None else ()
    host = arguments.host if is_mixed else None
    return WorkerParts(
        job=job,
        arena=arena,
        watermarks=Watermarks(arena_directory),
        device=device,
        runner=ModelRunner(module, features, job.model.outputs, device),
        committer=committer,
        push=push,
        cutter=cutter,
        direct=(*direct.values(), *mixed.values()),
        served=(*served.values(), *mixed.values()),
        sums=GradientSums(),
        train_reader=train_reader,
        train_description=train_description,
        test_reader=test_reader,
        test_description=test_description,
        train_rows=RowPreparer(arena, features, train_description.files, pull, served=is_served, host=host),
        test_rows=RowPreparer(arena, features, test_files, test_pull, served=is_served, host=host),
    )


def _has_test(job: JobSpec) -> bool:
    return bool(job.data.test) or job.data.format == "synthetic"
