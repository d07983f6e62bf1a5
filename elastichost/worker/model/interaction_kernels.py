"""The dot interaction of DLRM, forward and backward, computing only the half of the products that is used.

With x_0 the dense features' vector and x_1 .. x_F the embeddings (F + 1 = `fields` vectors of `dim` floats):

    out  = (x_0, <x_i, x_j> for i < j in order of i, then j)         Naumov et al. 2019, section 2.1
    dx_i = sum_(j > i) g_ij x_j + sum_(j < i) g_ji x_j               (U + U^T) X, with U the triangle of gradients
    dx_0 += the gradient of the copy of x_0

Vectors are float32. With `train.precision = "bfloat16"` the dense vector, the output, and their gradients are bfloat16
(as uint16), because the layers around the interaction compute in bfloat16; products and sums are float32 all the same.

A sample's vectors fit into the first-level cache, so each sample is one small matrix product kept in registers. torch's
bmm over [B, F + 1, dim] with its index and scatter takes several times as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined
from elastichost.arena.rows.lanes import (
    Array,
    Lanes,
    add,
    load,
    multiply_add,
    splat,
    store,
    store_nearest,
    transpose,
    zeros16,
)

__all__ = [
    "LANES",
    "ROOM",
    "gather",
    "interact",
    "interact_backward",
    "interaction_width",
    "scatter",
    "warm",
    "warm_narrow",
    "with_room",
    "write_upper",
]

Float32 = npt.NDArray[np.float32]

LANES = 16
# Rows of (U + U^T) X that are summed at the same time: machines with the fewest registers have room for 8 sums.
BLOCK = 8
# Only whole vectors are stored, so the last line of a sample writes at most LANES + 2 elements beyond its end. The
# output has this many elements more than it shows.
ROOM = 2 * LANES
_NO_SEED = np.uint64(0)


@compiled
def interaction_width(fields: int, dim: int) -> int:
    """The number of output columns: dim + fields (fields - 1) / 2."""
    return dim + fields * (fields - 1) // 2


@inlined
def _whole(size: int) -> int:
    return (size + LANES - 1) // LANES * LANES


@inlined
def _copy_floats(source: Array, start: int, target: Array, place: int, count: int) -> None:
    """Arrays of different types are copied in whole vectors only."""
    if count % LANES == 0:
        for offset in range(0, count, LANES):
            store_nearest(target, place + offset, load(source, start + offset, zeros16()))
    else:
        for offset in range(count):
            target[place + offset] = source[start + offset]


@inlined
def gather(dense: Array, sparse: Array, sample: int, fields: int, dim: int, rows: Array) -> None:
    """Copies the sample's vectors into `rows`, each padded with zeros to a multiple of LANES floats."""
    width = _whole(dim)
    _copy_floats(dense, sample * dim, rows, 0, dim)
    start = sample * (fields - 1) * dim
    if width == dim:
        _copy_floats(sparse, start, rows, dim, (fields - 1) * dim)
    else:
        for field in range(fields - 1):
            _copy_floats(sparse, start + field * dim, rows, (field + 1) * width, dim)


@inlined
def _four_lines(
    rows: Float32, row: int, width: int, columns: Float32, column: int, line: int, dim: int
) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """Sixteen products for each of four vectors: vector n of the four with the vectors from `column + n` on."""
    zero = zeros16()
    first = second = third = fourth = zero
    for element in range(dim):
        at, behind = row + element, column + element * line
        first = multiply_add(splat(rows[at], zero), load(columns, behind, zero), first)
        second = multiply_add(splat(rows[at + width], zero), load(columns, behind + 1, zero), second)
        third = multiply_add(splat(rows[at + 2 * width], zero), load(columns, behind + 2, zero), third)
        fourth = multiply_add(splat(rows[at + 3 * width], zero), load(columns, behind + 3, zero), fourth)
    return first, second, third, fourth


@inlined
def _triangle(rows: Float32, columns: Float32, fields: int, dim: int, out: Array, place: int) -> None:
    """Writes the products of all pairs into `out` from `place` on. The last vector of a line overwrites the start of
    the next lines, so the next lines are stored later: lines are stored in ascending order, and within four lines the
    rightmost vectors first."""
    width, line = _whole(dim), _whole(fields) + LANES
    first = 0
    while first + 4 < fields:
        length = fields - 1 - first
        column = (length - 1) // LANES * LANES
        while column >= 0:
            at, row = place + column, first * width
            lines = _four_lines(rows, row, width, columns, first + 1 + column, line, dim)
            store_nearest(out, at, lines[0])
            store_nearest(out, at + length, lines[1])
            store_nearest(out, at + 2 * length - 1, lines[2])
            store_nearest(out, at + 3 * length - 3, lines[3])
            column -= LANES
        place += 4 * length - 6
        first += 4
    while first + 1 < fields:
        length = fields - 1 - first
        for column in range(0, length, LANES):
            products = zeros16()
            for element in range(dim):
                behind = load(columns, first + 1 + column + element * line, products)
                products = multiply_add(splat(rows[first * width + element], products), behind, products)
            store_nearest(out, place + column, products)
        place += length
        first += 1


@compiled
def interact(dense: Array, sparse: Array, out: Array, samples: int, fields: int, dim: int) -> None:
    """dense [samples * dim], sparse [samples * (fields - 1) * dim] -> out [samples * interaction_width + ROOM].
    All are float32; or dense and out are bfloat16, sparse is either, and dim is a multiple of 16."""
    width, line, columns_out = _whole(dim), _whole(fields) + LANES, interaction_width(fields, dim)
    rows = np.zeros(_whole(fields) * width, np.float32)
    columns = np.zeros(width * line + ROOM, np.float32)
    for sample in range(samples):
        gather(dense, sparse, sample, fields, dim, rows)
        for field in range(0, fields, LANES):
            for element in range(0, dim, LANES):
                transpose(rows, field * width + element, width, columns, element * line + field, line, zeros16())
        start = sample * columns_out
        _copy_floats(dense, sample * dim, out, start, dim)
        _triangle(rows, columns, fields, dim, out, start + dim)


@inlined
def write_upper(gradient: Array, place: int, fields: int, upper: Array, line: int) -> None:
    """Writes the gradients of all pairs as a matrix whose rows begin `line` elements apart, LANES more than needed: the
    overhang of the last vector of a row stays in that row."""
    for row in range(fields - 1):
        length = fields - 1 - row
        target = row * line + row + 1
        for column in range(0, length, LANES):
            store_nearest(upper, target + column, load(gradient, place + column, zeros16()))
        place += length


@inlined
def _block(
    upper: Float32, first: int, line: int, fields: int, rows: Float32, element: int, width: int, sums: Float32
) -> None:
    """Rows `first` to `first + BLOCK` of (U + U^T) X: sixteen elements of each, from `element` on."""
    zero = zeros16()
    a = b = c = d = e = f = g = h = zero
    at = first * line
    for term in range(first + 1, fields):  # above the diagonal: elements of U, whose rows are `line` floats apart
        vector, place = load(rows, element + term * width, zero), at + term
        a = multiply_add(splat(upper[place], zero), vector, a)
        b = multiply_add(splat(upper[place + line], zero), vector, b)
        c = multiply_add(splat(upper[place + 2 * line], zero), vector, c)
        d = multiply_add(splat(upper[place + 3 * line], zero), vector, d)
        e = multiply_add(splat(upper[place + 4 * line], zero), vector, e)
        f = multiply_add(splat(upper[place + 5 * line], zero), vector, f)
        g = multiply_add(splat(upper[place + 6 * line], zero), vector, g)
        h = multiply_add(splat(upper[place + 7 * line], zero), vector, h)
    for term in range(min(first + BLOCK, fields)):  # below the diagonal: elements of U^T, which are adjacent
        vector, place = load(rows, element + term * width, zero), term * line + first
        a = multiply_add(splat(upper[place], zero), vector, a)
        b = multiply_add(splat(upper[place + 1], zero), vector, b)
        c = multiply_add(splat(upper[place + 2], zero), vector, c)
        d = multiply_add(splat(upper[place + 3], zero), vector, d)
        e = multiply_add(splat(upper[place + 4], zero), vector, e)
        f = multiply_add(splat(upper[place + 5], zero), vector, f)
        g = multiply_add(splat(upper[place + 6], zero), vector, g)
        h = multiply_add(splat(upper[place + 7], zero), vector, h)
    target = first * width + element
    store(sums, target, a, _NO_SEED)
    store(sums, target + width, b, _NO_SEED)
    store(sums, target + 2 * width, c, _NO_SEED)
    store(sums, target + 3 * width, d, _NO_SEED)
    store(sums, target + 4 * width, e, _NO_SEED)
    store(sums, target + 5 * width, f, _NO_SEED)
    store(sums, target + 6 * width, g, _NO_SEED)
    store(sums, target + 7 * width, h, _NO_SEED)


@inlined
def with_room(gradient: Array, sample: int, samples: int, columns_out: int, end: Array) -> tuple[Array, int]:
    """(array, position) of the gradient of a sample's output, behind which whole vectors may be read. The last samples
    are copied to `end`, which has ROOM elements more than one sample."""
    start = sample * columns_out
    if (samples - 1 - sample) * columns_out >= LANES:
        return gradient, start
    for column in range(columns_out):
        end[column] = gradient[start + column]
    return end, 0


@inlined
def _dense_gradient(sums: Float32, gradient: Array, start: int, out: Array, place: int, dim: int) -> None:
    """The gradient of the dense vector: its products, and its copy in the output."""
    if dim % LANES == 0:
        for element in range(0, dim, LANES):
            copied = load(gradient, start + element, zeros16())
            store_nearest(out, place + element, add(load(sums, element, copied), copied))
    else:
        for element in range(dim):
            out[place + element] = sums[element] + gradient[start + element]


@inlined
def scatter(
    sums: Float32,
    gradient: Array,
    start: int,
    dense_gradient: Array,
    sparse_gradient: Array,
    sample: int,
    fields: int,
    dim: int,
) -> None:
    """The reverse of `gather`: writes the gradients of a sample's vectors from `sums`, whose rows are padded as there.
    start: where the gradient of the sample's output begins."""
    width = _whole(dim)
    _dense_gradient(sums, gradient, start, dense_gradient, sample * dim, dim)
    target = sample * (fields - 1) * dim
    if width == dim:
        _copy_floats(sums, dim, sparse_gradient, target, (fields - 1) * dim)
    else:
        for field in range(fields - 1):
            _copy_floats(sums, (field + 1) * width, sparse_gradient, target + field * dim, dim)


@compiled
def interact_backward(
    dense: Array,
    sparse: Array,
    gradient: Array,
    dense_gradient: Array,
    sparse_gradient: Array,
    samples: int,
    fields: int,
    dim: int,
) -> None:
    """Writes the gradients of `interact`'s inputs, in their shapes and types, from the gradient of its output
    [samples * interaction_width]."""
    width, line, columns_out = _whole(dim), _whole(fields) + LANES, interaction_width(fields, dim)
    rows = np.zeros(_whole(fields) * width, np.float32)
    upper = np.zeros(_whole(fields) * line + ROOM, np.float32)
    sums = np.zeros(_whole(fields) * width, np.float32)
    end = np.zeros(columns_out + ROOM, gradient.dtype)  # the last sample, with room behind it
    for sample in range(samples):
        gather(dense, sparse, sample, fields, dim, rows)
        source, start = with_room(gradient, sample, samples, columns_out, end)
        write_upper(source, start + dim, fields, upper, line)
        for first in range(0, fields, BLOCK):
            for element in range(0, dim, LANES):
                _block(upper, first, line, fields, rows, element, width, sums)
        scatter(sums, source, start, dense_gradient, sparse_gradient, sample, fields, dim)


def warm() -> None:
    """Compiles the kernels for float32, or loads them from the cache on disk."""
    _warm(np.zeros(1, np.float32), np.zeros(1, np.float32))


def warm_narrow() -> None:
    """Compiles the kernels for bfloat16, or loads them from the cache on disk."""
    for sparse in (np.zeros(1, np.float32), np.zeros(1, np.uint16)):
        _warm(np.zeros(1, np.uint16), sparse)


def _warm(dense: Array, sparse: Array) -> None:
    interaction_width(2, 1)
    out = np.zeros(2 + ROOM, dense.dtype)
    interact(dense, sparse, out, 1, 2, 1)
    interact_backward(dense, sparse, out, dense, sparse.copy(), 1, 2, 1)
