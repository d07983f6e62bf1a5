"""Lines of many embeddings in one flat frame: gathered from rows, scattered to rows, applied to rows as gradients.

A frame holds, for each embedding in order, one line per item of its table: [items of the table, padded_dim]. Items
stand table after table. **Lines**, int64 [E, LINE_FIELDS], one per embedding, say which items and where; the constants
below name the columns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined
from elastichost.arena.rows.bag_chains import CHUNK_ROWS
from elastichost.arena.rows.bag_kernels import prefetch_row, rows_ahead
from elastichost.arena.rows.bag_updates import state_floats, update_chunk
from elastichost.arena.rows.lanes import Array, add, load, store, zeros4, zeros16

__all__ = [
    "AT",
    "BASE",
    "FIRST",
    "LINE_FIELDS",
    "OPTIMIZER",
    "STATE_BASE",
    "STOP",
    "UPDATE_FIELDS",
    "WIDTH",
    "add_lines",
    "gather_lines",
    "gather_states",
    "scatter_lines",
    "scatter_states",
    "update_lines",
]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

FIRST = 0  # items are numbers[first:stop]
STOP = 1
WIDTH = 2  # floats of a line, a multiple of four
AT = 3  # where the first item's line lies in the frame
BASE = 4  # where the line of number 0 lies in the flat rows
LINE_FIELDS = 5

# Columns of `updates`, int64 [E, UPDATE_FIELDS], beside the lines.
STATE_BASE = 0  # where the state of row 0 begins
OPTIMIZER = 1
UPDATE_FIELDS = 2


@inlined
def _copy_line(source: Array, position: int, target: Array, at: int, width: int) -> None:
    """target[at : at + width] = source[position : position + width], as float32 or, exactly, as bfloat16."""
    unused = np.uint64(0)
    element = 0
    while element + 16 <= width:
        store(target, at + element, load(source, position + element, zeros16()), unused)
        element += 16
    while element < width:
        store(target, at + element, load(source, position + element, zeros4()), unused)
        element += 4


@compiled
def gather_lines(rows: Array, lines: Int64, numbers: Int64, frame: Float32) -> None:
    """Each item's line of the flat rows (float32, or bfloat16 as uint16) into the frame; zeros for a number below 0."""
    for e in range(len(lines)):
        first, stop, width, base = lines[e, FIRST], lines[e, STOP], lines[e, WIDTH], lines[e, BASE]
        at, ahead = lines[e, AT], rows_ahead(width)
        for i in range(first, stop):
            prefetch_row(rows, base + max(0, numbers[min(i + ahead, stop - 1)]) * width, width)
            if numbers[i] < 0:
                frame[at : at + width] = 0.0
            else:
                _copy_line(rows, base + numbers[i] * width, frame, at, width)
            at += width


@compiled
def scatter_lines(frame: Float32, lines: Int64, numbers: Int64, rows: Array) -> None:
    """The reverse: each item's line of the frame into the flat rows. No number may be negative. Into bfloat16 rows go
    values that were bfloat16 before: nothing is rounded."""
    for e in range(len(lines)):
        width, base, at = lines[e, WIDTH], lines[e, BASE], lines[e, AT]
        for i in range(lines[e, FIRST], lines[e, STOP]):
            _copy_line(frame, at, rows, base + numbers[i] * width, width)
            at += width


@compiled
def add_lines(frame: Float32, lines: Int64, places: Int64, sums: Float32, sum_lines: Int64) -> None:
    """sums += frame: item i's line is added to that of item places[i] of its table in `sums`, another frame of the same
    embeddings with lines `sum_lines`. Places are counted over all tables. Items are taken in their order."""
    unused = np.uint64(0)
    for e in range(len(lines)):
        width, at = lines[e, WIDTH], lines[e, AT]
        base = sum_lines[e, AT] - sum_lines[e, FIRST] * width
        for i in range(lines[e, FIRST], lines[e, STOP]):
            place, element = base + places[i] * width, 0
            while element + 16 <= width:
                total = add(load(sums, place + element, zeros16()), load(frame, at + element, zeros16()))
                store(sums, place + element, total, unused)
                element += 16
            while element < width:
                total4 = add(load(sums, place + element, zeros4()), load(frame, at + element, zeros4()))
                store(sums, place + element, total4, unused)
                element += 4
            at += width


@compiled
def gather_states(state: Float32, lines: Int64, numbers: Int64, frame: Float32) -> None:
    """Each item's optimizer state into the frame. Lines as above, of the flat state; a width is any number of floats,
    one or none too. No number may be negative."""
    for e in range(len(lines)):
        width, base, at = lines[e, WIDTH], lines[e, BASE], lines[e, AT]
        for i in range(lines[e, FIRST], lines[e, STOP]):
            place = base + numbers[i] * width
            for element in range(width):
                frame[at + element] = state[place + element]
            at += width


@compiled
def scatter_states(frame: Float32, lines: Int64, numbers: Int64, state: Float32) -> None:
    """The reverse of `gather_states`."""
    for e in range(len(lines)):
        width, base, at = lines[e, WIDTH], lines[e, BASE], lines[e, AT]
        for i in range(lines[e, FIRST], lines[e, STOP]):
            place = base + numbers[i] * width
            for element in range(width):
                state[place + element] = frame[at + element]
            at += width


@compiled
def update_lines(
    rows: Array,
    state: Float32,
    lines: Int64,
    updates: Int64,
    rates: Float32,
    numbers: Int64,
    frame: Float32,
    seed: np.uint64,
) -> None:
    """Each embedding's optimizer over distinct rows, whose gradients are the lines of the frame.

    rows: float32 or bfloat16 (as uint16), flat; state float32, flat; rates float32 [E, 2]: learning rate and eps; the
    seed is that of bfloat16's stochastic rounding and differs from call to call.
    """
    factors = np.zeros(CHUNK_ROWS, np.float32)
    for e in range(len(lines)):
        first, stop, width, base = lines[e, FIRST], lines[e, STOP], lines[e, WIDTH], lines[e, BASE]
        state_base, optimizer = updates[e, STATE_BASE], updates[e, OPTIMIZER]
        state_width, at = state_floats(optimizer, width), lines[e, AT]
        for start in range(first, stop, CHUNK_ROWS):
            count = min(CHUNK_ROWS, stop - start)
            for i in range(start + CHUNK_ROWS, min(start + 2 * CHUNK_ROWS, stop)):
                prefetch_row(rows, base + numbers[i] * width, width)
                prefetch_row(state, state_base + numbers[i] * state_width, state_width)
            update_chunk(
                rows,
                base,
                state,
                state_base,
                numbers,
                start,
                count,
                frame,
                at,
                width,
                optimizer,
                rates[e, 0],
                rates[e, 1],
                factors,
                seed,
            )
            at += count * width
