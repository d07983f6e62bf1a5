"""All kernels that other packages use, and `warm()`, which loads them before a process needs them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import kernel_ready
from elastichost.arena.dense import kernels as dense_kernels
from elastichost.arena.index import key_kernels
from elastichost.arena.index import table as index
from elastichost.arena.index import upkeep as index_upkeep
from elastichost.arena.index.hashing import initial_stream, mix64
from elastichost.arena.index.key_kernels import (
    first_bad_row,
    leave_missing_out,
    split_by_owner,
    take_keys,
    unique_by_table,
)
from elastichost.arena.index.table import lookup_dynamic
from elastichost.arena.layout import HEADER_WORDS
from elastichost.arena.rows import bag_kernels, line_kernels
from elastichost.arena.rows.bag_chains import UpdateWorkspace
from elastichost.arena.rows.bag_kernels import pool_bags, scatter_gradients
from elastichost.arena.rows.bag_updates import SGD, update_rows
from elastichost.arena.rows.line_kernels import (
    add_lines,
    gather_lines,
    gather_states,
    scatter_lines,
    scatter_states,
    update_lines,
)
from elastichost.arena.rows.place_kernels import pool_placed_bags, scatter_pulled, split_by_place
from elastichost.arena.rows.row_kernels import (
    KEY_CHECKED,
    KEY_HASHED,
    KEY_MODULO,
    fixed_rows,
    initialise_rows,
    mark_seen,
    zero_rows,
)
from elastichost.arena.rows.update_rates import RATE_FIELDS
from elastichost.arena.words import announce, load_word

__all__ = [
    "KEY_CHECKED",
    "KEY_HASHED",
    "KEY_MODULO",
    "SAMPLES_PER_STAMP",
    "add_lines",
    "first_bad_row",
    "fixed_rows",
    "gather_lines",
    "gather_states",
    "initial_stream",
    "initialise_rows",
    "kernel_ready",
    "leave_missing_out",
    "lookup_dynamic",
    "mark_seen",
    "mix64",
    "pool_bags",
    "pool_placed_bags",
    "scatter_gradients",
    "scatter_lines",
    "scatter_pulled",
    "scatter_states",
    "seen_stamp",
    "split_by_owner",
    "split_by_place",
    "take_keys",
    "unique_by_table",
    "update_lines",
    "update_rows",
    "warm",
    "warm_narrow",
    "zero_rows",
]

SAMPLES_PER_STAMP = 1024


def seen_stamp(clock: int) -> int:
    """The value in `seen` of a row that is used when `clock` samples are trained; at least 1, as 0 is a free row."""
    return min(clock // SAMPLES_PER_STAMP + 1, (1 << 32) - 1)


def warm() -> None:
    """Compiles every kernel for the types that it is called with, or loads it from the cache on disk."""
    rows, keys = np.zeros(1, np.int64), np.ones(1, np.int64)
    weights, line = np.zeros((1, 4), np.float32), np.zeros(4, np.float32)
    seen = np.zeros(1, np.uint32)
    mix64(1)
    fixed_rows(keys, np.array([0, 1]), keys + 1, rows, rows.copy())
    for made in (weights, np.zeros((1, 4), np.uint16)):
        initialise_rows(made, rows, keys, 3, -0.5, 0.5, initial_stream(0, ""))
    zero_rows(weights, rows)
    mark_seen(seen, rows, 1)
    _warm_keys(keys, rows)
    _warm_lines(line, rows)
    _warm_index(keys, seen)
    _warm_dense(line)
    _warm_bags(line, rows)


def _warm_index(keys: index.Int64, seen: index.UInt32) -> None:
    """Calls every index kernel on one bucket of sixteen slots."""
    control = np.zeros(HEADER_WORDS, np.int64)
    control[index.GENERATION] = word = 1 << index.CAPACITY_BITS | 16
    slots = np.zeros(2 * 64, np.int64)
    rows, positions, out = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    growths = np.zeros((1, index_upkeep.GROWTH_WORDS), np.int64)
    first = index.generation_first(word, 0, 64)
    place, capacity = (slots, control, 0, 0, 64), index.capacity_of(word)
    lookup_dynamic(*place, 16, 63, 0, keys, out)
    index.count_by_bucket(keys, positions, 63, np.zeros(2, np.int64))
    index.buckets_of(keys, 63)
    index.sight(*place, 63, 0, 1, keys, positions, out)
    index.publish_rows(*place, 16, 63, 0, keys, rows, seen, 1)
    index_upkeep.count_slots(slots, first, capacity)
    index_upkeep.copy_slots(slots, first, first + capacity, 0, 24, 0, 1)
    index_upkeep.follow_slots(*place, 63, 0, growths, keys, positions)
    index_upkeep.mapped_only(slots, control, 0, 0, 64, 0, keys, seen)
    index_upkeep.repair(slots, control, 0, 0, 64, 0, keys, seen, True, out)
    index_upkeep.evict_rows(slots, control, 0, 0, 64, 0, keys, seen, 1, out)
    index_upkeep.fill_slots(np.zeros(2 * 64, np.int64), 0, 16, 0, keys, seen)


def _warm_dense(line: dense_kernels.Float32) -> None:
    half = line[:2]
    clip = dense_kernels.clip_factor(half, 1.0)
    dense_kernels.sgd_step(half, half, half, half, half, 0.1, 0.0, 0.0, clip)
    dense_kernels.adagrad_step(half, half, half, half, half, 0.1, 1e-8, 0.0, clip)
    dense_kernels.adam_step(half, half, line, line, half, 1, 0.1, 0.9, 0.999, 1e-8, 0.0, False, clip)
    words = np.zeros(2, np.int64)
    dense_kernels.copy_half(words, words, half, half, 0)
    announce(words, 0, load_word(words, 1))


def _warm_keys(keys: key_kernels.Int64, zeros: key_kernels.Int64) -> None:
    """Calls every key kernel for one feature of one fixed table that has one bucket."""
    bounds, out, control = np.array([0, 1]), [np.zeros(1, np.int64) for _ in range(3)], np.zeros(HEADER_WORDS, np.int64)
    tables = np.zeros((1, key_kernels.TABLE_FIELDS), np.int64)
    tables[0, [key_kernels.ROW_SPACE, key_kernels.BUCKET_ROWS]] = 2, 2
    unique_by_table(keys, bounds, zeros, bounds, np.zeros(4, np.int32), out[0], bounds.copy(), out[1])
    leave_missing_out(zeros, bounds, bounds, zeros, bounds, out[1])
    owners, counts = np.zeros(1, np.uint16), np.zeros((1, 1), np.int64)
    split_by_owner(keys, bounds, keys + 1, owners, zeros, zeros, out[0], counts, out[1], out[2])
    take_keys(keys, bounds, tables, control, HEADER_WORDS, out[0])
    places = [out[0], out[1], out[2], bounds.copy(), out[1].copy(), out[2].copy(), bounds.copy()]
    split_by_place(keys, bounds, keys + 1, zeros, np.ones(1, np.bool_), *places)
    first_bad_row(zeros, bounds, tables, control, HEADER_WORDS)


def _warm_lines(line: line_kernels.Float32, numbers: line_kernels.Int64) -> None:
    """Calls every line kernel for one row of float32 and one of bfloat16."""
    lines, updates = np.array([[0, 1, 4, 0, 0]]), np.zeros((1, line_kernels.UPDATE_FIELDS), np.int64)
    for rows in (line.copy(), np.zeros(4, np.uint16)):
        gather_lines(rows, lines, numbers, line)
        update_lines(rows, line, lines, updates, np.zeros((1, RATE_FIELDS), np.float32), numbers, line, np.uint64(0))
        scatter_lines(line, lines, numbers, rows)
    add_lines(line.copy(), lines, numbers, line, lines)
    gather_states(line.copy(), lines, numbers, line)
    scatter_states(line, lines, numbers, line.copy())


def _warm_bags(line: bag_kernels.Float32, values: bag_kernels.Int64) -> None:
    """Calls every bag kernel for one row of float32 and one of bfloat16."""
    entries = _one_entry()
    for rows in (line.copy(), np.zeros(4, np.uint16)):
        pool_placed_bags(rows, line, entries, values, values, np.arange(2), line.copy())
    scatter_gradients(line, entries, values, np.arange(2), line.copy())
    scatter_pulled(line, entries, values, values, np.arange(2), line.copy())
    _warm_pooling(line)


def warm_narrow() -> None:
    """Compiles the kernels of pooled vectors in bfloat16, or loads them from the cache on disk. Only a job that
    computes in bfloat16 needs them."""
    _warm_pooling(np.zeros(4, np.uint16))


def _warm_pooling(pooled: npt.NDArray[np.float32] | npt.NDArray[np.uint16]) -> None:
    """Calls the lookup and its update, with pooled vectors of this type, for rows of float32 and of bfloat16."""
    updates, rates, offsets = np.array([[0, 1, 0, SGD]]), np.zeros((1, RATE_FIELDS), np.float32), np.arange(2)
    entries, values, state, space = _one_entry(), np.zeros(1, np.int64), np.zeros(4, np.float32), UpdateWorkspace(4)
    for rows in (np.zeros(4, np.float32), np.zeros(4, np.uint16)):
        pool_bags(rows, entries, values, offsets, pooled)
        update_rows(rows, state, entries, updates, rates, values, offsets, pooled, *space.arrays(), np.uint64(0))


def _one_entry() -> bag_kernels.Int64:
    entries = np.zeros((1, bag_kernels.ENTRY_FIELDS), np.int64)
    entries[0, [bag_kernels.BAGS, bag_kernels.DIM, bag_kernels.PADDED_DIM]] = 1, 4, 4
    return entries
