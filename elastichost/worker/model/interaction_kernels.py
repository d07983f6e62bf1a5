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

from elastichost.arena.compiled import compiled, inlined, prefetch, prefetch_written
from elastichost.arena.rows.lanes import (
    Array,
    add,
    load,
    multiply_add,
    splat_of,
    store,
    store_nearest,
    transpose,
    zeros16,
)

__all__ = [
    "LANES",
    "ROOM",
    "aligned_zeros",
    "gather",
    "interact",
    "interact_backward",
    "interaction_width",
    "prefetch_gradients",
    "prefetch_vectors",
    "scatter",
    "warm",
    "warm_narrow",
    "with_room",
    "write_triangle",
    "write_upper",
]

Float32 = npt.NDArray[np.float32]

LANES = 16
# Rows of a product that are computed at the same time. Machines with the fewest registers have room for 8 sums.
BLOCK = 8
LINE_BYTES = 64  # of the caches
# Only whole vectors are stored, so the last line of a sample writes at most LANES + 2 elements beyond its end. The
# output has this many elements more than it shows.
ROOM = 2 * LANES
_NO_SEED = np.uint64(0)


@compiled
def interaction_width(fields: int, dim: int) -> int:
    """The number of output columns: dim + fields (fields - 1) / 2."""
    return dim + fields * (fields - 1) // 2


@inlined
def aligned_zeros(count: int) -> Float32:
    """float32 [count], beginning with a line of the cache: a vector that lies in two lines takes two loads."""
    values = np.zeros(count + LINE_BYTES // 4, np.float32)
    first = -values.ctypes.data % LINE_BYTES // 4
    return values[first : first + count]


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
def prefetch_vectors(sparse: Array, sample: int, fields: int, dim: int) -> None:
    """Prefetches the vectors of a sample: the processor's own prefetcher stops while a sample is computed."""
    size = (fields - 1) * dim
    for element in range(sample * size, (sample + 1) * size, LINE_BYTES // sparse.itemsize):
        prefetch(sparse, element)


@inlined
def prefetch_gradients(gradient: Array, sample: int, fields: int, dim: int) -> None:
    """As `prefetch_vectors`, for gradients that are going to be written."""
    size = (fields - 1) * dim
    for element in range(sample * size, (sample + 1) * size, LINE_BYTES // gradient.itemsize):
        prefetch_written(gradient, element)


@inlined
def _multiply_wide(
    left: Float32, row: int, apart: int, right: Float32, column: int, line: int, terms: int, out: Float32, place: int
) -> None:
    """Four rows times 32 columns, `terms` products each: out = left right. Rows of `left` begin `apart` floats apart,
    rows of `right` and of `out` `line` floats."""
    zero = zeros16()
    a = b = c = d = e = f = g = h = zero
    for term in range(terms):
        at, behind = row + term, column + term * line
        low, high = load(right, behind, zero), load(right, behind + LANES, zero)
        a = multiply_add(splat_of(left, at, zero), low, a)
        b = multiply_add(splat_of(left, at, zero), high, b)
        c = multiply_add(splat_of(left, at + apart, zero), low, c)
        d = multiply_add(splat_of(left, at + apart, zero), high, d)
        e = multiply_add(splat_of(left, at + 2 * apart, zero), low, e)
        f = multiply_add(splat_of(left, at + 2 * apart, zero), high, f)
        g = multiply_add(splat_of(left, at + 3 * apart, zero), low, g)
        h = multiply_add(splat_of(left, at + 3 * apart, zero), high, h)
    store(out, place, a, _NO_SEED)
    store(out, place + LANES, b, _NO_SEED)
    store(out, place + line, c, _NO_SEED)
    store(out, place + line + LANES, d, _NO_SEED)
    store(out, place + 2 * line, e, _NO_SEED)
    store(out, place + 2 * line + LANES, f, _NO_SEED)
    store(out, place + 3 * line, g, _NO_SEED)
    store(out, place + 3 * line + LANES, h, _NO_SEED)


@inlined
def _multiply_tall(
    left: Float32, row: int, apart: int, right: Float32, column: int, line: int, terms: int, out: Float32, place: int
) -> None:
    """As `_multiply_wide`, eight rows times 16 columns."""
    zero = zeros16()
    a = b = c = d = e = f = g = h = zero
    for term in range(terms):
        at, vector = row + term, load(right, column + term * line, zero)
        a = multiply_add(splat_of(left, at, zero), vector, a)
        b = multiply_add(splat_of(left, at + apart, zero), vector, b)
        c = multiply_add(splat_of(left, at + 2 * apart, zero), vector, c)
        d = multiply_add(splat_of(left, at + 3 * apart, zero), vector, d)
        e = multiply_add(splat_of(left, at + 4 * apart, zero), vector, e)
        f = multiply_add(splat_of(left, at + 5 * apart, zero), vector, f)
        g = multiply_add(splat_of(left, at + 6 * apart, zero), vector, g)
        h = multiply_add(splat_of(left, at + 7 * apart, zero), vector, h)
    store(out, place, a, _NO_SEED)
    store(out, place + line, b, _NO_SEED)
    store(out, place + 2 * line, c, _NO_SEED)
    store(out, place + 3 * line, d, _NO_SEED)
    store(out, place + 4 * line, e, _NO_SEED)
    store(out, place + 5 * line, f, _NO_SEED)
    store(out, place + 6 * line, g, _NO_SEED)
    store(out, place + 7 * line, h, _NO_SEED)


@inlined
def _multiply(
    left: Float32,
    row: int,
    rows: int,
    apart: int,
    right: Float32,
    first: int,
    stop: int,
    line: int,
    terms: int,
    out: Float32,
) -> None:
    """BLOCK rows, or fewer at the end of `rows`, of a product, from row number `row` on: columns `first` to `stop` of
    out = left right, and up to 15 columns more. Rows of `left` begin `apart` floats apart, rows of `right` and of `out`
    `line` floats."""
    column, at = first, row * apart
    while column < stop:
        place = row * line + column
        if column + LANES < stop:
            _multiply_wide(left, at, apart, right, column, line, terms, out, place)
            if row + 4 < rows:
                _multiply_wide(left, at + 4 * apart, apart, right, column, line, terms, out, place + 4 * line)
            column += 2 * LANES
        else:
            _multiply_tall(left, at, apart, right, column, line, terms, out, place)
            column += LANES


@inlined
def write_triangle(products: Float32, line: int, fields: int, out: Array, place: int) -> None:
    """Writes what is above the diagonal of `products`, whose rows begin `line` floats apart, into `out` from `place`
    on, row after row. The overhang of the last vector of a row is overwritten by the next row."""
    for field in range(fields - 1):
        length = fields - 1 - field
        for column in range(0, length, LANES):
            store_nearest(out, place + column, load(products, field * line + field + 1 + column, zeros16()))
        place += length


@compiled
def interact(dense: Array, sparse: Array, out: Array, samples: int, fields: int, dim: int) -> None:
    """dense [samples * dim], sparse [samples * (fields - 1) * dim] -> out [samples * interaction_width + ROOM].
    All are float32; or dense and out are bfloat16, sparse is either, and dim is a multiple of 16."""
    width, line, columns_out = _whole(dim), _whole(fields) + LANES, interaction_width(fields, dim)
    rows = aligned_zeros(_whole(fields) * width)
    columns = aligned_zeros(width * line + ROOM)
    products = aligned_zeros(_whole(fields) * line + ROOM)
    for sample in range(samples):
        prefetch_vectors(sparse, sample + 1, fields, dim)
        gather(dense, sparse, sample, fields, dim, rows)
        for field in range(0, fields, LANES):
            for element in range(0, dim, LANES):
                transpose(rows, field * width + element, width, columns, element * line + field, line, zeros16())
        for row in range(0, fields - 1, BLOCK):
            _multiply(rows, row, fields - 1, width, columns, row + 1, fields, line, dim, products)
        start = sample * columns_out
        _copy_floats(dense, sample * dim, out, start, dim)
        write_triangle(products, line, fields, out, start + dim)


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
def _mirror(upper: Float32, fields: int, line: int, both: Float32) -> None:
    """both = U + U^T, in squares of LANES rows. What is beyond `fields` rows and columns has no meaning."""
    for row in range(0, fields, LANES):
        for column in range(row, fields, LANES):
            transpose(upper, row * line + column, line, both, column * line + row, line, zeros16())
            for place in range(row * line + column, (row + LANES) * line + column, line):
                lanes = load(upper, place, zeros16())
                if column == row:
                    lanes = add(lanes, load(both, place, lanes))
                store(both, place, lanes, _NO_SEED)


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
    rows, sums = aligned_zeros(_whole(fields) * width), aligned_zeros(_whole(fields) * width)
    upper = aligned_zeros(_whole(fields) * line + ROOM)
    both = aligned_zeros(_whole(fields) * line + ROOM)
    end = np.zeros(columns_out + ROOM, gradient.dtype)  # the last sample, with room behind it
    for sample in range(samples):
        prefetch_vectors(sparse, sample + 1, fields, dim)
        prefetch_gradients(sparse_gradient, sample + 1, fields, dim)
        gather(dense, sparse, sample, fields, dim, rows)
        source, start = with_room(gradient, sample, samples, columns_out, end)
        write_upper(source, start + dim, fields, upper, line)
        _mirror(upper, fields, line, both)
        for row in range(0, fields, BLOCK):
            _multiply(both, row, fields, line, rows, 0, dim, width, fields, sums)
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
