"""The parser of Criteo lines: label, 13 integers, 26 categories. A tab ends a field, a newline ends a line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import exactly_compiled
from elastichost.datasets.kernels.hashing import load_8, xxh64_kernel

__all__ = ["BAD_INTEGER", "BAD_LABEL", "NOT_ASCII", "NUM_CATEGORICAL", "NUM_INTEGERS", "OK", "RAGGED", "parse_lines"]

NUM_INTEGERS = 13
NUM_CATEGORICAL = 26
OK, RAGGED, BAD_LABEL, BAD_INTEGER, NOT_ASCII = 0, 1, 2, 3, 4

TAB, NEWLINE, RETURN, MINUS = np.uint8(9), np.uint8(10), np.uint8(13), np.uint8(45)
ZERO, NINE, HIGH_BIT = np.uint8(48), np.uint8(57), np.uint8(128)
EVERY_TAB = np.uint64(0x0909090909090909)
EVERY_NEWLINE = np.uint64(0x0A0A0A0A0A0A0A0A)
EVERY_ONE = np.uint64(0x0101010101010101)
EVERY_HIGH_BIT = np.uint64(0x8080808080808080)
NOTHING = np.uint64(0)
MAX_DIGITS = 18  # every number of 18 digits fits into int64


@exactly_compiled
def field_end(data: npt.NDArray[np.uint8], begin: int, size: int) -> tuple[int, bool]:
    """(offset of the tab or newline that ends a field, whether the field has a byte above 127)."""
    at = begin
    high = False
    if at + 8 <= size:
        word = load_8(data, np.uint64(at))
        tabs, newlines = word ^ EVERY_TAB, word ^ EVERY_NEWLINE
        # A byte of x is zero where x - 1 borrows into the high bit of that byte, and x has this bit clear.
        ends = ((tabs - EVERY_ONE) & ~tabs) | ((newlines - EVERY_ONE) & ~newlines)
        if ends & EVERY_HIGH_BIT == NOTHING:
            high = word & EVERY_HIGH_BIT != NOTHING
            at += 8
    while at < size and data[at] != TAB and data[at] != NEWLINE:
        high |= data[at] >= HIGH_BIT
        at += 1
    return at, high


@exactly_compiled
def parse_integer(data: npt.NDArray[np.uint8], begin: int, stop: int) -> tuple[np.int64, bool]:
    """(value of the field, whether the field is an integer)."""
    negative = data[begin] == MINUS
    first = begin + 1 if negative else begin
    if stop == first or stop - first > MAX_DIGITS:
        return np.int64(0), False
    value = np.int64(0)
    for at in range(first, stop):
        digit = data[at]
        if digit < ZERO or digit > NINE:
            return np.int64(0), False
        value = value * 10 + np.int64(digit - ZERO)
    return (-value if negative else value), True


@exactly_compiled
def parse_lines(
    data: npt.NDArray[np.uint8],
    has_label: bool,
    labels: npt.NDArray[np.float32],
    integers: npt.NDArray[np.float32],
    keys: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    status: npt.NDArray[np.int8],
    detail: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
) -> None:
    """Parses labels.shape[0] lines of `data` uint8 into the other arrays.

    labels float32 [n]; integers float32 [n, 13], NaN where empty; keys int64 [26, n] and valid bool [26, n];
    status int8 [n]: OK or the fault of the line; detail int32 [n]: the number of fields (RAGGED) or the column from 0
    (BAD_INTEGER); starts int64 [n + 1]: the offset of each line, and the offset after the last one.
    """
    size = data.shape[0]
    first_integer = 1 if has_label else 0
    first_category = first_integer + NUM_INTEGERS
    num_fields = first_category + NUM_CATEGORICAL
    at = 0
    for row in range(labels.shape[0]):
        starts[row] = at
        status[row] = OK
        field = 0
        more = True
        while more:
            end, high = field_end(data, at, size)
            more = end < size and data[end] == TAB
            stop = end - 1 if not more and end > at and data[end - 1] == RETURN else end
            if high and status[row] == OK:
                status[row] = NOT_ASCII
            if field >= num_fields:
                pass
            elif field >= first_category:
                column = field - first_category
                valid[column, row] = stop > at
                keys[column, row] = np.int64(xxh64_kernel(data, np.uint64(at), np.uint64(stop)))
            elif field >= first_integer:
                column = field - first_integer
                if stop == at:
                    integers[row, column] = np.nan
                else:
                    value, is_integer = parse_integer(data, at, stop)
                    integers[row, column] = np.float32(value)
                    if not is_integer and (status[row] == OK or status[row] == NOT_ASCII):
                        status[row] = BAD_INTEGER
                        detail[row] = column
            else:
                labels[row] = np.float32(data[at] - ZERO) if stop > at else np.float32(0)
                if stop - at != 1 or data[at] < ZERO or data[at] > ZERO + np.uint8(1):
                    status[row] = BAD_LABEL
                    labels[row] = np.float32(0)
            field += 1
            at = end + 1
        if field != num_fields:
            status[row] = RAGGED
            detail[row] = field
    starts[labels.shape[0]] = min(at, size)
