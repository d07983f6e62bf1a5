"""Kernels over embedding rows: initial weights, when a row was seen, the rows of fixed tables' keys."""

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
_ROWS_ROUNDED = 1 << 14  # rows of bfloat16 that are made at once


@compiled
def fixed_rows(keys: Int64, bounds: Int64, table_rows: Int64, rules: Int64, out: Int64) -> int:
    """Row numbers of int64 keys [n] in fixed tables, into int64 out [n]: all features of a batch at once.

    Feature f has keys[bounds[f]:bounds[f + 1]], a table of table_rows[f] rows and a rule: KEY_CHECKED (the key itself,
    which must be inside the table), KEY_MODULO (the mathematical modulo), KEY_HASHED (a string's hash: the key as
    uint64, modulo rows); features of any other rule are passed over. Returns the position of the first key outside
    its table, -1 when all are fine.
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
    """Uniform [low, high) initial weights of keys[i] in row rows[i] of weights [:, padded_dim], float32 or bfloat16
    (as uint16: the float32, rounded to the nearest, half to even).

    A pure function of (stream, key, element), so the same bits whoever makes the row and whenever; columns from
    `dim` on are 0. `stream` is `hashing.initial_stream(seed, embedding name)`.
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
    """Row rows[i] of bfloat16 weights [:, k] becomes exact[i] (bits of finite float32), rounded to the nearest, half to
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
        # One hash makes two numbers of 24 bits, which is what a float32 in [0, 1) holds.
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
    """Stamps rows (int64 [n], -1 skipped) of a table as seen; free rows (seen == 0) stay free."""
    stamp = np.uint32(value)
    for i in range(len(rows)):
        row = rows[i]
        if row >= 0 and seen[row] != 0 and seen[row] != stamp:
            seen[row] = stamp
