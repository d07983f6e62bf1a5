"""Vectors of 4 or 16 float32 ("lanes"), with which the row kernels calculate.

The compiler vectorises a loop over one row badly: the length is known only at run time, rows are short, and source and
target may overlap. So kernels use explicit vectors: they `load` sixteen or four elements, calculate, and `store` them.
LLVM splits a vector that is wider than the machine's registers.

Rows are float32, or bfloat16 kept as uint16 (the upper half of a float32). A store to bfloat16 rounds stochastically
(Gupta et al. 2015, "Deep Learning with Limited Numerical Precision"): it rounds up with a probability equal to the part
that is cut off, so that updates far below the precision of a row count on average. The random numbers are a hash of a
seed and the position of an element. `store_nearest` rounds to the nearest bfloat16 instead: activations and their
gradients are used once, so nothing accumulates that rounding could swallow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

__all__ = [
    "GOLDEN",
    "Array",
    "Lanes",
    "add",
    "divide",
    "greater",
    "lane",
    "load",
    "mask",
    "multiply",
    "multiply_add",
    "splat",
    "splat_of",
    "square_root",
    "store",
    "store_nearest",
    "subtract",
    "total",
    "transpose",
    "zeros4",
    "zeros16",
]

Array = npt.NDArray[np.float32] | npt.NDArray[np.uint16]


class Lanes:
    """Four or sixteen float32 in a kernel, between a `load` and a `store`. Python code never makes one."""


class _Bfloat16(ir.Type):
    """LLVM's type of that name, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"


_BFLOAT16 = _Bfloat16()
_INT16, _INT32, _INT64, _FLOAT = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_EXPONENT = 0x7F800000
GOLDEN = 0x9E3779B97F4A7C15
_MIX64_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))  # as in `hashing.mix64`


class LanesType(types.Type):
    """The numba type of a vector of `count` lanes."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"float32x{count}")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        super().__init__(manager, lanes, ir.VectorType(_FLOAT, lanes.count))


def _constants(element: ir.Type, values: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, len(values)), values)


def _same(element: ir.Type, value: int, count: int) -> ir.Constant:
    return _constants(element, [value] * count)


def _broadcast(builder: Any, scalar: Any, count: int) -> Any:
    lanes = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    for i in range(count):
        lanes = builder.insert_element(lanes, scalar, ir.Constant(_INT32, i))
    return lanes


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any, element: ir.Type) -> Any:
    first = builder.gep(make_array(array_type)(context, builder, array).data, [position])
    return builder.bitcast(first, element.as_pointer())


def _zeros(count: int) -> Callable[[Any], Any]:
    def zeros(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir.Constant(ir.VectorType(_FLOAT, count), [0.0] * count)

        return LanesType(count)(), generate

    return zeros


def _splat(typing_context: Any, value: Any, like: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, arguments[0], like.count)

    return like(types.float32, like), generate


def _splat_of(typing_context: Any, array: Any, position: Any, like: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, at, _ = arguments
        pointer = _pointer(context, builder, signature.args[0], data, at, _FLOAT)
        return _broadcast(builder, builder.load(pointer, align=4), like.count)

    return like(array, types.intp, like), generate


def _load(typing_context: Any, array: Any, position: Any, like: Any) -> Any:
    count, narrow = like.count, array.dtype == types.uint16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(_INT16 if narrow else _FLOAT, count)
        data, at, _ = arguments
        pointer = _pointer(context, builder, signature.args[0], data, at, vector)
        loaded = builder.load(pointer, align=2 if narrow else 4)
        if not narrow:
            return loaded
        bits = builder.shl(builder.zext(loaded, ir.VectorType(_INT32, count)), _same(_INT32, 16, count))
        return builder.bitcast(bits, ir.VectorType(_FLOAT, count))

    return like(array, types.intp, like), generate


def _noise(builder: Any, seed: Any, position: Any, count: int) -> Any:
    """<count x i32> of 16 random bits each: lanes 4 i to 4 i + 3 are mix64(seed + (position / 4 + i) * GOLDEN)."""
    fours = count // 4
    first = builder.lshr(position, ir.Constant(_INT64, 2))
    counters = builder.add(_broadcast(builder, first, fours), _constants(_INT64, list(range(fours))))
    mixed = builder.mul(counters, _same(_INT64, GOLDEN, fours))
    mixed = builder.add(mixed, _broadcast(builder, seed, fours))
    for shift, factor in _MIX64_STEPS:
        mixed = builder.xor(mixed, builder.lshr(mixed, _same(_INT64, shift, fours)))
        mixed = builder.mul(mixed, _same(_INT64, factor, fours))
    return builder.zext(builder.bitcast(mixed, ir.VectorType(_INT16, count)), ir.VectorType(_INT32, count))


def _rounded(builder: Any, lanes: Any, seed: Any, position: Any, count: int) -> Any:
    """<count x i16>: float32 lanes cut to bfloat16 after noise was added to the bits that are cut off. Infinities and
    NaN get no noise."""
    bits = builder.bitcast(lanes, ir.VectorType(_INT32, count))
    exponent = builder.and_(bits, _same(_INT32, _EXPONENT, count))
    finite = builder.icmp_unsigned("!=", exponent, _same(_INT32, _EXPONENT, count))
    noise = builder.select(finite, _noise(builder, seed, position, count), _same(_INT32, 0, count))
    cut = builder.lshr(builder.add(bits, noise), _same(_INT32, 16, count))
    return builder.trunc(cut, ir.VectorType(_INT16, count))


def _store(typing_context: Any, array: Any, position: Any, lanes: Any, seed: Any) -> Any:
    count, narrow = lanes.count, array.dtype == types.uint16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, at, value, noise_seed = arguments
        pointer = _pointer(
            context, builder, signature.args[0], data, at, ir.VectorType(_INT16, count) if narrow else value.type
        )
        if narrow:
            value = _rounded(builder, value, noise_seed, at, count)
        builder.store(value, pointer, align=2 if narrow else 4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes, types.uint64), generate


def _nearest(builder: Any, lanes: Any, count: int) -> Any:
    """<count x i16>: float32 lanes rounded to the nearest bfloat16, halves to the even one. This is one instruction on
    a CPU with AVX512-BF16, which takes numbers below 2^-126 as zeros, and several on others."""
    return builder.bitcast(builder.fptrunc(lanes, ir.VectorType(_BFLOAT16, count)), ir.VectorType(_INT16, count))


def _store_nearest(typing_context: Any, array: Any, position: Any, lanes: Any) -> Any:
    count, narrow = lanes.count, array.dtype == types.uint16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, at, value = arguments
        kind = ir.VectorType(_INT16, count) if narrow else value.type
        pointer = _pointer(context, builder, signature.args[0], data, at, kind)
        builder.store(_nearest(builder, value, count) if narrow else value, pointer, align=2 if narrow else 4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


def _lane(typing_context: Any, lanes: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(*arguments)

    return types.float32(lanes, types.intp), generate


def _total(typing_context: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        count = lanes.count
        while count > 1:  # adds halves, so the order of the additions is the same on every machine
            count //= 2
            halves = [_constants(_INT32, list(range(start, start + count))) for start in (0, count)]
            value = builder.fadd(*(builder.shuffle_vector(value, value, half) for half in halves))
        return builder.extract_element(value, ir.Constant(_INT32, 0))

    return types.float32(lanes), generate


def _square_root(typing_context: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = arguments[0].type
        function = ir.FunctionType(vector, [vector])
        return builder.call(
            cgutils.get_or_insert_function(builder.module, function, f"llvm.sqrt.v{lanes.count}f32"), arguments
        )

    return lanes(lanes), generate


def _multiply_add(typing_context: Any, left: Any, right: Any, addend: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = arguments[0].type
        function = ir.FunctionType(vector, [vector] * 3)
        return builder.call(
            cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.v{left.count}f32"), arguments
        )

    return left(left, left, left), generate


def _greater(typing_context: Any, left: Any, right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, other = arguments
        return builder.select(builder.fcmp_ordered("<", one, other), other, one)

    return left(left, left), generate


def _mask(typing_context: Any, source: Any, mask: Any, target: Any, position: Any, like: Any) -> Any:
    narrow = source.dtype == types.uint16
    element, magnitude, align = (_INT16, 0x7FFF, 2) if narrow else (_INT32, 0x7FFFFFFF, 4)
    vector, zeros = ir.VectorType(element, like.count), _same(element, 0, like.count)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, masks, to = (
            _pointer(context, builder, signature.args[which], arguments[which], arguments[3], vector)
            for which in range(3)
        )
        is_zero = builder.icmp_unsigned(
            "==",
            builder.and_(builder.load(masks, align=align), _same(element, magnitude, like.count)),
            zeros,
        )
        kept = builder.select(is_zero, zeros, builder.load(values, align=align))
        builder.store(kept, to, align=align)
        return context.get_dummy_value()

    return types.void(source, mask, target, types.intp, like), generate


def _butterfly(builder: Any, rows: list[Any]) -> list[Any]:
    """The transpose of a square. In each of log2(count) rounds, rows a power of two apart swap halves."""
    count, apart = len(rows), 1
    while apart < count:
        low = _constants(_INT32, [i if not i & apart else count + i - apart for i in range(count)])
        high = _constants(_INT32, [i + apart if not i & apart else count + i for i in range(count)])
        swapped = list(rows)
        for row in range(count):
            if not row & apart:
                pair = rows[row], rows[row + apart]
                swapped[row] = builder.shuffle_vector(*pair, low)
                swapped[row + apart] = builder.shuffle_vector(*pair, high)
        rows, apart = swapped, 2 * apart
    return rows


def _transpose(
    typing_context: Any, source: Any, start: Any, width: Any, target: Any, place: Any, target_width: Any, like: Any
) -> Any:
    narrow = source.dtype == types.uint16
    vector, align = ir.VectorType(_INT16 if narrow else _FLOAT, like.count), 2 if narrow else 4

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def line(which: int, row: int) -> Any:
            array, at, apart = arguments[which : which + 3]
            position = builder.add(at, builder.mul(apart, ir.Constant(apart.type, row)))
            return _pointer(context, builder, signature.args[which], array, position, vector)

        rows = [builder.load(line(0, row), align=align) for row in range(like.count)]
        for row, value in enumerate(_butterfly(builder, rows)):
            builder.store(value, line(3, row), align=align)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp, like), generate


def _arithmetic(instruction: str) -> Any:
    def calculate(typing_context: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments)

        return left(left, left), generate

    return intrinsic(calculate)


zeros4 = cast(Callable[[], Lanes], intrinsic(_zeros(4)))
zeros16 = cast(Callable[[], Lanes], intrinsic(_zeros(16)))
# splat(value, like): a vector with as many lanes as `like`, all equal to the value.
splat = cast(Callable[[Any, Lanes], Lanes], intrinsic(_splat))
# splat_of(array, position, like): as splat(array[position], like) for float32, without the test whether the position is
# negative, which numba makes and which takes longer than the calculation in a loop of products.
splat_of = cast(Callable[[Array, int, Lanes], Lanes], intrinsic(_splat_of))
# load(array, position, like): the elements of a flat array from `position` on, as many as `like` has lanes.
load = cast(Callable[[Array, int, Lanes], Lanes], intrinsic(_load))
# store(array, position, lanes, seed): only a store to bfloat16 uses the seed.
store = cast(Callable[[Array, int, Lanes, np.uint64], None], intrinsic(_store))
# store_nearest(array, position, lanes): a store to bfloat16 rounds to the nearest.
store_nearest = cast(Callable[[Array, int, Lanes], None], intrinsic(_store_nearest))
lane = cast(Callable[[Lanes, int], np.float32], intrinsic(_lane))
total = cast(Callable[[Lanes], np.float32], intrinsic(_total))
square_root = cast(Callable[[Lanes], Lanes], intrinsic(_square_root))
add = cast(Callable[[Lanes, Lanes], Lanes], _arithmetic("fadd"))
subtract = cast(Callable[[Lanes, Lanes], Lanes], _arithmetic("fsub"))
multiply = cast(Callable[[Lanes, Lanes], Lanes], _arithmetic("fmul"))
divide = cast(Callable[[Lanes, Lanes], Lanes], _arithmetic("fdiv"))
# multiply_add(left, right, addend): left * right + addend, rounded once.
multiply_add = cast(Callable[[Lanes, Lanes, Lanes], Lanes], intrinsic(_multiply_add))
# greater(left, right): the greater element of each lane, and `left` where it is NaN.
greater = cast(Callable[[Lanes, Lanes], Lanes], intrinsic(_greater))
# mask(source, mask, target, position, like): copies float32 or bfloat16 (all three alike) from `position` on, as many
# as `like` has lanes, and zeros where the elements of `mask` are zero.
mask = cast(Callable[[Array, Array, Array, int, Lanes], None], intrinsic(_mask))
# transpose(source, start, width, target, place, target_width, like): transposes a square with as many rows and columns
# as `like` has lanes, of float32 or of bfloat16 (source and target alike). Source rows begin `width` elements apart,
# target rows `target_width` elements.
transpose = cast(Callable[[Array, int, int, Array, int, int, Lanes], None], intrinsic(_transpose))
