"""Publication of data in shared memory: one process stores a word after the data, and others load the word first.

`docs/explanation/arena.md` lists what each published word stands for, and which instructions order it on x86 and ARM.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, full_fence, load_acquire, store_release

__all__ = ["announce", "load_word"]

Int64 = npt.NDArray[np.int64]


@compiled
def announce(words: Int64, position: int, value: int) -> None:
    """Stores words[position] with one aligned 8-byte store between two full fences: other processes see all earlier
    writes before this one, and all later writes after it."""
    full_fence()
    store_release(words, position, value)
    full_fence()


@compiled
def load_word(words: Int64, position: int) -> int:
    """Loads words[position] with one aligned 8-byte acquire load: reads after it see everything that was written before
    the word was stored."""
    return load_acquire(words, position)
