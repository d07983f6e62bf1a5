"""Fills the buckets that a PS takes over: with rows from a checkpoint, or with initial rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from elastichost.checkpoint.format import BlockRecord, load_manifest, read_block
from elastichost.errors import CheckpointError
from elastichost.ps.rows.store import RowStore

__all__ = ["fill_buckets", "remake_buckets", "restore_buckets"]


def restore_buckets(
    store: RowStore, checkpoint: Path, buckets: list[tuple[int, int]], show_progress: Callable[[], object]
) -> None:
    """Adopts (table, bucket) pairs and fills them with their blocks of a checkpoint, one bucket after another: the
    blocks of all buckets together may need as much memory as the rows. Raises CheckpointError for blocks that are
    missing or do not fit, and ArenaFullError."""
    manifest = load_manifest(checkpoint, is_whole=False)  # another machine has only the files of its own PS
    tables = {e.index: e.table for e in manifest.model.embeddings}
    records: dict[tuple[int, int], list[BlockRecord]] = {bucket: [] for bucket in buckets}
    for record in manifest.blocks:
        table = tables.get(record.owner) if record.kind in ("rows", "state") else record.owner
        if record.kind in ("rows", "state", "ids", "seen") and (table, record.bucket) in records:
            records[int(table or 0), record.bucket].append(record)
    if missing := [bucket for bucket, found in records.items() if not found]:
        table_index, bucket = missing[0]
        raise CheckpointError(f"{checkpoint}: the manifest has no block of bucket {bucket} of table {table_index}")
    store.adopt(buckets, initialise=False)
    for (table_index, bucket), found in records.items():
        blocks = [(record.kind, record.owner, cast(Any, read_block(checkpoint, record))) for record in found]
        store.restore_bucket(table_index, bucket, blocks)
        show_progress()


def fill_buckets(
    store: RowStore, buckets: list[tuple[int, int]], checkpoint: Path | None, show_progress: Callable[[], object]
) -> None:
    """Adopts (table, bucket) pairs. Their rows come from `checkpoint`; without one they are in the arena already, or
    they get initial rows. Raises as `restore_buckets`."""
    if checkpoint is not None:
        restore_buckets(store, checkpoint, buckets, show_progress)
        return
    for bucket in buckets:
        store.adopt([bucket], initialise=True)
        show_progress()


def remake_buckets(
    store: RowStore, buckets: list[tuple[int, int]], checkpoint: Path | None, show_progress: Callable[[], object]
) -> None:
    """`fill_buckets` for buckets whose rows were lost with their host. Anything that this arena holds of them is freed
    first, because it is out of date."""
    for table, bucket in buckets:
        store.forget(table, bucket)
    fill_buckets(store, buckets, checkpoint, show_progress)
