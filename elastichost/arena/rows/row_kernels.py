"""Kernels over embedding rows: initial weights, stamps of seen rows, rows of keys of fixed tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, signed
from elastichost.arena.index.hashing import mix64

__all__ = ["KEY_CHECKED", "KEY_HASHED", "KEY_MODULO", "fixed_rows", "initialise_rows", "mark_seen", "zero_rows"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
UInt16 = npt.NDArray[np.uint16]
UInt32 = npt.NDArray[np.uint32]

_GOLDEN = 0x9E3779B97F4A7C15
# How `fixed_rows` turns a feature's keys into rows.
KEY_CHECKED, KEY_MODULO, KEY_HASHED = 0, 1, 2
_ROWS_ROUNDED = 1 << 14  # bfloat16 rows that are initialised together


@compiled
def fixed_rows(keys: Int64, bounds: Int64, table_rows: Int64, rules: Int64, out: Int64) -> int:
    """Writes the row numbers of keys (int64 [n]) of fixed tables into out (int64 [n]), for all features of a batch.

    Feature f has keys[bounds[f]:bounds[f + 1]], a table of table_rows[f] rows and rules[f]: KEY_CHECKED (the row is the
    key, which must be inside the table), KEY_MODULO (the mathematical modulo), or KEY_HASHED (the key is the hash of a
    string: the row is the key as uint64, modulo the rows). A feature with any other rule is skipped. Returns the
    position of the first key outside its table, or -1 if there is none.
    """
    for feature in range(len(rules)):
        rule, rows = rules[feature], table_rows[feature]
        for i in range(bounds[feature], bounds[feature + 1]):
            key = keys[i]
            if rule == KEY_HASHED:
                out[i] = signed(np.uint64(key) % np.uint64(rows))
            elif rule in (KEY_CHECKED, KEY_MODULO):
                if key >= 0 and key < rows:
                    out[i] = key
                elif rule == KEY_MODULO:
                    out[i] = key - (key // rows) * rows
                else:
                    return i
    return -1


def initialise_rows(
    weights: Float32 | UInt16, rows: Int64, keys: Int64, dim: int, low: float, high: float, stream: np.uint64
) -> None:
    """Writes initial weights, uniform in [low, high), for keys[i] to row rows[i] of weights [:, padded_dim].

    weights: float32, or bfloat16 as uint16 (the float32, rounded to nearest, ties to even). Columns from `dim` on are
    0. A weight depends on (stream, key, element) alone, so it has the same bits for any process and any time. stream:
    `hashing.initial_stream(seed, embedding name)`.
    """
    if weights.dtype == np.float32:
        _initialise(weights.view(np.float32), rows, keys, dim, low, high, stream)
        return
    numbers = np.arange(min(len(rows), _ROWS_ROUNDED), dtype=np.int64)
    exact = np.empty((len(numbers), weights.shape[1]), np.float32)
    for first in range(0, len(rows), _ROWS_ROUNDED):
        some = slice(first, first + _ROWS_ROUNDED)
        _initialise(exact, numbers[: len(rows[some])], keys[some], dim, low, high, stream)
        _round_rows(exact.view(np.uint32), rows[some], weights.view(np.uint16))


@compiled
def _round_rows(exact: UInt32, rows: Int64, weights: UInt16) -> None:
    """Writes exact[i] (bits of finite float32) to row rows[i] of bfloat16 weights [:, k], rounded to nearest, ties to
    even."""
    for i in range(len(rows)):
        for element in range(weights.shape[1]):
            bits = np.uint64(exact[i, element])
            weights[rows[i], element] = np.uint16(
                (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
            )


@compiled
def _initialise(
    weights: Float32, rows: Int64, keys: Int64, dim: int, low: float, high: float, stream: np.uint64
) -> None:
    padded_dim = weights.shape[1]
    scale = (high - low) / 16777216.0
    for i in range(len(rows)):
        row = rows[i]
        base = mix64(np.uint64(keys[i]) ^ stream)
        # One hash gives two numbers of 24 bits, the precision of a float32 in [0, 1).
        for pair in range((padded_dim + 1) // 2):
            bits = mix64(base + np.uint64(pair + 1) * np.uint64(_GOLDEN))
            element = 2 * pair
            if element < dim:
                weights[row, element] = np.float32(low + scale * np.float64(bits & np.uint64(0xFFFFFF)))
            else:
                weights[row, element] = np.float32(0.0)
            if element + 1 < dim:
                weights[row, element + 1] = np.float32(low + scale * np.float64(bits >> np.uint64(40)))
            elif element + 1 < padded_dim:
                weights[row, element + 1] = np.float32(0.0)


@compiled
def zero_rows(values: Float32, rows: Int64) -> None:
    """Sets rows of float32 values [:, k] to 0."""
    for i in range(len(rows)):
        for element in range(values.shape[1]):
            values[rows[i], element] = np.float32(0.0)


@compiled
def mark_seen(seen: UInt32, rows: Int64, value: int) -> None:
    """Stamps rows (int64 [n]) of a table as seen. Rows of -1 are skipped, and free rows (seen == 0) stay free."""
    stamp = np.uint32(value)
    for i in range(len(rows)):
        row = rows[i]
        if row >= 0 and seen[row] != 0 and seen[row] != stamp:
            seen[row] = stamp
