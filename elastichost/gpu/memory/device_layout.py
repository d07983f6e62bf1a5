"""Where a job's model lies in memory of a GPU. Pure.

    rows     float32, the layout of the arena's file `rows`
    state    float32, the layout of the arena's file `state`
    halves   twice: a header int64 [8], the dense vector float32 [elements], its optimizer state float32 [2 parameters]

Word 0 of a half's header is the number of the optimizer step after which it was written; UNFINISHED while it is
written. A step writes the half that is not the newest, so a kill at any point leaves the newest one whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.arena.layout import ArenaLayout

__all__ = ["HEADER_BYTES", "UNFINISHED", "DeviceLayout"]

HEADER_BYTES = 64
UNFINISHED = -1
_ALIGNMENT_BYTES = 256


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Offsets in bytes. elements: of the dense vector, of which the first `parameters` are trained."""

    state: int
    halves: tuple[int, int]
    size_bytes: int
    elements: int
    parameters: int

    @classmethod
    def of(cls, arena: ArenaLayout) -> DeviceLayout:
        dense = arena.model.dense
        state = _aligned(arena.files.rows)
        first = _aligned(state + arena.files.state)
        half = _aligned(HEADER_BYTES + 4 * dense.elements + 8 * dense.parameters)
        return cls(state, (first, first + half), first + 2 * half, dense.elements, dense.parameters)

    def vector(self, half: int) -> int:
        """Offset of the dense vector of a half."""
        return self.halves[half] + HEADER_BYTES

    def dense_state(self, half: int) -> int:
        """Offset of the optimizer state of a half."""
        return self.vector(half) + 4 * self.elements


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
