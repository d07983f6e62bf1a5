"""Whether values fit the type that the first rows gave a column, and which value is the first that does not. Pure.

A value is never changed into another kind of value: 3 and "3" are different ids, and 3.5 is no integer. Types of one
kind are fine as long as no integer is rounded: an int32 or 3.0 for an int64, an integer for a double."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from elastichost.datasets.arrow_columns import is_list

__all__ = ["array_of", "first_misfit", "fitted", "plain_type", "type_words"]

# What pyarrow raises for a value that it cannot convert, or not beside the others of its column.
REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)


def array_of(values: Any) -> pa.ChunkedArray | None:
    """The values with the type that pyarrow infers; None when there is no type for all of them. values: any sequence;
    in a column of a data frame NaN is a missing value."""
    try:
        made = pa.array(values, from_pandas=hasattr(values, "dtype"))
    except REFUSED:
        return None
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


def plain_type(column_type: pa.DataType) -> pa.DataType:
    """The type without the dictionary, whose indexes may be wider in later tables; Parquet has its own."""
    return column_type.value_type if pa.types.is_dictionary(column_type) else column_type


def fitted(column: pa.ChunkedArray, expected: pa.DataType) -> pa.ChunkedArray | None:
    """The column with the expected type; None when it has a value that does not fit."""
    if column.type == expected:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), expected)])
    if not _is_of_kind(plain_type(column.type), expected):
        return None
    try:
        return column.cast(expected)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_of_kind(found: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_null(found):  # of the elements of lists
        return True
    if is_list(found) and is_list(expected):
        return _is_of_kind(found.value_type, expected.value_type)
    return found == expected or any(is_kind(found) and is_kind(expected) for is_kind in (_is_number, _is_text))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def first_misfit(values: Sequence[Any], fits: Callable[[Any], bool]) -> int:
    """The position of the first value with which the values from the beginning on do not fit any more. They do not fit
    as a whole, and no value mends what a value before it has broken."""
    low, high = 0, len(values)  # the first `low` values fit, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        if fits(values[:middle]):
            low = middle
        else:
            high = middle
    return low


def type_words(column_type: pa.DataType) -> str:
    """A type as messages tell it."""
    return f"lists of {type_words(column_type.value_type)}" if is_list(column_type) else str(column_type)
