"""The tile registers of AMX in kernels: eight tiles of 16 rows x 64 bytes, and the product of two of them.

A tile holds 16 x 32 bfloat16 or 16 x 16 float32. `tile_multiply(c, a, b)` adds the product of the bfloat16 tiles a and
b to the float32 tile c. Row p of b holds rows 2 p and 2 p + 1 of the right matrix, interleaved (Intel 64 and IA-32
Architectures Software Developer's Manual, TDPBF16PS). Numbers of tiles are literals.

Kernels that use these functions may be compiled on a CPU with AMX only: `has_tiles` says so, and asks Linux once for
the permission to use the registers. A kernel saves the present configuration first and puts it back last, because
oneDNN runs in the same thread and keeps a configuration of its own.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from elastichost.host.cpu_features import bfloat16_unit, present_cpu

__all__ = [
    "configuration",
    "has_tiles",
    "pair_words",
    "save_tiles",
    "tile_load",
    "tile_multiply",
    "tile_store",
    "tile_zero",
    "use_tiles",
]

Words = npt.NDArray[np.uint16]
Float32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

CONFIGURATION_BYTES = 64
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


@functools.cache
def has_tiles() -> bool:
    """Whether kernels of this process may use AMX. Forked processes inherit the permission."""
    if platform.machine() != "x86_64" or bfloat16_unit(present_cpu()) != "AMX":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)


def configuration() -> Bytes:
    """The configuration for `use_tiles`: eight tiles of 16 rows x 64 bytes. uint8 [64]."""
    made = np.zeros(CONFIGURATION_BYTES, np.uint8)
    made[0] = 1  # the palette
    made[16:32].view(np.uint16)[:] = 64  # bytes of a row
    made[48:56] = 16  # rows
    return made


def _address(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), _INT8.as_pointer())


def _call(builder: Any, name: str, arguments: list[Any]) -> None:
    function = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.x86.{name}"), arguments)


def _configure(name: str) -> Any:
    def configure(typing_context: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first = ir.Constant(_INT64, 0)
            _call(builder, name, [_address(context, builder, signature.args[0], arguments[0], first)])
            return context.get_dummy_value()

        return types.void(array), generate

    return intrinsic(configure)


def _move(name: str) -> Any:
    def move(typing_context: Any, tile: Any, array: Any, position: Any, stride_bytes: Any) -> Any:
        number = ir.Constant(_INT8, tile.literal_value)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = _address(context, builder, signature.args[1], arguments[1], arguments[2])
            _call(builder, name, [number, address, arguments[3]])
            return context.get_dummy_value()

        return types.void(tile, array, types.intp, types.intp), generate

    return intrinsic(prefer_literal=True)(move)


def _of_numbers(name: str, count: int) -> Any:
    def generate_for(numbers: list[Any], signature: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _call(builder, name, [ir.Constant(_INT8, number.literal_value) for number in numbers])
            return context.get_dummy_value()

        return signature, generate

    def one(typing_context: Any, tile: Any) -> Any:
        return generate_for([tile], types.void(tile))

    def three(typing_context: Any, to: Any, left: Any, right: Any) -> Any:
        return generate_for([to, left, right], types.void(to, left, right))

    return intrinsic(prefer_literal=True)(one if count == 1 else three)


def _pair(typing_context: Any, source: Any, first: Any, second: Any, target: Any, place: Any) -> Any:
    words, doubles = ir.VectorType(_INT16, 16), ir.VectorType(_INT32, 16)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        low, high = (
            builder.zext(
                builder.load(
                    builder.bitcast(
                        _address(context, builder, signature.args[0], arguments[0], arguments[which]),
                        words.as_pointer(),
                    ),
                    align=2,
                ),
                doubles,
            )
            for which in (1, 2)
        )
        paired = builder.or_(low, builder.shl(high, ir.Constant(doubles, [16] * 16)))
        to = _address(context, builder, signature.args[3], arguments[3], arguments[4])
        builder.store(paired, builder.bitcast(to, doubles.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp), generate


# save_tiles(bytes): writes the present configuration. use_tiles(bytes): makes this one the present configuration.
save_tiles = cast(Callable[[Bytes], None], _configure("sttilecfg"))
use_tiles = cast(Callable[[Bytes], None], _configure("ldtilecfg"))
# tile_load(tile, array, position, stride_bytes): rows of 64 bytes, `stride_bytes` apart, from `position` on.
tile_load = cast(Callable[[int, Words | Float32, int, int], None], _move("tileloadd64"))
tile_store = cast(Callable[[int, Float32, int, int], None], _move("tilestored64"))
tile_zero = cast(Callable[[int], None], _of_numbers("tilezero", 1))
tile_multiply = cast(Callable[[int, int, int], None], _of_numbers("tdpbf16ps", 3))
# pair_words(source, first, second, target, place): sixteen bfloat16 from `first` on interleaved with sixteen from
# `second` on; target is float32, of which each element takes one pair.
pair_words = cast(Callable[[Words, int, int, Float32, int], None], intrinsic(_pair))
