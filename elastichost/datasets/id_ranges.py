"""Finds ids of fixed tables outside [0, rows)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from elastichost.datasets.decoded import DecodedUnit, IdColumn
from elastichost.specs import TableSpec

__all__ = ["find_id_out_of_range", "first_id_outside", "id_problem", "ranged_tables"]


def ranged_tables(tables: Sequence[TableSpec]) -> dict[str, TableSpec]:
    """Column name -> its table, for the columns whose int ids must be in [0, rows) of the table."""
    return {
        feature: table
        for table in tables
        if not table.is_dynamic and table.key_kind == "int" and table.out_of_range == "error"
        for feature in table.features
    }


def first_id_outside(column: IdColumn, rows: int) -> tuple[int, int] | None:
    """(sample, id) of the first id outside [0, rows); None when there is none."""
    outside = np.flatnonzero((column.keys < 0) | (column.keys >= rows))
    if len(outside) == 0:
        return None
    at = int(outside[0])
    sample = at if column.offsets is None else int(np.searchsorted(column.offsets, at, side="right")) - 1
    return sample, int(column.keys[at])


def id_problem(where: str, column: str, found_id: int, table: TableSpec) -> str:
    """The message, in one line: place, column, id, table and its rows, and what to set."""
    return (
        f"{where}, column {column!r}: id {found_id} is outside table {table.name!r} of {table.rows:,} rows "
        f'(set tables.{table.name}.rows higher or to "dynamic", or out_of_range = "modulo")'
    )


def find_id_out_of_range(
    decoded: DecodedUnit,
    categorical: Sequence[str],
    ranged: dict[str, TableSpec],
    locate: Callable[[int], str],
) -> tuple[str, ...]:
    """One message for each column with an id outside its table. `locate(sample)`: the text with file and row."""
    problems: list[str] = []
    for name, column in zip(categorical, decoded.ids, strict=True):
        table = ranged.get(name)
        found = None if table is None else first_id_outside(column, table.rows)
        if table is not None and found is not None:
            problems.append(id_problem(locate(found[0]), name, found[1], table))
    return tuple(problems)
