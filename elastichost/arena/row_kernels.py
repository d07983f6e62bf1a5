"""Kernels over embedding rows: initial weights, gather, the fused optimizers, keys of fixed tables, deduplication."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, signed
from elastichost.arena.hashing import mix64

__all__ = [
    "KEY_CHECKED",
    "KEY_HASHED",
    "KEY_MODULO",
    "adagrad_rows",
    "first_bad_row",
    "fixed_rows",
    "gather_rows",
    "initialise_rows",
    "mark_seen",
    "rowwise_adagrad_rows",
    "sgd_rows",
    "unique_keys",
    "zero_rows",
]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15
# How `fixed_rows` turns a feature's keys into rows.
KEY_CHECKED, KEY_MODULO, KEY_HASHED = 0, 1, 2


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


@compiled
def unique_keys(keys: Int64) -> tuple[Int64, Int64]:
    """(unique int64 [u] in order of first appearance, inverse int64 [n]): unique[inverse] == keys."""
    count = len(keys)
    size = 16
    while size < 2 * count:
        size *= 2
    places = np.zeros(size, dtype=np.int32)  # position in unique, + 1
    unique = np.empty(count, dtype=np.int64)
    inverse = np.empty(count, dtype=np.int64)
    found = 0
    for i in range(count):
        key = keys[i]
        place = signed(mix64(key) & np.uint64(size - 1))
        while True:
            position = signed(places[place]) - 1
            if position < 0:
                unique[found] = key
                places[place] = found + 1
                inverse[i] = found
                found += 1
                break
            if unique[position] == key:
                inverse[i] = position
                break
            place = (place + 1) & (size - 1)
    return unique[:found].copy(), inverse


@compiled
def initialise_rows(
    weights: Float32, rows: Int64, keys: Int64, dim: int, low: float, high: float, stream: np.uint64
) -> None:
    """Uniform [low, high) initial weights of keys[i] in row rows[i] of float32 weights [:, padded_dim].

    A pure function of (stream, key, element), so the same bits whoever makes the row and whenever; columns from
    `dim` on are 0. `stream` is `hashing.initial_stream(seed, embedding name)`.
    """
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
def gather_rows(weights: Float32, rows: Int64, out: Float32) -> None:
    """float32 out [n, padded_dim]: the rows, zeros where the row is -1."""
    for i in range(len(rows)):
        row = rows[i]
        if row < 0:
            for element in range(out.shape[1]):
                out[i, element] = np.float32(0.0)
        else:
            for element in range(out.shape[1]):
                out[i, element] = weights[row, element]


@compiled
def first_bad_row(
    rows: Int64, row_space: int, bucket_rows: int, control: Int64, allocated: int, words: int, lowest: int
) -> int:
    """Position of the first row below `lowest`, from row_space on, or not allocated in its bucket; -1: all are fine.

    `control[allocated + bucket * words]` holds the rows allocated in that bucket; allocated < 0: all are.
    """
    for i in range(len(rows)):
        row = rows[i]
        if row < lowest or row >= row_space:
            return i
        if allocated >= 0 and row >= 0:
            bucket = row // bucket_rows
            if row - bucket * bucket_rows >= control[allocated + bucket * words]:
                return i
    return -1


@compiled
def mark_seen(seen: npt.NDArray[np.uint32], rows: Int64, value: int) -> None:
    """Stamps rows (int64 [n], -1 skipped) of a table as seen; free rows (seen == 0) stay free."""
    stamp = np.uint32(value)
    for i in range(len(rows)):
        row = rows[i]
        if row >= 0 and seen[row] != 0 and seen[row] != stamp:
            seen[row] = stamp


@compiled
def sgd_rows(weights: Float32, rows: Int64, gradients: Float32, learning_rate: float) -> None:
    """w -= lr * g for unique rows; float32 weights [:, padded_dim], gradients [n, padded_dim]."""
    rate = np.float32(learning_rate)
    for i in range(len(rows)):
        row = rows[i]
        for element in range(gradients.shape[1]):
            weights[row, element] -= rate * gradients[i, element]


@compiled
def adagrad_rows(
    weights: Float32, state: Float32, rows: Int64, gradients: Float32, learning_rate: float, eps: float
) -> None:
    """s += g^2; w -= lr / (sqrt(s) + eps) * g for unique rows; float32 state [:, padded_dim]."""
    rate, tiny = np.float32(learning_rate), np.float32(eps)
    for i in range(len(rows)):
        row = rows[i]
        for element in range(gradients.shape[1]):
            gradient = gradients[i, element]
            total = state[row, element] + gradient * gradient
            state[row, element] = total
            weights[row, element] -= rate * gradient / (np.sqrt(total) + tiny)


@compiled
def rowwise_adagrad_rows(
    weights: Float32, state: Float32, rows: Int64, gradients: Float32, learning_rate: float, eps: float
) -> None:
    """s += mean(g^2) over padded_dim; w -= lr / (sqrt(s) + eps) * g for unique rows; float32 state [:]."""
    rate, tiny = np.float32(learning_rate), np.float32(eps)
    width = gradients.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        squares = np.float32(0.0)
        for element in range(width):
            squares += gradients[i, element] * gradients[i, element]
        total = state[row] + squares / np.float32(width)
        state[row] = total
        factor = rate / (np.sqrt(total) + tiny)
        for element in range(width):
            weights[row, element] -= factor * gradients[i, element]
