"""Where the rows of a collection lie, as kernels of a GPU need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastichost.arena.layout import ArenaLayout
from elastichost.specs import EmbeddingSpec

__all__ = ["RowPlacement", "optimizer_refusal"]


@dataclass(frozen=True, slots=True)
class RowPlacement:
    """Where rows and their state lie: addresses that the GPU can use, and for each embedding the float32 elements
    before its row 0 and before the state of row 0 (0 without state), and its number of rows."""

    rows_address: int
    state_address: int
    rows_offsets: tuple[int, ...]
    state_offsets: tuple[int, ...]
    row_counts: tuple[int, ...]

    @classmethod
    def of(
        cls, layout: ArenaLayout, embeddings: Sequence[EmbeddingSpec], rows_address: int, state_address: int
    ) -> RowPlacement:
        """Where these embeddings lie in memory that has the rows and their state in the order of this layout."""
        return cls(
            rows_address,
            state_address,
            tuple(layout.rows_offset(e.index) for e in embeddings),
            tuple(max(0, layout.state_offset(e.index)) for e in embeddings),
            tuple(layout.row_space(e.table) for e in embeddings),
        )


def optimizer_refusal(embedding: EmbeddingSpec) -> str:
    """Why kernels of a GPU cannot update the rows of this embedding; "" if they can."""
    if embedding.optimizer.name == "adam":
        return f"the rows of {embedding.name!r} are trained by adam"
    if embedding.optimizer.weight_decay:
        return f"the rows of {embedding.name!r} have weight decay"
    return ""
