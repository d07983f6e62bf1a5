"""Reads weights for pulls and applies the gradients of pushes. The layout of a frame: `arena.rows.line_kernels`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena, Rows
from elastichost.arena.index import key_kernels as facts
from elastichost.arena.index import table as index
from elastichost.arena.kernels import (
    add_lines,
    first_bad_row,
    gather_lines,
    gather_states,
    initial_stream,
    kernel_ready,
    mix64,
    scatter_lines,
    scatter_states,
    update_lines,
)
from elastichost.arena.layout import HEADER_WORDS, ArenaLayout
from elastichost.arena.rows import line_kernels as columns
from elastichost.arena.rows.bag_updates import OPTIMIZER_CODES
from elastichost.arena.rows.lines import LinePlan
from elastichost.arena.rows.update_rates import kernel_rates, scaled_rates
from elastichost.errors import ProtocolError
from elastichost.wire.crash import crash_point

__all__ = ["RowLines", "table_facts"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


def table_facts(layout: ArenaLayout) -> Int64:
    """The tables as `arena.index.key_kernels` takes them: int64 [tables, TABLE_FIELDS]."""
    of_tables = np.zeros((len(layout.tables), facts.TABLE_FIELDS), np.int64)
    for spec, place in zip(layout.model.tables, layout.tables, strict=True):
        first_word = place.first_header * HEADER_WORDS
        row = of_tables[spec.index]
        row[facts.IS_DYNAMIC], row[facts.ROW_SPACE] = spec.is_dynamic, place.row_space
        row[facts.BUCKET_ROWS], row[facts.SHIFT] = place.bucket_rows, 65 - place.buckets.bit_length()
        row[facts.HEAT_WORD], row[facts.ALLOCATED_WORD] = first_word + index.HEAT, first_word + index.ALLOCATED_ROWS
    return of_tables


@dataclass(frozen=True, slots=True)
class _RowPart:
    """Embeddings of one precision, which one kernel call updates. Each precision has two parts, so that a test can kill
    the process between them."""

    members: Int64  # indices of the embeddings
    rows: Rows
    updates: Int64


class RowLines:
    """Reads and writes the lines of all the model's embeddings, in their order. Row numbers come table after table:
    table t has rows[bounds[t] : bounds[t + 1]]."""

    def __init__(self, arena: Arena) -> None:
        layout, embeddings = arena.layout, arena.model.embeddings
        self._arena, self._facts = arena, table_facts(layout)
        self._plan, self._states = LinePlan(embeddings), LinePlan(embeddings, of_states=True)
        self._bases = np.array([layout.rows_offset(e.index) for e in embeddings], np.int64)
        self._state_bases = np.array([max(0, layout.state_offset(e.index)) for e in embeddings], np.int64)
        self._rates = kernel_rates(embeddings)
        updates = np.zeros((len(embeddings), columns.UPDATE_FIELDS), np.int64)
        updates[:, columns.STATE_BASE] = self._state_bases
        updates[:, columns.OPTIMIZER] = [OPTIMIZER_CODES[e.optimizer.name] for e in embeddings]
        self._parts: list[_RowPart] = []
        rows: Rows
        for precision, rows in (("float32", arena.rows_flat), ("bfloat16", arena.rows_flat_half)):
            chosen = np.array([e.index for e in embeddings if e.precision == precision], np.int64)
            for members in (chosen[::2].copy(), chosen[1::2].copy()):
                if len(members):
                    self._parts.append(_RowPart(members, rows, updates[members]))
        self._stream = initial_stream(layout.seed, "rounding of rows")
        self._pushes = 0

    def floats(self, bounds: Int64) -> int:
        """The number of floats in a frame of these items."""
        return int(self._plan.offsets(bounds)[-1])

    def pull(self, rows: Int64, bounds: Int64) -> Float32:
        """The lines of rows int64 [n], float32. Each row must be allocated; a row below 0 gives zeros."""
        frame = np.empty(self.floats(bounds), np.float32)
        self._gather(rows, bounds, frame)
        return frame

    def _gather(self, rows: Int64, bounds: Int64, frame: Float32) -> None:
        lines = self._plan.lines(bounds, self._bases)
        for part in self._parts:
            gather_lines(part.rows, lines[part.members], rows, frame)

    def sizes(self, bounds: Int64) -> tuple[int, int]:
        """(floats of the lines, floats of the optimizer state) of these items."""
        return self.floats(bounds), int(self._states.offsets(bounds)[-1])

    def save(self, rows: Int64, bounds: Int64, lines: Float32, states: Float32) -> None:
        """Copies the lines and optimizer state of rows int64 [n], all allocated, into float32 arrays of `sizes`."""
        self._gather(rows, bounds, lines)
        gather_states(self._arena.state_flat, self._states.lines(bounds, self._state_bases), rows, states)

    def put_back(self, rows: Int64, bounds: Int64, lines: Float32, states: Float32) -> None:
        """Writes what `save` has copied back into the rows."""
        places = self._plan.lines(bounds, self._bases)
        for part in self._parts:
            scatter_lines(lines, places[part.members], rows, part.rows)
        scatter_states(states, self._states.lines(bounds, self._state_bases), rows, self._arena.state_flat)

    def check(self, rows: Int64, bounds: Int64, floats: int) -> None:
        """Raises ProtocolError for a row whose memory is not allocated, because touching it would kill the process, and
        for a wrong number of floats. rows int64 [n]."""
        elements = self.floats(bounds)
        if floats != elements:
            raise ProtocolError(f"gradients of {len(rows)} rows must have {elements} floats, not {floats}")
        bad = int(first_bad_row(kernel_ready(rows), bounds, self._facts, self._arena.control, HEADER_WORDS))
        if bad >= 0:
            table = int(np.searchsorted(bounds, bad, side="right")) - 1
            raise ProtocolError(f"table {self._arena.model.tables[table].name!r} has no row {rows[bad]}")

    def add(self, gradients: Float32, bounds: Int64, places: Int64, sums: Float32, sum_bounds: Int64) -> None:
        """sums += gradients. Both are float32 lines, of the items of `bounds` and `sum_bounds`. Item i is added to item
        places[i] (int64) of the sums, which belongs to the same table."""
        lines, sum_lines = self._plan.lines(bounds, self._bases), self._plan.lines(sum_bounds, self._bases)
        add_lines(kernel_ready(gradients), lines, places, sums, sum_lines)

    def update(
        self, rows: Int64, bounds: Int64, gradients: Float32, learning_rate_scale: float, step: int | None = None
    ) -> None:
        """Applies gradients, float32 lines of distinct rows int64 [n] that passed `check`. With `step`, the rounding of
        bfloat16 rows depends only on the step and the row, and not on the number of earlier pushes."""
        lines = self._plan.lines(bounds, self._bases)
        rates = scaled_rates(self._rates, learning_rate_scale)
        self._pushes += 1
        seed = np.uint64(mix64(self._stream ^ np.uint64(self._pushes if step is None else step)))
        state = self._arena.state_flat
        for part in self._parts:
            chosen = part.members
            update_lines(part.rows, state, lines[chosen], part.updates, rates[chosen], rows, gradients, seed)
            crash_point("ps.apply.midway")
