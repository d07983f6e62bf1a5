"""Converts Arrow columns to numpy arrays. Integers are never converted through floating point, which would round
them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elastichost.datasets.decoded import IdColumn, single_valued
from elastichost.datasets.kernels.hashing import hash_arrow_strings
from elastichost.datasets.kernels.ragged import drop_invalid
from elastichost.specs import KeyKind

__all__ = ["float_values", "id_column", "id_type", "is_list", "is_numeric", "without_view"]

Validity = npt.NDArray[np.bool_]


def is_numeric(column_type: pa.DataType) -> bool:
    """Whether a column of labels, weights or dense values may have this type."""
    types = pa.types
    return bool(
        types.is_boolean(column_type)
        or types.is_integer(column_type)
        or types.is_floating(column_type)
        or types.is_decimal(column_type)
    )


def is_list(column_type: pa.DataType) -> bool:
    """Whether it is a type of lists: of any length, long ones, or of a fixed length."""
    types = pa.types
    return bool(types.is_list(column_type) or types.is_large_list(column_type) or types.is_fixed_size_list(column_type))


def without_view(column_type: pa.DataType) -> pa.DataType:
    """The type, or of a view of strings or bytes the plain type: Arrow has not all functions for views."""
    if pa.types.is_string_view(column_type):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(column_type) else column_type


def id_type(column_type: pa.DataType) -> tuple[KeyKind, bool] | None:
    """(kind of the ids, whether the column holds lists of them); None for a type that cannot hold ids."""
    types = pa.types
    if is_list(column_type):
        inner = id_type(column_type.value_type)
        return None if inner is None or inner[1] else (inner[0], True)
    if types.is_dictionary(column_type):
        return id_type(column_type.value_type)
    if types.is_integer(column_type) or types.is_boolean(column_type):
        return "int", False
    if _is_text(column_type):
        return "string", False
    return None


def _is_text(column_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(column_type)
        or types.is_large_string(column_type)
        or types.is_string_view(column_type)
        or types.is_binary(column_type)
        or types.is_large_binary(column_type)
        or types.is_binary_view(column_type)
    )


def _validity(array: pa.Array) -> Validity | None:
    """bool [len(array)]: False for nulls; None when there are none. The values of a dictionary may also contain a
    null."""
    if array.null_count == 0 and not (pa.types.is_dictionary(array.type) and array.dictionary.null_count):
        return None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    valid: Validity = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def float_values(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.generic], Validity | None]:
    """(numeric values [n] of any dtype, 0 where null; which of them are valid, None: all)."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_decimal(array.type) or pa.types.is_null(array.type):
        array = array.cast(pa.float64())
    valid = _validity(array)
    if valid is not None:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else pa.scalar(0).cast(array.type))
    return array.to_numpy(zero_copy_only=False), valid


def id_column(column: pa.ChunkedArray) -> IdColumn:
    """The ids of a column of ints, strings, or lists of them. Nulls and null elements are left out."""
    if column.num_chunks == 1:
        return _ids_of_chunk(column.chunk(0))
    return _concatenate([_ids_of_chunk(chunk) for chunk in column.chunks])


def _ids_of_chunk(array: pa.Array) -> IdColumn:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _ids_of_lists(array)
    keys, valid = _scalar_ids(array)
    return single_valued(keys, valid)


def _scalar_ids(array: pa.Array) -> tuple[npt.NDArray[np.int64], Validity | None]:
    """(keys int64 [len(array)], arbitrary where null; which of them are valid, None: all)."""
    if pa.types.is_null(array.type):
        array = array.cast(pa.int64())
    valid = _validity(array)
    if _is_text(array.type.value_type if pa.types.is_dictionary(array.type) else array.type):
        return hash_arrow_strings(array), valid
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if valid is not None:
        # Filling nulls keeps the integer type: to_numpy converts an integer array with nulls to float64.
        array = array.fill_null(False if pa.types.is_boolean(array.type) else pa.scalar(0).cast(array.type))
    values = array.to_numpy(zero_copy_only=False)
    # uint64 is reinterpreted as int64: every 64-bit pattern is a valid key.
    return (values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64, copy=False)), valid


def _ids_of_lists(array: pa.Array) -> IdColumn:
    offsets = array.offsets.to_numpy().astype(np.int64, copy=False)
    if len(offsets) == 0:
        offsets = np.zeros(1, dtype=np.int64)
    elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    offsets = offsets - offsets[0]
    keys, valid = _scalar_ids(elements)
    if array.null_count:
        # In Arrow a null list may have elements; they are ignored.
        covered = np.repeat(array.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets))
        valid = covered if valid is None else covered & valid
    if valid is not None and not valid.all():
        keys, offsets = drop_invalid(keys, offsets, valid)
    return IdColumn(keys=keys, offsets=offsets)


def _concatenate(parts: list[IdColumn]) -> IdColumn:
    if not parts:
        return IdColumn(keys=np.empty(0, dtype=np.int64))
    keys = np.concatenate([part.keys for part in parts])
    if all(part.offsets is None for part in parts):
        return IdColumn(keys=keys)
    offsets = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        own = np.arange(len(part.keys) + 1, dtype=np.int64) if part.offsets is None else part.offsets
        offsets.append(own[1:] + offsets[-1][-1])
    return IdColumn(keys=keys, offsets=np.concatenate(offsets))
