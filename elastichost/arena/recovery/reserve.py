"""Reserves memory for what a PS writes to a file again and again: it grows when more must be written, and is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import MappedFile
from elastichost.arena.memory_board import PATIENCE_S, Allowance

__all__ = ["reserve"]

GROWTH_BYTES = 1 << 20


def reserve(
    file: MappedFile, header: npt.NDArray[np.int64], word: int, size_bytes: int, allowance: Allowance, purpose: str
) -> None:
    """Allocates at least the first `size_bytes` bytes of a file. header[word] keeps how many are allocated; 0: none is
    counted yet. So a successor of the PS does not ask for them again: the memory board counts them already. purpose:
    names the bytes in errors. Raises ArenaFullError."""
    before = int(header[word])
    if size_bytes <= before:
        return
    grown = -(-size_bytes // GROWTH_BYTES) * GROWTH_BYTES if before else size_bytes
    allowance.allocate(file, before, grown - before, purpose, is_spare=True, patience_s=PATIENCE_S)
    header[word] = grown
