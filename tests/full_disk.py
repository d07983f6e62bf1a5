"""A disk that is full for this process: the kernel refuses writes beyond a file size; what fits is written."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

__all__ = ["file_limit"]


@contextlib.contextmanager
def file_limit(size_bytes: int) -> Iterator[None]:
    """No file of this process can grow beyond size_bytes: a write takes what fits, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
