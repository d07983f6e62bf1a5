"""Optimizer steps fused with the backward pass: the gradients of equal rows are summed, then each row of a batch is
updated once with the sum.

Rows are updated in chunks of sixteen. The dependent operations of one row (square root, division) then overlap with
those of other rows, and with the loads of weights and state, which are prefetched sixteen rows ahead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined
from elastichost.arena.rows.bag_chains import CHUNK_ROWS, GRADIENT_AT, chain_ids, sum_chain
from elastichost.arena.rows.bag_kernels import DIM, PADDED_DIM, ROWS_OFFSET, prefetch_row
from elastichost.arena.rows.lanes import (
    Array,
    add,
    divide,
    load,
    multiply,
    multiply_add,
    splat,
    square_root,
    store,
    subtract,
    total,
    zeros4,
    zeros16,
)
from elastichost.arena.rows.update_rates import DECAY, EPS, FIRST_SHARE, RATE, SECOND_SHARE
from elastichost.specs import RowOptimizer

__all__ = [
    "ADAGRAD",
    "ADAM",
    "FIRST_ENTRY",
    "OPTIMIZER",
    "OPTIMIZER_CODES",
    "ROWWISE_ADAGRAD",
    "SGD",
    "STATE_OFFSET",
    "STOP_ENTRY",
    "UPDATE_FIELDS",
    "state_floats",
    "update_chunk",
    "update_rows",
]

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

# Columns of `updates`, int64 [M, UPDATE_FIELDS], which has one line for each embedding.
FIRST_ENTRY = 0  # the entries of the embedding are entries[first_entry:stop_entry]
STOP_ENTRY = 1
STATE_OFFSET = 2  # elements of the flat state before the state of row 0
OPTIMIZER = 3
UPDATE_FIELDS = 4

SGD, ADAGRAD, ROWWISE_ADAGRAD, ADAM = 0, 1, 2, 3
OPTIMIZER_CODES: dict[RowOptimizer, int] = {
    "sgd": SGD,
    "adagrad": ADAGRAD,
    "rowwise_adagrad": ROWWISE_ADAGRAD,
    "adam": ADAM,
}


@inlined
def state_floats(optimizer: int, width: int) -> int:
    """Floats of optimizer state for each row of `width` elements."""
    if optimizer == ROWWISE_ADAGRAD:
        return 1
    if optimizer == ADAM:
        return 2 * width + 1
    return width if optimizer == ADAGRAD else 0


@inlined
def _sum_of_squares(line: Float32, at: int, width: int) -> np.float32:
    """The sum of the squares of `width` elements from line[at] on."""
    wide, narrow = zeros16(), zeros4()
    element = 0
    while element + 16 <= width:
        part = load(line, at + element, wide)
        wide = add(wide, multiply(part, part))
        element += 16
    while element < width:
        rest = load(line, at + element, narrow)
        narrow = add(narrow, multiply(rest, rest))
        element += 4
    return total(wide) + total(narrow)


@inlined
def _step_row(
    rows: Array,
    position: int,
    line: Float32,
    at: int,
    width: int,
    factor: np.float32,
    keep: np.float32,
    seed: np.uint64,
) -> None:
    """rows[position : position + width] = keep * rows[...] - factor * line[at : at + width]."""
    wide, narrow = zeros16(), zeros4()
    element = 0
    while element + 16 <= width:
        step = multiply(load(line, at + element, wide), splat(factor, wide))
        kept = multiply(load(rows, position + element, wide), splat(keep, wide))
        store(rows, position + element, subtract(kept, step), seed)
        element += 16
    while element < width:
        rest = multiply(load(line, at + element, narrow), splat(factor, narrow))
        kept4 = multiply(load(rows, position + element, narrow), splat(keep, narrow))
        store(rows, position + element, subtract(kept4, rest), seed)
        element += 4


@inlined
def _adagrad_row(
    rows: Array,
    position: int,
    state: Float32,
    state_at: int,
    line: Float32,
    at: int,
    width: int,
    rate: np.float32,
    eps: np.float32,
    keep: np.float32,
    seed: np.uint64,
) -> None:
    """Adagrad: s += g^2; w = keep * w - rate * g / (sqrt(s) + eps), for each element."""
    like = zeros4()
    for element in range(0, width, 4):
        summed = load(line, at + element, like)
        squares = add(load(state, state_at + element, like), multiply(summed, summed))
        store(state, state_at + element, squares, seed)
        step = divide(multiply(summed, splat(rate, like)), add(square_root(squares), splat(eps, like)))
        kept = multiply(load(rows, position + element, like), splat(keep, like))
        store(rows, position + element, subtract(kept, step), seed)


@inlined
def _adam_row(
    rows: Array,
    position: int,
    state: Float32,
    state_at: int,
    line: Float32,
    at: int,
    width: int,
    rates: Float32,
    number: int,
    keep: np.float32,
    seed: np.uint64,
) -> None:
    """Adam as in `RowOptimizerSpec`. State: m [width], v [width], t. t is exact up to 2^24; the corrections are 1 long
    before. They are computed in float64: 1 - b^t = -expm1(t log(b))."""
    first_share, second_share = rates[number, FIRST_SHARE], rates[number, SECOND_SHARE]
    seconds, counter = state_at + width, state_at + 2 * width
    count = state[counter] + np.float32(1.0)
    state[counter] = count
    first_sum = -np.expm1(np.float64(count) * np.log1p(-np.float64(first_share)))
    second_sum = -np.expm1(np.float64(count) * np.log1p(-np.float64(second_share)))
    rate, root = np.float32(rates[number, RATE] / first_sum), np.float32(np.sqrt(second_sum))
    one = np.float32(1.0)
    like = zeros4()
    for element in range(0, width, 4):
        slope = load(line, at + element, like)
        old_first, old_second = load(state, state_at + element, like), load(state, seconds + element, like)
        first = multiply_add(splat(one - first_share, like), old_first, multiply(splat(first_share, like), slope))
        square = multiply(multiply(splat(second_share, like), slope), slope)
        second = multiply_add(splat(one - second_share, like), old_second, square)
        store(state, state_at + element, first, seed)
        store(state, seconds + element, second, seed)
        spread = add(divide(square_root(second), splat(root, like)), splat(rates[number, EPS], like))
        step = divide(multiply(splat(rate, like), first), spread)
        kept = multiply(load(rows, position + element, like), splat(keep, like))
        store(rows, position + element, subtract(kept, step), seed)


@inlined
def _rowwise_factors(
    state: Float32,
    state_base: int,
    numbers: Int64,
    first: int,
    count: int,
    gradients: Float32,
    at: int,
    width: int,
    rate: np.float32,
    eps: np.float32,
    factors: Float32,
) -> None:
    """Row-wise Adagrad: s += mean(g^2) for each row, then factors[i] = rate / (sqrt(s) + eps) as one vector of 16."""
    for i in range(count):
        place = state_base + numbers[first + i]
        squares = state[place] + _sum_of_squares(gradients, at + i * width, width) / np.float32(width)
        factors[i] = squares
        state[place] = squares
    like = zeros16()
    roots = add(square_root(load(factors, 0, like)), splat(eps, like))
    store(factors, 0, divide(splat(rate, like), roots), np.uint64(0))


@inlined
def update_chunk(
    rows: Array,
    base: int,
    state: Float32,
    state_base: int,
    numbers: Int64,
    first: int,
    count: int,
    gradients: Float32,
    at: int,
    width: int,
    optimizer: int,
    rates: Float32,
    number: int,
    factors: Float32,
    seed: np.uint64,
) -> None:
    """Updates the distinct rows numbers[first : first + count] of one embedding; count is at most CHUNK_ROWS.

    rates[number]: the embedding's line of `update_rates.kernel_rates`. gradients: float32, a line of `width` floats for
    each row, from gradients[at] on. base, state_base: where row 0 and
    its state begin. factors: float32 [CHUNK_ROWS], overwritten.
    """
    rate, eps, keep = rates[number, RATE], rates[number, EPS], np.float32(1.0) - rates[number, DECAY]
    if optimizer == ADAGRAD:
        for i in range(count):
            offset, line = numbers[first + i] * width, at + i * width
            _adagrad_row(rows, base + offset, state, state_base + offset, gradients, line, width, rate, eps, keep, seed)
        return
    if optimizer == ADAM:
        for i in range(count):
            row, line = numbers[first + i], at + i * width
            state_at = state_base + row * (2 * width + 1)
            _adam_row(rows, base + row * width, state, state_at, gradients, line, width, rates, number, keep, seed)
        return
    if optimizer == ROWWISE_ADAGRAD:
        _rowwise_factors(state, state_base, numbers, first, count, gradients, at, width, rate, eps, factors)
    else:
        factors[:] = rate
    for i in range(count):
        position = base + numbers[first + i] * width
        _step_row(rows, position, gradients, at + i * width, width, factors[i], keep, seed)


@compiled
def update_rows(
    rows: Array,
    state: Float32,
    entries: Int64,
    updates: Int64,
    rates: Float32,
    values: Int64,
    offsets: Int64,
    gradient: Array,
    slots: Int32,
    distinct: Int64,
    last_ids: Int64,
    chain: Int64,
    scales: Float32,
    lines: Float32,
    seed: np.uint64,
) -> None:
    """The backward pass of `bag_kernels.pool_bags` and the optimizer step: one update for each distinct row.

    rows: float32, or bfloat16 as uint16, flat. state: float32, flat. entries: int64 [E, ENTRY_FIELDS]. updates: int64
    [M, UPDATE_FIELDS]. rates: float32 [M, RATE_FIELDS], see `update_rates`. gradient: float32 or bfloat16, laid out as
    the output of `pool_bags`. `slots` to `lines` are the arrays of an `UpdateWorkspace`. seed: of the stochastic
    rounding of bfloat16, a different one for each call.
    """
    factors = np.zeros(CHUNK_ROWS, np.float32)
    for m in range(len(updates)):
        e, optimizer, state_base = updates[m, FIRST_ENTRY], updates[m, OPTIMIZER], updates[m, STATE_OFFSET]
        base, dim, width = entries[e, ROWS_OFFSET], entries[e, DIM], entries[e, PADDED_DIM]
        state_width = state_floats(optimizer, width)
        stop = updates[m, STOP_ENTRY]
        found = chain_ids(entries, e, stop, values, offsets, slots, distinct, last_ids, chain, scales)
        for first in range(0, found, CHUNK_ROWS):
            count = min(CHUNK_ROWS, found - first)
            for i in range(count):
                later = min(first + i + CHUNK_ROWS, found - 1)
                prefetch_row(rows, base + distinct[later] * width, width)
                prefetch_row(state, state_base + distinct[later] * state_width, state_width)
                prefetch_row(gradient, chain[last_ids[later], GRADIENT_AT], dim)
                sum_chain(last_ids[first + i], chain, scales, gradient, dim, width, lines, i * width)
            update_chunk(
                rows,
                base,
                state,
                state_base,
                distinct,
                first,
                count,
                lines,
                0,
                width,
                optimizer,
                rates,
                m,
                factors,
                seed,
            )
