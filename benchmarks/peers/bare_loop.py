"""elastichost's reader and kernels without its runtime: one process, a prefetch thread, torch's Adam.

This is the loop that a user would write around the same parts: no supervisor, no PS, no ledger, no leases, no metering.
The difference to the speed of one elastichost worker is the cost of the runtime.
"""

from __future__ import annotations

import os
import queue
import threading
from itertools import count
from pathlib import Path
from typing import cast

import torch
from torch import nn

from benchmarks.peers.common import Counter, PeerSettings
from benchmarks.peers.torch_parts import adam
from elastichost.arena.arena import Arena
from elastichost.arena.host import create_directory, free_bytes
from elastichost.arena.layout import plan_layout
from elastichost.arena.owner import owner_of
from elastichost.config.job import JobSpec, load_job
from elastichost.config.tables import resolve_tables
from elastichost.datasets import open_reader
from elastichost.datasets.api import DatasetDescription, Reader
from elastichost.ps.rows.store import RowStore
from elastichost.sharding import bucket_count
from elastichost.specs import DenseSpec, ModelSpec
from elastichost.user_model.build import build_model
from elastichost.worker.access.direct import DirectLookup
from elastichost.worker.access.direct_rows import DirectRowPreparer
from elastichost.worker.access.row_channels import PullChannel
from elastichost.worker.access.rows import PreparedBatch, RowPreparer
from elastichost.worker.model.embedding import describe_embeddings, meta_collections, replace_collections, table_rows
from elastichost.worker.model.fusion import fuse_modules
from elastichost.worker.steps.model_runner import ModelRunner

__all__ = ["main"]

BATCHES_AHEAD = 3


def main(settings: PeerSettings) -> None:
    """Trains until it is killed."""
    torch.set_num_threads(settings.threads)
    job = load_job(Path(settings.job), environ={})
    reader = open_reader(job, "train")
    description = reader.describe()
    network, arena = _build(job, description, Path(settings.folder))
    runner = ModelRunner(network, job.data.categorical, job.model.outputs, torch.device("cpu"))
    optimizer = adam(network)
    # fixed tables have no misses, so no PS is needed
    rows = DirectRowPreparer(arena, job.data.categorical, description.files, cast(PullChannel, None))
    ahead: queue.Queue[PreparedBatch] = queue.Queue(BATCHES_AHEAD)
    threading.Thread(target=_read, args=(reader, description, rows, settings.batch_size, ahead), daemon=True).start()
    counter = Counter(Path(settings.counter))
    while True:
        batch = ahead.get()
        loss = runner.loss(batch)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        counter.add(0, batch.samples.size)


def _read(
    reader: Reader,
    description: DatasetDescription,
    rows: RowPreparer,
    batch_size: int,
    ahead: queue.Queue[PreparedBatch],
) -> None:
    for epoch in count():
        for unit in description.units:
            for samples in reader.batches(unit, 0, unit.samples, batch_size):
                ahead.put(rows.prepare(samples, lease_id=0, epoch=epoch, create=False, clock=0))


def _build(job: JobSpec, description: DatasetDescription, folder: Path) -> tuple[nn.Module, Arena]:
    """Builds the model over a new arena in which every row has its initial value."""
    tables = resolve_tables(job, description.key_kinds)
    torch.manual_seed(job.job.seed)
    with meta_collections():
        network = build_model(job, tables, table_rows(tables), description.num_dense, description.num_labels)
    embeddings = describe_embeddings(network, job, tables)
    dense = DenseSpec(tensors=(), parameters=0, elements=0)  # torch holds the dense part, not the arena
    model = ModelSpec(tables, embeddings, dense, description.num_dense, description.num_labels)
    directory = folder / "arena"
    create_directory(directory, owner_of(os.getpid(), folder))
    arena = Arena.create(directory, plan_layout(model, job.job.seed, free_bytes(folder)))
    buckets = [(table.index, bucket) for table in tables for bucket in range(bucket_count(table))]
    RowStore(arena, job.job.seed).adopt(buckets, initialise=True)
    paths = dict.fromkeys(embedding.module for embedding in embeddings)
    cpu = torch.device("cpu")
    replace_collections(
        network, {path: DirectLookup(arena, [e for e in embeddings if e.module == path], cpu) for path in paths}
    )
    if job.model.fused:
        fuse_modules(network)
    return network, arena
