"""The one way this package compiles a kernel: cached on disk, and without Python's interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from elastichost.host.kernel_cache import use_kernel_cache

__all__ = ["compiled"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(kernel: Kernel) -> Kernel:
    """Compile `kernel` with numba when it is first called; later processes load it from the cache, if there is one."""
    return cast(Kernel, numba.njit(cache=use_kernel_cache(), nogil=True)(kernel))
