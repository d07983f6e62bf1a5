"""Weights that leave a PS and gradients that come in: frames of all embeddings' lines, see `arena.line_kernels`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena import index
from elastichost.arena import key_kernels as facts
from elastichost.arena import line_kernels as columns
from elastichost.arena.arena import Arena, Rows
from elastichost.arena.bag_updates import OPTIMIZER_CODES
from elastichost.arena.kernels import first_bad_row, gather_lines, initial_stream, kernel_ready, mix64, update_lines
from elastichost.arena.layout import HEADER_WORDS, ArenaLayout
from elastichost.arena.lines import LinePlan
from elastichost.errors import ProtocolError

__all__ = ["RowLines", "table_facts"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


def table_facts(layout: ArenaLayout) -> Int64:
    """int64 [tables, TABLE_FIELDS] of `arena.key_kernels`."""
    of_tables = np.zeros((len(layout.tables), facts.TABLE_FIELDS), np.int64)
    for spec, place in zip(layout.model.tables, layout.tables, strict=True):
        first_word = place.first_header * HEADER_WORDS
        row = of_tables[spec.index]
        row[facts.IS_DYNAMIC], row[facts.ROW_SPACE] = spec.is_dynamic, place.row_space
        row[facts.BUCKET_ROWS], row[facts.SHIFT] = place.bucket_rows, 65 - place.buckets.bit_length()
        row[facts.HEAT_WORD], row[facts.ALLOCATED_WORD] = first_word + index.HEAT, first_word + index.ALLOCATED_ROWS
    return of_tables


@dataclass(frozen=True, slots=True)
class _Part:
    """The embeddings of one precision, one kernel call."""

    members: Int64  # indices of the embeddings
    rows: Rows
    updates: Int64


class RowLines:
    """Lines of all the model's embeddings, in their order. Items are row numbers, table after table: those of table t
    are rows[bounds[t] : bounds[t + 1]]."""

    def __init__(self, arena: Arena) -> None:
        layout, embeddings = arena.layout, arena.model.embeddings
        self._arena, self._facts = arena, table_facts(layout)
        self._plan = LinePlan(embeddings)
        self._bases = np.array([layout.rows_offset(e.index) for e in embeddings], np.int64)
        rates = [(e.kernel_learning_rate, e.optimizer.eps) for e in embeddings]
        self._rates = np.array(rates, np.float32).reshape(-1, 2)
        updates = np.zeros((len(embeddings), columns.UPDATE_FIELDS), np.int64)
        updates[:, columns.STATE_BASE] = [max(0, layout.state_offset(e.index)) for e in embeddings]
        updates[:, columns.OPTIMIZER] = [OPTIMIZER_CODES[e.optimizer.name] for e in embeddings]
        self._parts: list[_Part] = []
        rows: Rows
        for precision, rows in (("float32", arena.rows_flat), ("bfloat16", arena.rows_flat_half)):
            members = np.array([e.index for e in embeddings if e.precision == precision], np.int64)
            if len(members):
                self._parts.append(_Part(members, rows, updates[members]))
        self._stream = initial_stream(layout.seed, "rounding of rows")
        self._pushes = 0

    def floats(self, bounds: Int64) -> int:
        """Of a frame."""
        return int(self._plan.offsets(bounds)[-1])

    def pull(self, rows: Int64, bounds: Int64) -> Float32:
        """float32: the lines of rows (int64 [n], each one allocated, or -1: zeros)."""
        lines = self._plan.lines(bounds, self._bases)
        frame = np.empty(self.floats(bounds), np.float32)
        for part in self._parts:
            gather_lines(part.rows, lines[part.members], rows, frame)
        return frame

    def push(self, rows: Int64, bounds: Int64, gradients: Float32, learning_rate_scale: float) -> None:
        """Applies gradients, float32 lines of distinct rows (int64 [n]). Raises ProtocolError, with nothing applied,
        for a row whose memory does not exist (touching it would kill the process) and for lines too few or too many."""
        rows, gradients = kernel_ready(rows), kernel_ready(gradients)
        lines, elements = self._plan.lines(bounds, self._bases), self.floats(bounds)
        if len(gradients) != elements:
            raise ProtocolError(f"gradients of {len(rows)} rows must be {elements} floats, not {len(gradients)}")
        bad = int(first_bad_row(rows, bounds, self._facts, self._arena.control, HEADER_WORDS))
        if bad >= 0:
            table = int(np.searchsorted(bounds, bad, side="right")) - 1
            raise ProtocolError(f"table {self._arena.model.tables[table].name!r} has no row {rows[bad]}")
        rates = self._rates.copy()
        rates[:, 0] *= np.float32(learning_rate_scale)
        self._pushes += 1
        seed = np.uint64(mix64(self._stream ^ np.uint64(self._pushes)))
        state = self._arena.state_flat
        for part in self._parts:
            chosen = part.members
            update_lines(part.rows, state, lines[chosen], part.updates, rates[chosen], rows, gradients, seed)
