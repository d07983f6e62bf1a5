"""Buckets that a PS takes over get what they are to hold: rows from a checkpoint, or their initial ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from elastichost.checkpoint.format import load_manifest, read_block
from elastichost.errors import CheckpointError
from elastichost.ps.rows.store import RowStore
from elastichost.ps.snapshot import Block

__all__ = ["fill_buckets", "remake_buckets", "restore_buckets"]


def restore_buckets(store: RowStore, checkpoint: Path, buckets: list[tuple[int, int]]) -> None:
    """Takes (table, bucket) pairs over and gives them what they hold in a checkpoint. Raises CheckpointError for what
    is missing in it or does not fit, and ArenaFullError."""
    manifest = load_manifest(checkpoint, is_whole=False)  # its own files: on another machine there are no others
    tables = {e.index: e.table for e in manifest.model.embeddings}
    wanted = set(buckets)
    store.adopt(buckets, initialise=False)
    blocks: dict[tuple[int, int], list[Block]] = {bucket: [] for bucket in buckets}
    for record in manifest.blocks:
        table = tables.get(record.owner) if record.kind in ("rows", "state") else record.owner
        if record.kind in ("rows", "state", "ids", "seen") and (table, record.bucket) in wanted:
            array = read_block(checkpoint, record)
            blocks[int(table or 0), record.bucket].append(Block(record.kind, record.owner, record.bucket, array))
    for (table_index, bucket), found in blocks.items():
        if not found:
            raise CheckpointError(f"{checkpoint}: bucket {bucket} of table {table_index} is not in the manifest")
        store.restore_bucket(table_index, bucket, [(b.kind, b.owner, cast(Any, b.array)) for b in found])


def fill_buckets(
    store: RowStore, buckets: list[tuple[int, int]], checkpoint: Path | None, show_progress: Callable[[], object]
) -> None:
    """Takes (table, bucket) pairs over: their rows are in the arena, or not made yet, or in a checkpoint. Raises as
    `restore_buckets`."""
    if checkpoint is not None:
        restore_buckets(store, checkpoint, buckets)
        return
    for bucket in buckets:
        store.adopt([bucket], initialise=True)
        show_progress()


def remake_buckets(
    store: RowStore, buckets: list[tuple[int, int]], checkpoint: Path | None, show_progress: Callable[[], object]
) -> None:
    """As `fill_buckets`, of buckets whose rows were lost: what this arena may hold of them is of no account."""
    for table, bucket in buckets:
        store.forget(table, bucket)
    fill_buckets(store, buckets, checkpoint, show_progress)
