"""Dot interaction of DLRM, forward and backward, without the half of the products that is thrown away.

With x_0 the dense features' vector and x_1 .. x_F the embeddings (F + 1 = `fields` vectors of `dim` floats):

    out  = (x_0, <x_i, x_j> for i < j in order of i, then j)         Naumov et al. 2019, section 2.1
    dx_i = sum_(j > i) g_ij x_j + sum_(j < i) g_ji x_j               (U + U^T) X, with U the triangle of gradients
    dx_0 += the gradient of the copy of x_0

A sample's vectors fit the first-level cache, so one sample is one small matrix product kept in registers: torch's bmm
over [B, F + 1, dim] with its index and scatter takes about six times as long (measured on two AVX-512 machines).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled
from elastichost.worker.vector_code import (
    LANES,
    ROWS_PER_BLOCK,
    copy_vector,
    multiply_symmetric,
    products_of_four,
    products_of_one,
    transpose_square,
)

__all__ = ["interact", "interact_backward", "interaction_width", "warm"]

Float32 = npt.NDArray[np.float32]

# Whole vectors are stored: the last line of a sample writes at most LANES + 2 floats too far.
_ROOM = 2 * LANES


@compiled
def interaction_width(fields: int, dim: int) -> int:
    """Columns of the output: dim + fields (fields - 1) / 2."""
    return dim + fields * (fields - 1) // 2


@compiled
def _whole(size: int) -> int:
    return (size + LANES - 1) // LANES * LANES


@compiled
def _copy_floats(source: Float32, start: int, target: Float32, place: int, count: int) -> None:
    if count % LANES == 0:
        for offset in range(0, count, LANES):
            copy_vector(source, start + offset, target, place + offset)
    else:
        for offset in range(count):
            target[place + offset] = source[start + offset]


@compiled
def _gather(dense: Float32, sparse: Float32, sample: int, fields: int, dim: int, rows: Float32) -> None:
    """The sample's vectors into `rows`, each on whole vectors of its own, zeros behind."""
    width = _whole(dim)
    _copy_floats(dense, sample * dim, rows, 0, dim)
    start = sample * (fields - 1) * dim
    if width == dim:
        _copy_floats(sparse, start, rows, dim, (fields - 1) * dim)
    else:
        for field in range(fields - 1):
            _copy_floats(sparse, start + field * dim, rows, (field + 1) * width, dim)


@compiled
def _triangle(rows: Float32, columns: Float32, fields: int, dim: int, out: Float32, place: int) -> None:
    """Products of all pairs into `out` from `place` on. A line's last vector runs over into the next lines, which
    are stored after it: so lines ascend, and among four lines the vectors furthest to the right come first."""
    width, line = _whole(dim), _whole(fields) + LANES
    first = 0
    while first + 4 < fields:
        length = fields - 1 - first
        column = (length - 1) // LANES * LANES
        while column >= 0:
            products_of_four(
                rows, first * width, width, columns, first + 1 + column, line, dim, out, place + column, length
            )
            column -= LANES
        place += 4 * length - 6
        first += 4
    while first + 1 < fields:
        length = fields - 1 - first
        for column in range(0, length, LANES):
            products_of_one(
                rows, first * width, width, columns, first + 1 + column, line, dim, out, place + column, length
            )
        place += length
        first += 1


@compiled
def interact(dense: Float32, sparse: Float32, out: Float32, samples: int, fields: int, dim: int) -> None:
    """float32 dense [samples * dim], sparse [samples * (fields - 1) * dim] -> out [samples * interaction_width]."""
    width, line, columns_out = _whole(dim), _whole(fields) + LANES, interaction_width(fields, dim)
    rows = np.zeros(_whole(fields) * width, np.float32)
    columns = np.zeros(width * line + _ROOM, np.float32)
    apart = np.zeros(columns_out + _ROOM, np.float32)
    for sample in range(samples):
        _gather(dense, sparse, sample, fields, dim, rows)
        for field in range(0, fields, LANES):
            for element in range(0, dim, LANES):
                transpose_square(rows, field * width + element, width, columns, element * line + field, line)
        start = sample * columns_out
        if (samples - 1 - sample) * columns_out >= _ROOM:
            _copy_floats(dense, sample * dim, out, start, dim)
            _triangle(rows, columns, fields, dim, out, start + dim)
        else:  # near the end of `out` there is no room to write too far
            _copy_floats(dense, sample * dim, apart, 0, dim)
            _triangle(rows, columns, fields, dim, apart, dim)
            for column in range(columns_out):
                out[start + column] = apart[column]


@compiled
def _upper(gradient: Float32, place: int, fields: int, room: bool, upper: Float32) -> None:
    """The gradients of all pairs as a matrix with rows LANES longer than needed: what runs over stays there."""
    line = _whole(fields) + LANES
    for row in range(fields - 1):
        length = fields - 1 - row
        target = row * line + row + 1
        if room:
            for column in range(0, length, LANES):
                copy_vector(gradient, place + column, upper, target + column)
        else:
            for column in range(length):
                upper[target + column] = gradient[place + column]
        place += length


@compiled
def interact_backward(
    dense: Float32,
    sparse: Float32,
    gradient: Float32,
    dense_gradient: Float32,
    sparse_gradient: Float32,
    samples: int,
    fields: int,
    dim: int,
) -> None:
    """Gradients of `interact`'s inputs, in their shapes, from float32 gradient [samples * interaction_width]."""
    width, line, columns_out = _whole(dim), _whole(fields) + LANES, interaction_width(fields, dim)
    rows = np.zeros(_whole(fields) * width, np.float32)
    upper = np.zeros(_whole(fields) * line + _ROOM, np.float32)
    sums = np.zeros(_whole(fields) * width, np.float32)
    for sample in range(samples):
        _gather(dense, sparse, sample, fields, dim, rows)
        start = sample * columns_out
        _upper(gradient, start + dim, fields, (samples - 1 - sample) * columns_out >= LANES, upper)
        for first in range(0, fields, ROWS_PER_BLOCK):
            stop = min(first + ROWS_PER_BLOCK, fields)
            for element in range(0, dim, LANES):
                place = first * width + element
                multiply_symmetric(upper, first, line, fields, stop, rows, element, width, sums, place, width)
        for element in range(dim):
            dense_gradient[sample * dim + element] = sums[element] + gradient[start + element]
        target = sample * (fields - 1) * dim
        if width == dim:
            _copy_floats(sums, dim, sparse_gradient, target, (fields - 1) * dim)
        else:
            for field in range(fields - 1):
                _copy_floats(sums, (field + 1) * width, sparse_gradient, target + field * dim, dim)


def warm() -> None:
    """Compiles the kernels, or loads them from the cache on disk."""
    dense, sparse, out = np.zeros(1, np.float32), np.zeros(1, np.float32), np.zeros(2, np.float32)
    interact(dense, sparse, out, 1, 2, 1)
    interact_backward(dense, sparse, out, dense, sparse, 1, 2, 1)
