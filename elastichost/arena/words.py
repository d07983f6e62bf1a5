"""Words of shared memory by which a process says that something is there: one stores them, others load them.

What each publication stands for, and which instructions order it on x86 and on ARM: ARCHITECTURE.md, "The arena".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, full_fence, load_acquire, store_release

__all__ = ["announce", "load_word"]

Int64 = npt.NDArray[np.int64]


@compiled
def announce(words: Int64, position: int, value: int) -> None:
    """One aligned 8-byte store, after everything written before it and before everything written later."""
    full_fence()
    store_release(words, position, value)
    full_fence()


@compiled
def load_word(words: Int64, position: int) -> int:
    """One aligned 8-byte load, before everything read later."""
    return load_acquire(words, position)
