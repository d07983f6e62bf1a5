"""Kernels over frames: gather lines from rows, scatter lines to rows, and apply lines to rows as gradients.

A frame is a flat array with the lines of many embeddings. For each embedding in order it has one line for each item of
its table: [items of the table, padded_dim]. Items are ordered table after table. **Lines**, int64 [E, LINE_FIELDS],
give the items of each embedding and the place of their lines; the constants below name the columns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined
from elastichost.arena.index.hashing import mix64
from elastichost.arena.rows.bag_chains import CHUNK_ROWS
from elastichost.arena.rows.bag_kernels import prefetch_row, rows_ahead
from elastichost.arena.rows.bag_updates import state_floats, update_chunk
from elastichost.arena.rows.lanes import GOLDEN, Array, add, load, store, zeros4, zeros16

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

FIRST = 0  # the items of the embedding are numbers[first:stop]
STOP = 1
WIDTH = 2  # floats of a line, a multiple of four
AT = 3  # where the line of the first item begins in the frame
BASE = 4  # where the line of number 0 begins in the flat rows
LINE_FIELDS = 5

# Columns of `updates`, int64 [E, UPDATE_FIELDS], which has one line for each embedding.
STATE_BASE = 0  # where the state of row 0 begins
OPTIMIZER = 1
UPDATE_FIELDS = 2


@inlined
def _copy_line(source: Array, position: int, target: Array, at: int, width: int) -> None:
    """target[at : at + width] = source[position : position + width]. A bfloat16 target gets values that bfloat16 holds
    exactly."""
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
    """Copies the line of each item from the flat rows (float32, or bfloat16 as uint16) to the frame. A number below 0
    gives zeros."""
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
    """Copies the line of each item from the frame to the flat rows, the reverse of `gather_lines`. No number may be
    negative. The values for bfloat16 rows came from bfloat16 rows, so nothing is rounded."""
    for e in range(len(lines)):
        width, base, at = lines[e, WIDTH], lines[e, BASE], lines[e, AT]
        for i in range(lines[e, FIRST], lines[e, STOP]):
            _copy_line(frame, at, rows, base + numbers[i] * width, width)
            at += width


@compiled
def add_lines(frame: Float32, lines: Int64, places: Int64, sums: Float32, sum_lines: Int64) -> None:
    """Adds the line of item i to the line of item places[i] in `sums`, another frame of the same embeddings.

    sum_lines: the lines of `sums`. Places are counted over all tables. The items are added in ascending order.
    """
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
    """Copies the optimizer state of each item from the flat state to the frame. The lines describe the flat state. A
    width is any number of floats, including 0 and 1. No number may be negative."""
    for e in range(len(lines)):
        width, base, at = lines[e, WIDTH], lines[e, BASE], lines[e, AT]
        for i in range(lines[e, FIRST], lines[e, STOP]):
            place = base + numbers[i] * width
            for element in range(width):
                frame[at + element] = state[place + element]
            at += width


@compiled
def scatter_states(frame: Float32, lines: Int64, numbers: Int64, state: Float32) -> None:
    """Copies the optimizer state of each item from the frame to the flat state, the reverse of `gather_states`."""
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
    """Applies the optimizer of each embedding to distinct rows, whose gradients are the lines of the frame.

    rows: float32, or bfloat16 as uint16, flat. state: float32, flat. lines: int64 [E, LINE_FIELDS]. updates: int64
    [E, UPDATE_FIELDS]. rates: float32 [E, RATE_FIELDS], see `update_rates`. numbers: int64, the rows. seed: of the
    stochastic rounding of bfloat16, a different one for each call. The rounding depends on the embedding, the row and
    the element, and not on where the embedding lies: that follows from the memory of the host.
    """
    factors = np.zeros(CHUNK_ROWS, np.float32)
    for e in range(len(lines)):
        first, stop, width, base = lines[e, FIRST], lines[e, STOP], lines[e, WIDTH], lines[e, BASE]
        state_base, optimizer = updates[e, STATE_BASE], updates[e, OPTIMIZER]
        # `store` hashes seed + position / 4 * GOLDEN, with the position in the file.
        own_seed = mix64(seed + np.uint64(e)) - np.uint64(base >> 2) * np.uint64(GOLDEN)
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
                rates,
                e,
                factors,
                own_seed,
            )
            at += count * width
