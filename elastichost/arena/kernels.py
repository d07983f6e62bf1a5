"""The kernels other packages use, in one place, and `warm()` to load them all before a process needs them."""

from __future__ import annotations

import numpy as np

from elastichost.arena import bag_kernels, dense_kernels, index, index_upkeep
from elastichost.arena.bag_chains import UpdateWorkspace
from elastichost.arena.bag_kernels import pool_bags, scatter_gradients
from elastichost.arena.bag_updates import SGD, update_rows
from elastichost.arena.compiled import kernel_ready
from elastichost.arena.hashing import initial_stream, mix64
from elastichost.arena.index import lookup_dynamic
from elastichost.arena.layout import HEADER_WORDS
from elastichost.arena.row_kernels import (
    KEY_CHECKED,
    KEY_HASHED,
    KEY_MODULO,
    adagrad_rows,
    first_bad_row,
    fixed_rows,
    gather_rows,
    initialise_rows,
    mark_seen,
    rowwise_adagrad_rows,
    sgd_rows,
    unique_keys,
    zero_rows,
)

__all__ = [
    "KEY_CHECKED",
    "KEY_HASHED",
    "KEY_MODULO",
    "SAMPLES_PER_STAMP",
    "adagrad_rows",
    "first_bad_row",
    "fixed_rows",
    "gather_rows",
    "initial_stream",
    "initialise_rows",
    "kernel_ready",
    "lookup_dynamic",
    "mark_seen",
    "mix64",
    "pool_bags",
    "rowwise_adagrad_rows",
    "scatter_gradients",
    "seen_stamp",
    "sgd_rows",
    "unique_keys",
    "update_rows",
    "warm",
    "zero_rows",
]

SAMPLES_PER_STAMP = 1024


def seen_stamp(clock: int) -> int:
    """What `seen` holds for a row seen when `clock` samples were trained; never 0, which means free."""
    return min(clock // SAMPLES_PER_STAMP + 1, (1 << 32) - 1)


def warm() -> None:
    """Compiles every kernel for the types it is used with, or loads it from the cache on disk."""
    rows, keys = np.zeros(1, np.int64), np.ones(1, np.int64)
    weights, state, line = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32), np.zeros(4, np.float32)
    seen = np.zeros(1, np.uint32)
    mix64(1)
    fixed_rows(keys, np.array([0, 1]), keys + 1, rows, rows.copy())
    unique_keys(keys)
    initialise_rows(weights, rows, keys, 3, -0.5, 0.5, initial_stream(0, ""))
    zero_rows(weights, rows)
    gather_rows(weights, rows, state)
    first_bad_row(rows, 1, 1, rows, -1, HEADER_WORDS, 0)
    mark_seen(seen, rows, 1)
    sgd_rows(weights, rows, state, 0.1)
    adagrad_rows(weights, state, rows, weights, 0.1, 1e-8)
    rowwise_adagrad_rows(weights, line, rows, state, 0.1, 1e-8)
    _warm_index(keys, seen)
    _warm_dense(line)
    _warm_bags(line, rows)


def _warm_index(keys: index.Int64, seen: index.UInt32) -> None:
    """One bucket of sixteen slots lives through everything an index can meet."""
    control = np.zeros(HEADER_WORDS, np.int64)
    control[index.GENERATION] = word = 1 << index.CAPACITY_BITS | 16
    slots = np.zeros(2 * 64, np.int64)
    rows, positions, out = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    growths = np.zeros((1, index_upkeep.GROWTH_WORDS), np.int64)
    first = index.generation_first(word, 0, 64)
    place, capacity = (slots, control, 0, 0, 64), index.capacity_of(word)
    lookup_dynamic(*place, 16, 63, keys, out)
    index.count_by_bucket(keys, positions, 63, np.zeros(2, np.int64))
    index.buckets_of(keys, 63)
    index.publish_word(control, index.HEAT, 0)
    index.sight(*place, 63, 1, keys, positions, out)
    index.publish_rows(*place, 16, 63, keys, rows, seen, 1)
    index_upkeep.count_slots(slots, first, capacity)
    index_upkeep.copy_slots(slots, first, first + capacity, 0, 24, True)
    index_upkeep.follow_slots(*place, 63, growths, keys, positions)
    index_upkeep.mapped_only(slots, control, 0, 0, 64, keys, seen)
    index_upkeep.repair(slots, control, 0, 0, 64, keys, seen, True, out)
    index_upkeep.evict_rows(slots, control, 0, 0, 64, keys, seen, 1, out)
    index_upkeep.fill_slots(np.zeros(2 * 64, np.int64), 0, 16, keys, seen)


def _warm_dense(line: dense_kernels.Float32) -> None:
    half = line[:2]
    dense_kernels.sgd_step(half, half, half, half, half, 0.1, 0.0, 0.0)
    dense_kernels.adagrad_step(half, half, half, half, half, 0.1, 1e-8, 0.0)
    dense_kernels.adam_step(half, half, line, line, half, 1, 0.1, 0.9, 0.999, 1e-8, 0.0)
    words = np.zeros(2, np.int64)
    dense_kernels.copy_half(words, words, half, half, 0)
    dense_kernels.announce(words, 0, dense_kernels.load_word(words, 1))


def _warm_bags(line: bag_kernels.Float32, values: bag_kernels.Int64) -> None:
    """One row of float32 and one of bfloat16."""
    entries = np.zeros((1, bag_kernels.ENTRY_FIELDS), np.int64)
    entries[0, [bag_kernels.BAGS, bag_kernels.DIM, bag_kernels.PADDED_DIM]] = 1, 4, 4
    updates, rates, offsets = np.array([[0, 1, 0, SGD]]), np.zeros((1, 2), np.float32), np.arange(2)
    space = UpdateWorkspace(4)
    for rows in (line.copy(), np.zeros(4, np.uint16)):
        pool_bags(rows, entries, values, offsets, line)
        update_rows(rows, line, entries, updates, rates, values, offsets, line, *space.arrays(), np.uint64(0))
    scatter_gradients(line, entries, values, offsets, line.copy())
