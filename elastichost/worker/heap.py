"""Returns free memory of this process' heap to the system."""

from __future__ import annotations

import ctypes

__all__ = ["release_free_heap"]


def release_free_heap() -> None:
    """Returns all free pages of the heap to the system. A heap keeps the blocks that were freed, however long they are
    not needed. Takes milliseconds for 100 MB, and as long again when the pages are next used. Does nothing where the C
    library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
