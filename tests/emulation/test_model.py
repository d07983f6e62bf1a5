"""The emulated model: its load follows its buckets, and its new ids follow Heaps' law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.config.sections.emulate import NewIdsSettings
from elastichost.emulation.model import (
    NEW_IDS,
    TABLES,
    emulated_model,
    hot_keys,
    new_ids_of_batch,
    owner_of_new,
    parts_of,
)
from elastichost.sharding import MAX_SERVERS, bucket_count, even_shard_map, rows_per_bucket
from elastichost.worker.channels.routing import Directory, key_router

GROWING = NewIdsSettings(factor=3.0, exponent=0.7)


def directory(servers: int, new_ids: NewIdsSettings = NewIdsSettings()) -> Directory:  # noqa: B008 frozen
    """A directory in which this many PS own the buckets evenly."""
    tables = emulated_model(new_ids).tables
    owners = even_shard_map(tables, tuple(range(servers)), epoch=1).owners
    return Directory(1, {}, 0, tuple(np.array(row, np.uint16) for row in owners))


def test_every_table_is_one_bucket() -> None:
    *tables, last = emulated_model(GROWING).tables
    assert {bucket_count(table) for table in tables} == {1}
    assert last.is_dynamic and len(emulated_model(NewIdsSettings()).tables) == TABLES == len(tables)


@given(st.integers(1, MAX_SERVERS), st.floats(0.0, 0.8))
def test_every_ps_has_its_part_and_the_parts_are_the_whole(servers: int, skew: float) -> None:
    parts = parts_of(directory(servers), skew)
    assert [part.server for part in parts] == list(range(servers))
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    counts = [len(part.keys) for part in parts if part.server]
    assert not counts or max(counts) - min(counts) <= 1
    assert all(sum(part.counts) == len(part.keys) for part in parts)


@pytest.mark.parametrize("skew", [0.0, 0.1, 0.25, 0.6, 0.8])
def test_the_skew_is_the_load_of_one_bucket(skew: float) -> None:
    assert hot_keys(skew) <= rows_per_bucket(emulated_model(GROWING).tables[0])
    shares = {part.server: part.share for part in parts_of(directory(4), skew)}
    assert shares[0] == pytest.approx(skew + (1 - skew) / 4, abs=0.01)
    assert shares[1] == shares[2] == shares[3] == pytest.approx((1 - skew) / 4, abs=0.01)


def test_each_ps_is_asked_for_keys_that_it_owns() -> None:
    """The router of a real worker divides the keys among PS in the same way."""
    model, where = emulated_model(NewIdsSettings()), directory(5)
    where = Directory(1, dict.fromkeys(range(5)), 0, where.owners)  # type: ignore[arg-type]
    for part in parts_of(where, 0.3):
        bounds = np.concatenate([[0], np.cumsum(part.counts)]).astype(np.int64)
        cut = key_router(model.tables).split(part.keys, bounds, where)
        assert [one.server for one in cut] == [part.server]


def test_new_ids_go_to_the_ps_to_which_a_real_worker_would_send_them() -> None:
    model, where = emulated_model(GROWING), directory(5, GROWING)
    where = Directory(1, dict.fromkeys(range(5)), 0, where.owners)  # type: ignore[arg-type]
    keys = new_ids_of_batch(NewIdsSettings(factor=100.0, exponent=1.0), 0, 3, np.random.default_rng(1))
    assert len(keys) == 300 == len(set(keys.tolist()))
    bounds = np.array([0] * (NEW_IDS + 1) + [len(keys)], np.int64)
    for part in key_router(model.tables).split(keys, bounds, where):
        assert {owner_of_new(key, where) for key in part.items.tolist()} == {part.server}


def test_distinct_ids_grow_by_heaps_law_whatever_the_batches() -> None:
    generator, seen, trained = np.random.default_rng(2), 0, 0
    while trained < 400_000:
        samples = int(generator.integers(1, 900))
        seen += len(new_ids_of_batch(GROWING, trained, samples, generator))
        trained += samples
    assert seen == pytest.approx(3.0 * trained**0.7, rel=0.02)
    assert len(new_ids_of_batch(NewIdsSettings(), 0, 1000, generator)) == 0
