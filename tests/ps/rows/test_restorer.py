"""Lost buckets are made anew, from a checkpoint or with initial rows, whatever rows the arena still has of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.layout import plan_layout
from elastichost.checkpoint.format import BlockWriter, Manifest, commit, new_staging
from elastichost.host.cpu_features import present_cpu
from elastichost.ps.rows.restorer import fill_buckets, remake_buckets
from elastichost.ps.rows.store import RowStore
from tests.ps.rows.test_store import ALL, DYNAMIC, DYNAMIC_BUCKETS, FIXED, model_of

KEYS = np.arange(1000, 1400)


def opened(directory: Path) -> tuple[Arena, RowStore]:
    directory.mkdir()
    arena = Arena.create(directory, plan_layout(model_of(), 7, 1 << 24))
    return arena, RowStore(arena, 7)


def content(store: RowStore) -> list[tuple[str, int, int, bytes]]:
    return [
        (block.kind, block.owner, bucket, block.array.tobytes())
        for table, bucket in ALL
        for block in store.snapshot_bucket(table, bucket)
    ]


def checkpoint_of(arena: Arena, store: RowStore, place: Path) -> Path:
    staging, final = new_staging(place, 1), place / "saved"
    with BlockWriter(staging / "server-0.bin") as writer:
        for table, bucket in ALL:
            for block in store.snapshot_bucket(table, bucket):
                writer.add(block.kind, block.owner, bucket, block.array)
        writer.add("dense", 0, 0, np.zeros(1, np.float32))
    manifest = Manifest(
        run_id="r1",
        job_name="test",
        seed=7,
        samples_trained=1,
        epoch=0,
        ledger=msgspec.Raw(b"{}"),
        model=arena.model,
        bucket_counts=(3, 16),
        dense_version=1,
        blocks=tuple(writer.records),
        created_utc="2026-01-01T00:00:00Z",
        cpu=present_cpu(),
    )
    commit(staging, final, manifest)
    return final


def test_lost_buckets_are_as_in_the_checkpoint_and_their_rows_in_the_arena_are_gone(tmp_path: Path) -> None:
    arena, store = opened(tmp_path / "one")
    store.adopt(ALL, initialise=True)
    store.rows_for(DYNAMIC, KEYS, True, 0)
    expected = content(store)
    saved = checkpoint_of(arena, store, tmp_path / "checkpoints")
    other_arena, other = opened(tmp_path / "other")
    other.adopt(ALL, initialise=True)
    other.rows_for(DYNAMIC, KEYS[::3] + 5000, True, 0)  # rows that an earlier owner made
    other.release(ALL)
    shown: list[int] = []
    remake_buckets(other, list(ALL), saved, lambda: shown.append(1))
    assert content(other) == expected
    assert len(shown) == len(ALL), "a long restore is no hang"
    arena.close()
    other_arena.close()


def test_without_a_checkpoint_lost_buckets_get_initial_rows(tmp_path: Path) -> None:
    arena, store = opened(tmp_path / "one")
    store.adopt(ALL, initialise=True)
    expected = content(store)
    store.rows_for(DYNAMIC, KEYS, True, 0)
    store.release(ALL)
    shown: list[int] = []
    remake_buckets(store, list(ALL), None, lambda: shown.append(1))
    assert content(store) == expected
    assert len(shown) == len(ALL)
    assert sum(int(arena.header(*bucket)[index.LIVE_ROWS]) for bucket in DYNAMIC_BUCKETS) == 0
    arena.close()


def test_buckets_that_are_only_taken_over_keep_their_rows(tmp_path: Path) -> None:
    arena, store = opened(tmp_path / "one")
    store.adopt(ALL, initialise=True)
    store.rows_for(DYNAMIC, KEYS, True, 0)
    expected = content(store)
    store.release(ALL)
    fill_buckets(store, list(ALL), None, lambda: None)
    assert content(store) == expected
    assert int(arena.header(FIXED, 0)[index.FILLED]) == 1
    arena.close()
