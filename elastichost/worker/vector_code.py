"""Sixteen floats at a time, inside numba kernels.

numba has no vector type, and its loops over a handful of floats spend more on their prologues than on the work.
These intrinsics emit LLVM's own vector instructions; where a core has narrower registers LLVM splits them. All work
on flat float32 arrays at element offsets, unaligned, without bounds checks: a block always moves whole vectors, so
callers leave room of `LANES` floats behind what they address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = [
    "LANES",
    "ROWS_PER_BLOCK",
    "copy_vector",
    "multiply_symmetric",
    "products_of_four",
    "products_of_one",
    "transpose_square",
]

LANES = 16
ROWS_PER_BLOCK = 8

Float32 = npt.NDArray[np.float32]

_WORD = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_MASK = ir.VectorType(_WORD, LANES)
_INT = types.intp


class _Code:
    """One intrinsic's arguments as LLVM values, by position, and the instructions they need."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        self._values = [
            make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        self._add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{LANES}f32"
        )

    def __getitem__(self, position: int) -> Any:
        return self._values[position]

    def at(self, start: Any, step: Any, times: int) -> Any:
        """start + step * times"""
        return self.builder.add(start, self.builder.mul(step, ir.Constant(start.type, times))) if times else start

    def load(self, array: Any, offset: Any) -> Any:
        pointer = self.builder.bitcast(self.builder.gep(array, [offset]), _VECTOR.as_pointer())
        return self.builder.load(pointer, align=4)

    def store(self, vector: Any, array: Any, offset: Any) -> None:
        pointer = self.builder.bitcast(self.builder.gep(array, [offset]), _VECTOR.as_pointer())
        self.builder.store(vector, pointer, align=4)

    def spread(self, array: Any, offset: Any) -> Any:
        """One float in all lanes."""
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        number = self.builder.load(self.builder.gep(array, [offset]))
        first = self.builder.insert_element(nothing, number, ir.Constant(_WORD, 0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(_MASK, [0] * LANES))

    def sums(self, count: int) -> list[Any]:
        """Vectors of zeros that `accumulate` adds to; LLVM keeps them in registers."""
        zeros = ir.Constant(_VECTOR, [0.0] * LANES)
        places = [cgutils.alloca_once(self.builder, _VECTOR) for _ in range(count)]
        for place in places:
            self.builder.store(zeros, place)
        return places

    def accumulate(self, total: Any, left: Any, right: Any) -> None:
        self.builder.store(self.builder.call(self._add, [left, right, self.builder.load(total)]), total)


def _copy(typing_context: Any, source: Any, start: Any, target: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        code.store(code.load(code[0], code[1]), code[2], code[3])
        return context.get_dummy_value()

    return types.void(source, _INT, target, _INT), generate


def _butterfly(code: _Code, rows: list[Any]) -> list[Any]:
    """The transpose of LANES vectors: log2(LANES) rounds in which rows a power of two apart swap halves."""
    apart = 1
    while apart < LANES:
        low = ir.Constant(_MASK, [lane if not lane & apart else LANES + lane - apart for lane in range(LANES)])
        high = ir.Constant(_MASK, [lane + apart if not lane & apart else LANES + lane for lane in range(LANES)])
        swapped = list(rows)
        for row in range(LANES):
            if not row & apart:
                swapped[row] = code.builder.shuffle_vector(rows[row], rows[row + apart], low)
                swapped[row + apart] = code.builder.shuffle_vector(rows[row], rows[row + apart], high)
        rows, apart = swapped, 2 * apart
    return rows


def _transpose(
    typing_context: Any, source: Any, start: Any, width: Any, target: Any, place: Any, target_width: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        rows = [code.load(code[0], code.at(code[1], code[2], row)) for row in range(LANES)]
        for row, vector in enumerate(_butterfly(code, rows)):
            code.store(vector, code[3], code.at(code[4], code[5], row))
        return context.get_dummy_value()

    return types.void(source, _INT, _INT, target, _INT, _INT), generate


def _products(count: int) -> Any:
    def define(
        typing_context: Any,
        rows: Any,
        row: Any,
        row_width: Any,
        columns: Any,
        column: Any,
        column_width: Any,
        terms: Any,
        out: Any,
        place: Any,
        length: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            code = _Code(context, builder, signature, arguments)
            sums = code.sums(count)
            with cgutils.for_range(builder, code[6]) as loop:
                line = builder.add(code[4], builder.mul(loop.index, code[5]))
                for number in range(count):
                    factor = code.spread(code[0], builder.add(code.at(code[1], code[2], number), loop.index))
                    step = builder.add(line, ir.Constant(line.type, number))
                    code.accumulate(sums[number], factor, code.load(code[3], step))
            place = code[8]
            for number in range(count):
                code.store(builder.load(sums[number]), code[7], place)
                place = builder.add(place, builder.sub(code[9], ir.Constant(place.type, number)))
            return context.get_dummy_value()

        return types.void(rows, _INT, _INT, columns, _INT, _INT, _INT, out, _INT, _INT), generate

    return define


def _symmetric(
    typing_context: Any,
    upper: Any,
    first: Any,
    upper_width: Any,
    count: Any,
    stop: Any,
    rows: Any,
    column: Any,
    row_width: Any,
    out: Any,
    place: Any,
    out_width: Any,
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        first, width = code[1], code[2]
        sums = code.sums(ROWS_PER_BLOCK)
        one = ir.Constant(first.type, 1)
        with cgutils.for_range_slice(builder, builder.add(first, one), code[3], one) as (term, _):
            vector = code.load(code[5], builder.add(code[6], builder.mul(term, code[7])))
            for number in range(ROWS_PER_BLOCK):
                line = builder.mul(code.at(first, one, number), width)
                code.accumulate(sums[number], code.spread(code[0], builder.add(line, term)), vector)
        with cgutils.for_range(builder, code[4]) as loop:
            vector = code.load(code[5], builder.add(code[6], builder.mul(loop.index, code[7])))
            line = builder.add(builder.mul(loop.index, width), first)
            for number in range(ROWS_PER_BLOCK):
                code.accumulate(sums[number], code.spread(code[0], code.at(line, one, number)), vector)
        for number in range(ROWS_PER_BLOCK):
            code.store(builder.load(sums[number]), code[8], code.at(code[9], code[10], number))
        return context.get_dummy_value()

    signature = types.void(upper, _INT, _INT, _INT, _INT, rows, _INT, _INT, out, _INT, _INT)
    return signature, generate


# copy_vector(source, start, target, place): one vector.
copy_vector = cast(Callable[[Float32, int, Float32, int], None], intrinsic(_copy))

# transpose_square(source, start, width, target, place, target_width): LANES x LANES floats of rows `width` apart.
transpose_square = cast(Callable[[Float32, int, int, Float32, int, int], None], intrinsic(_transpose))

# products_of_N(rows, row, row_width, columns, column, column_width, terms, out, place, length): for n < N
#   out[place_n : + LANES] = sum_k rows[row + n row_width + k] columns[column + n + k column_width : + LANES]
# with place_0 = place and place_(n+1) = place_n + length - n: N lines of an upper triangle's products, side by side.
_Products = Callable[[Float32, int, int, Float32, int, int, int, Float32, int, int], None]
products_of_one = cast(_Products, intrinsic(_products(1)))
products_of_four = cast(_Products, intrinsic(_products(4)))

# multiply_symmetric(upper, first, upper_width, count, stop, rows, column, row_width, out, place, out_width): with U the
# strict upper triangle in `upper` (zeros on and below the diagonal), for n < ROWS_PER_BLOCK and i = first + n
#   out[place + n out_width : + LANES] = sum_(k > first, k < count) U[i, k] rows[column + k row_width : + LANES]
#                                      + sum_(k < stop) U[k, i] rows[column + k row_width : + LANES]
# which is row i of (U + U^T) rows when stop >= i.
multiply_symmetric = cast(
    Callable[[Float32, int, int, int, int, Float32, int, int, Float32, int, int], None], intrinsic(_symmetric)
)
