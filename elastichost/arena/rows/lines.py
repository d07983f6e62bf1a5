"""Which lines of which embeddings a frame holds: see `line_kernels`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elastichost.arena.rows import line_kernels as columns
from elastichost.specs import EmbeddingSpec

__all__ = ["LinePlan"]

Int64 = npt.NDArray[np.int64]


class LinePlan:
    """Some embeddings, in the order in which their lines follow one another in frames. `of_states`: the lines are those
    of the optimizer's state."""

    def __init__(self, embeddings: Sequence[EmbeddingSpec], *, of_states: bool = False) -> None:
        self.embeddings = tuple(embeddings)
        self._tables = np.array([e.table for e in self.embeddings], np.int64)
        widths = [e.state_floats_per_row if of_states else e.padded_dim for e in self.embeddings]
        self._widths = np.array(widths, np.int64)

    def offsets(self, bounds: Int64) -> Int64:
        """int64 [embeddings + 1]: where each embedding's lines begin in a frame of the items bounds[t]:bounds[t + 1]
        of every table t, and where the last ones end."""
        offsets = np.zeros(len(self._tables) + 1, np.int64)
        np.cumsum((bounds[1:] - bounds[:-1])[self._tables] * self._widths, out=offsets[1:])
        return offsets

    def lines(self, bounds: Int64, bases: Int64) -> Int64:
        """int64 [embeddings, LINE_FIELDS] of such a frame. bases int64 [embeddings]: where row 0's line lies."""
        lines = np.empty((len(self._tables), columns.LINE_FIELDS), np.int64)
        lines[:, columns.FIRST] = bounds[self._tables]
        lines[:, columns.STOP] = bounds[self._tables + 1]
        lines[:, columns.WIDTH] = self._widths
        lines[:, columns.AT] = self.offsets(bounds)[:-1]
        lines[:, columns.BASE] = bases
        return lines

    def bases_within(self, bounds: Int64) -> Int64:
        """`bases` when numbers are positions among the items of `bounds`, and rows are a frame of these."""
        return self.offsets(bounds)[:-1] - bounds[self._tables] * self._widths
