"""How this package makes Triton kernels: the decorator, the constants, and the conversion of addresses to pointers.

Rows lie in memory that torch does not own: the mapped arena, or memory of the GPU that another process holds. So
kernels receive addresses, int64, and convert them.

With TRITON_INTERPRET=1 in the environment Triton runs the same kernels on the CPU, on memory of the CPU. Tests do so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import triton
import triton.language as tl

__all__ = ["IS_INTERPRETED", "KERNEL_WIDTHS", "ceil_divide", "kernel", "padded_width", "tl"]

IS_INTERPRETED = bool(triton.knobs.runtime.interpret)  # whether Triton interprets the kernels of this process

KERNEL_WIDTHS = (4, 8, 16, 32, 64, 128, 256)  # widths of a row, in elements, for which kernels are compiled

kernel = cast(Callable[[Callable[..., Any]], Any], triton.jit)


def ceil_divide(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)


def padded_width(elements: int) -> int:
    """The smallest width of `KERNEL_WIDTHS` that holds a row of `elements` elements. Raises ValueError."""
    for width in KERNEL_WIDTHS:
        if width >= elements:
            return width
    raise ValueError(f"a row of {elements} elements is wider than {KERNEL_WIDTHS[-1]}, the widest that kernels take")
