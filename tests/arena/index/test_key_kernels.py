"""Kernels over the keys of a batch (distinct keys, owners, rows, heat), compared with plain Python."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost import sharding
from elastichost.arena.index import key_kernels as columns
from elastichost.arena.kernels import first_bad_row, leave_missing_out, split_by_owner, take_keys, unique_by_table

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
KEYS = st.lists(st.one_of(INT64, st.integers(-3, 3), st.integers(0, 40).map(lambda i: i << 52)), max_size=80)


@settings(deadline=None)
@given(of_feature=st.lists(KEYS, min_size=1, max_size=5), seed=st.integers(0, 9))
def test_unique_keys_keep_the_order_of_first_appearance(of_feature: list[list[int]], seed: int) -> None:
    """The features belong to three tables in random order; a table may have none."""
    rng = np.random.default_rng(seed)
    table_of = rng.integers(0, 3, len(of_feature))
    features = [[f for f in range(len(of_feature)) if table_of[f] == table] for table in range(3)]
    keys = np.array([key for part in of_feature for key in part], np.int64)
    feature_bounds = np.cumsum([0, *map(len, of_feature)])
    order, firsts = np.array(list(itertools.chain(*features)), np.int64), np.cumsum([0, *map(len, features)])
    unique, positions = np.empty(len(keys), np.int64), np.full(len(keys), 99, np.int64)
    bounds, slots = np.empty(4, np.int64), np.full(4 * max(1, len(keys)), 7, np.int32)
    unique_by_table(keys, feature_bounds, order, firsts, slots, unique, bounds, positions)
    for table, numbers in enumerate(features):
        found = unique[bounds[table] : bounds[table + 1]]
        assert found.tolist() == list(dict.fromkeys(key for f in numbers for key in of_feature[f]))
        for f in numbers:
            places = positions[feature_bounds[f] : feature_bounds[f + 1]]
            assert found[places].tolist() == of_feature[f]
    rows = np.where(rng.random(len(unique)) < 0.5, -1, 5)
    before = positions.copy()
    leave_missing_out(rows, bounds, feature_bounds, order, firsts, positions)
    for f, table in enumerate(table_of):
        for i in range(feature_bounds[f], feature_bounds[f + 1]):
            assert positions[i] == (before[i] if rows[bounds[table] + before[i]] >= 0 else -1)


@settings(deadline=None)
@given(dynamic=KEYS, rows=st.lists(st.integers(-1, 99), max_size=40), seed=st.integers(0, 99))
def test_items_are_split_by_the_owner_of_their_bucket(dynamic: list[int], rows: list[int], seed: int) -> None:
    """A table of keys with 16 buckets, and a table of rows with 10 rows in each bucket."""
    owners = np.random.default_rng(seed).integers(2, 5, 26).astype(np.uint16)
    items, bounds = np.array([*dynamic, *rows], np.int64), np.array([0, len(dynamic), len(dynamic) + len(rows)])
    buckets = [sharding.bucket_of_hash(sharding.mix64(key), 16) for key in dynamic]
    buckets += [16 + row // 10 if row >= 0 else -1 for row in rows]
    counts, out = np.zeros((3, 2), np.int64), [np.empty(len(items), np.int64) for _ in range(3)]
    part_of_server = np.array([9, 9, 0, 1, 2])
    total = split_by_owner(
        items, bounds, np.array([-60, 10]), owners, np.array([0, 16]), part_of_server, out[0], counts, out[1], out[2]
    )
    owner_of = [int(owners[bucket]) if bucket >= 0 else None for bucket in buckets]
    expected = [
        [i for i in range(bounds[table], bounds[table + 1]) if owner_of[i] == server]
        for server in (2, 3, 4)
        for table in (0, 1)
    ]
    assert counts.ravel().tolist() == [len(part) for part in expected]
    assert out[1][:total].tolist() == list(itertools.chain(*expected))
    assert np.array_equal(out[2][:total], items[out[1][:total]])


def facts() -> np.ndarray:
    """A fixed table of 25 rows in buckets of ten, and a dynamic one of 16 buckets of 8; headers of 4 words."""
    tables = np.zeros((2, columns.TABLE_FIELDS), np.int64)
    tables[0, [columns.ROW_SPACE, columns.BUCKET_ROWS, columns.HEAT_WORD, columns.ALLOCATED_WORD]] = 25, 10, 1, 2
    tables[1, [columns.IS_DYNAMIC, columns.ROW_SPACE, columns.BUCKET_ROWS, columns.SHIFT]] = 1, 128, 8, 60
    tables[1, [columns.HEAT_WORD, columns.ALLOCATED_WORD]] = 13, 14
    return tables


@settings(deadline=None)
@given(fixed=st.lists(st.integers(0, 24)), dynamic=KEYS)
def test_every_key_counts_for_its_bucket(fixed: list[int], dynamic: list[int]) -> None:
    keys, bounds = np.array([*fixed, *dynamic], np.int64), np.array([0, len(fixed), len(fixed) + len(dynamic)])
    control, rows = np.zeros(4 * 19, np.int64), np.full(len(keys), -7, np.int64)
    assert take_keys(keys, bounds, facts(), control, 4, rows) == -1
    assert rows.tolist() == [*fixed, *[-7] * len(dynamic)]
    expected = np.zeros((19, 4), np.int64)
    for key in fixed:
        expected[key // 10, 1] += 1
    for key in dynamic:
        expected[3 + sharding.bucket_of_hash(sharding.mix64(key), 16), 1] += 1
    assert np.array_equal(control.reshape(19, 4), expected)
    for bad in (-1, 25):
        keys = np.array([*fixed, bad, *dynamic], np.int64)
        bounds = np.array([0, len(fixed) + 1, len(keys)])
        assert take_keys(keys, bounds, facts(), control, 4, np.empty(len(keys), np.int64)) == len(fixed)


def test_rows_without_memory_are_found() -> None:
    control = np.zeros((19, 4), np.int64)
    control[3:, 2] = np.arange(16) % 9  # rows allocated in each dynamic bucket

    def bad(fixed: list[int], dynamic: list[int]) -> int:
        bounds = np.array([0, len(fixed), len(fixed) + len(dynamic)])
        return first_bad_row(np.array([*fixed, *dynamic], np.int64), bounds, facts(), control.reshape(-1), 4)

    allocated = [8 * bucket + row for bucket in range(16) for row in range(bucket % 9)]
    assert bad(list(range(25)), allocated) == -1
    for row in (-1, 25):
        assert bad([3, row], []) == 1
    for row in (-1, 128, 0, 8 * 3 + 3, 8 * 15 + 7):
        assert bad([3], [*allocated, row]) == 1 + len(allocated)
