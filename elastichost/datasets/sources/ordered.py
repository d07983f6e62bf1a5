"""Puts what arrives in any order back into the order of its sequence numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["SequenceBuffer"]

Item = TypeVar("Item")


@dataclass(slots=True)
class SequenceBuffer(Generic[Item]):
    """Items with the sequence numbers 0, 1, 2, ...; each number arrives once. due: the number that leaves next."""

    due: int = 0
    _waiting: dict[int, Item] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """Number of items that have arrived and not left."""
        return len(self._waiting)

    @property
    def is_due_here(self) -> bool:
        """Whether the next item has arrived."""
        return self.due in self._waiting

    def put(self, sequence: int, item: Item) -> None:
        """Adds an item. Raises ValueError for a number that has arrived before."""
        if sequence < self.due or sequence in self._waiting:
            raise ValueError(f"number {sequence} has arrived twice")
        self._waiting[sequence] = item

    def pop_due(self) -> Iterator[Item]:
        """Takes out all items whose turn has come, in order."""
        while self.due in self._waiting:
            self.due += 1
            yield self._waiting.pop(self.due - 1)
