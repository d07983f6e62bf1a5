"""Where the rows of a collection lie, as kernels of a GPU need it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RowPlacement"]


@dataclass(frozen=True, slots=True)
class RowPlacement:
    """Where rows and their state lie: addresses that the GPU can use, and for each embedding the float32 elements
    before its row 0 and before the state of row 0 (0 without state), and its number of rows."""

    rows_address: int
    state_address: int
    rows_offsets: tuple[int, ...]
    state_offsets: tuple[int, ...]
    row_counts: tuple[int, ...]
