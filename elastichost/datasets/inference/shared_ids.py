"""Columns of lists that hold the ids of another column, such as the items that a customer has seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from elastichost.datasets.arrow_columns import is_list
from elastichost.datasets.inference.roles import FEW_VALUES, Role
from elastichost.datasets.inference.sample import FileSample

__all__ = ["shared_ids"]

SHARED = 0.5  # of the different items of the lists that are values of the other column


def shared_ids(sample: FileSample, roles: Sequence[Role]) -> dict[str, str]:
    """Column of lists -> the categorical column of single ids of the same kind with most of its items. Columns with few
    values are not compared: small numbers occur in any column of numbers."""
    used = [one.column for one in roles if one.use == "categorical" and one.column.distinct > FEW_VALUES]
    values = {one.name: _values(sample.table.column(one.name)) for one in used}
    found: dict[str, str] = {}
    for lists in used:
        if not lists.type.startswith("list["):
            continue
        kind = lists.type.removeprefix("list[").removesuffix("]")
        shares = {one.name: _share(values[lists.name], values[one.name]) for one in used if one.type == kind}
        best = max(shares, key=lambda name: shares[name], default="")
        if best and shares[best] >= SHARED:
            found[lists.name] = best
    return found


def _values(column: pa.ChunkedArray) -> pa.Array:
    known = column.drop_null()
    flat = pc.list_flatten(known) if is_list(known.type) else known
    if pa.types.is_dictionary(flat.type):
        flat = flat.cast(flat.type.value_type)
    return pc.unique(flat.cast(_common(flat.type), safe=False)).drop_null()


def _common(kind: pa.DataType) -> pa.DataType:
    """The type in which ids of one kind are compared. An unsigned id keeps its bits; bytes may be no text."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.large_binary() if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else pa.large_string()


def _share(items: pa.Array, values: pa.Array) -> float:
    if items.type != values.type:
        return 0.0
    return float(pc.mean(pc.is_in(items, value_set=values)).as_py() or 0.0)
