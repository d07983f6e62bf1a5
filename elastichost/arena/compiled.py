"""How kernels are compiled, and the atomic loads and stores that shared memory needs.

The loads and stores that numba compiles are plain: the compiler may reorder, merge or repeat them. Words that two
processes exchange without a lock are therefore read with `load_acquire` and written with `store_release`, which is
sequentially consistent. On x86 such a load costs no more than a plain one.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from elastichost.host.kernel_cache import use_kernel_cache

__all__ = [
    "compiled",
    "exactly_compiled",
    "full_fence",
    "inlined",
    "kernel_ready",
    "load_acquire",
    "prefetch",
    "prefetch_written",
    "signed",
    "store_release",
]

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function to machine code that runs without the interpreter lock. Floats divide as in IEEE 754. The
    machine code is cached on disk where that is possible."""
    # reassoc and contract let LLVM vectorise sums of squares; the result is the same in every process of a host.
    return _kernel(function, error_model="numpy", fastmath={"reassoc", "contract"})


def exactly_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, but floats are added in the order of the source and divide as in Python, so the result is the same
    on every host."""
    return _kernel(function)


def _kernel(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    kernel = numba.njit(cache=use_kernel_cache(), nogil=True, **options)(function)
    _stamp(kernel, function)
    return cast(Callable[P, R], kernel)


def _stamp(kernel: Any, function: Callable[..., Any]) -> None:
    """Makes numba's cache valid only for the present state of all sources that the kernel may be compiled from. numba
    itself checks the file of the function only: after a change in a function that it calls, numba would load machine
    code that contains the old version."""
    cache = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if cache is None:
        return  # numba does not compile (NUMBA_DISABLE_JIT), or cannot write a cache
    folders = {Path(__file__).parent, _part_of(Path(function.__code__.co_filename))}
    cache._source_stamp = (cache._source_stamp, *(_digest(folder) for folder in sorted(folders)))


def _part_of(source: Path) -> Path:
    """The folder whose sources a kernel may call: the subpackage of elastichost that contains the file, or for a file
    outside elastichost its own folder."""
    package = Path(__file__).parents[1]
    if source.is_relative_to(package):
        return package / source.relative_to(package).parts[0]
    return source.parent


@functools.cache
def _digest(folder: Path) -> str:
    """A digest of all Python sources in a directory and below it."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for a function called in a kernel's inner loop: it is always inlined. LLVM by itself does not
    inline a function that takes many arrays."""
    kernel = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}, forceinline=True)(function)
    return cast(Callable[P, R], kernel)


def _element(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    return builder.gep(make_array(array_type)(context, builder, array).data, [position])


def _load(typing_context: Any, array: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(pointer, "acquire", 8)

    return array.dtype(array, types.intp), generate


def _store(typing_context: Any, array: Any, position: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], pointer, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


def _fence(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


def _prefetch(is_written: bool) -> Any:
    def prefetch_line(typing_context: Any, array: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte_pointer = ir.IntType(8).as_pointer()
            address = builder.bitcast(_element(context, builder, signature.args[0], *arguments), byte_pointer)
            flag = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte_pointer, flag, flag, flag])
            # declare_intrinsic builds the intrinsic's name, which depends on how this version of llvmlite types
            # pointers.
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], kind)
            # into every cache level, of data
            builder.call(function, [address, flag(int(is_written)), flag(3), flag(1)])
            return context.get_dummy_value()

        return types.void(array, types.intp), generate

    return intrinsic(prefetch_line)


class _Writable:
    """Presents the memory of a read-only array as writable through numpy's array protocol, and keeps it alive."""

    def __init__(self, source: npt.NDArray[Any]) -> None:
        self.source = source
        self.__array_interface__ = {**source.__array_interface__, "data": (source.ctypes.data, False)}


def kernel_ready(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The same values as a contiguous, aligned array that is flagged as writable, without a copy where possible.

    numba compiles a second version of a kernel for read-only or unaligned arrays, and arrays over received messages are
    read-only. The result may share memory with `array`, so kernels must not write to it.
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        return np.array(array, order="C")
    return array if flags.writeable else cast(npt.NDArray[Scalar], np.asarray(_Writable(array)))


# Converts to int64 inside kernels; there `int()` of an unsigned number stays unsigned.
signed = cast(Callable[[Any], int], np.int64)

# load_acquire(words, i) -> word and store_release(words, i, word), for one-dimensional int64 arrays only.
load_acquire = cast(Callable[[npt.NDArray[np.int64], int], int], intrinsic(_load))
store_release = cast(Callable[[npt.NDArray[np.int64], int, int], None], intrinsic(_store))
# full_fence(): other processes see every memory access before the fence ahead of every access after it.
full_fence = cast(Callable[[], None], intrinsic(_fence))
# prefetch(array, i): loads the cache line of an element in advance; a position outside the array is allowed.
prefetch = cast(Callable[[npt.NDArray[Any], int], None], _prefetch(is_written=False))
# prefetch_written(array, i): as `prefetch`, for a line that is going to be written.
prefetch_written = cast(Callable[[npt.NDArray[Any], int], None], _prefetch(is_written=True))
