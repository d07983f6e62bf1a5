"""The plan of a frame: which lines of which embeddings it holds, and where (see `line_kernels`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elastichost.arena.rows import line_kernels as columns
from elastichost.specs import EmbeddingSpec

__all__ = ["LinePlan"]

Int64 = npt.NDArray[np.int64]


class LinePlan:
    """The embeddings of a frame in the order of their lines. of_states: the lines are optimizer state, not weights."""

    def __init__(self, embeddings: Sequence[EmbeddingSpec], *, of_states: bool = False) -> None:
        self.embeddings = tuple(embeddings)
        self._tables = np.array([e.table for e in self.embeddings], np.int64)
        widths = [e.state_floats_per_row if of_states else e.padded_dim for e in self.embeddings]
        self._widths = np.array(widths, np.int64)

    def offsets(self, bounds: Int64) -> Int64:
        """Where the lines of each embedding begin in a frame, and where the last ones end: int64 [embeddings + 1].
        Table t has the items bounds[t]:bounds[t + 1] of the frame."""
        offsets = np.zeros(len(self._tables) + 1, np.int64)
        np.cumsum((bounds[1:] - bounds[:-1])[self._tables] * self._widths, out=offsets[1:])
        return offsets

    def lines(self, bounds: Int64, bases: Int64) -> Int64:
        """The `lines` argument of the line kernels for a frame: int64 [embeddings, LINE_FIELDS]. bases: int64
        [embeddings], where the line of row 0 lies. bounds: as in `offsets`."""
        lines = np.empty((len(self._tables), columns.LINE_FIELDS), np.int64)
        lines[:, columns.FIRST] = bounds[self._tables]
        lines[:, columns.STOP] = bounds[self._tables + 1]
        lines[:, columns.WIDTH] = self._widths
        lines[:, columns.AT] = self.offsets(bounds)[:-1]
        lines[:, columns.BASE] = bases
        return lines

    def bases_within(self, bounds: Int64) -> Int64:
        """The `bases` for numbers that are positions among the items of `bounds`, when the rows are themselves a frame
        of these items."""
        return self.offsets(bounds)[:-1] - bounds[self._tables] * self._widths
