"""The one way this package compiles a kernel: cached on disk, and without Python's interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(kernel: Kernel) -> Kernel:
    """Compile `kernel` with numba when it is first called; later processes load it from numba's cache."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(kernel))
