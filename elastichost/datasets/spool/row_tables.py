"""Rows, frames and Arrow tables become Arrow tables with one schema. The first rows decide it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from elastichost.datasets.spool.column_fit import array_of, first_misfit, fitted, plain_type, type_words
from elastichost.errors import DataError
from elastichost.human_readable import did_you_mean

__all__ = ["RowTables", "arrow_table", "is_tabular"]

BLOCK_ROWS = 8192  # rows that are Python objects at one time, once the types are known
SHOWN_CHARACTERS = 40


def is_tabular(item: object) -> bool:
    """Whether it is a data frame, an Arrow table or record batch, or anything else that speaks Arrow's interface. A
    stream of batches is none: it is read batch by batch."""
    if isinstance(item, type | pa.RecordBatchReader):
        return False
    has_columns = hasattr(item, "schema") or hasattr(item, "columns")  # an array has none
    return has_columns and any(hasattr(item, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))


def _is_frame(item: object) -> bool:
    return type(item).__module__.partition(".")[0] == "pandas" and hasattr(item, "columns")


class RowTables:
    """Makes tables of what an iterable yields.

    title: names the rows in messages. first_rows: number of rows whose types decide the schema, if they are dicts; of
    tables the first one with rows decides, or an Arrow table without rows whose columns all have types. schema: of the
    columns; None: inferred."""

    def __init__(self, title: str, first_rows: int, schema: pa.Schema | None = None) -> None:
        self._title, self._first_rows = title, first_rows
        self._is_given = schema is not None
        self._schema = None if schema is None else pa.schema([(one.name, plain_type(one.type)) for one in schema])
        self._decided_by = 0  # rows that decided the schema
        self._rows = 0

    def tables(self, items: Iterable[object]) -> Iterator[pa.Table]:
        """Tables with the same schema. Raises DataError for a value, a column or an item that does not fit; it names
        the row, which counts from 0."""
        for block in self._blocks(items):
            table = self._of_rows(block) if isinstance(block, list) else self._of_columns(block)
            if table is None:
                continue
            self._rows += table.num_rows
            yield table

    def _blocks(self, items: Iterable[object]) -> Iterator[list[Mapping[str, Any]] | pa.Table | Any]:
        """Blocks of rows, and tables and frames as they come."""
        rows: list[Mapping[str, Any]] = []
        for item in items:
            if isinstance(item, Mapping):
                rows.append(item)
                if len(rows) >= (self._first_rows if self._schema is None else BLOCK_ROWS):
                    yield rows
                    rows = []
                continue
            if rows:
                yield rows
                rows = []
            if not is_tabular(item):
                raise DataError(
                    f"{self._title}: row {self._rows:,} is a {type(item).__name__}, not a row",
                    hint='yield dicts, as {"clicked": 1, "item": 7}, or Arrow tables or data frames',
                )
            yield item
        if rows:
            yield rows

    # --- rows -----------------------------------------------------------------------------------------------

    def _of_rows(self, rows: list[Mapping[str, Any]]) -> pa.Table:
        names = self._schema.names if self._schema is not None else list(dict.fromkeys(k for row in rows for k in row))
        known = set(names)
        for at, row in enumerate(rows):
            if not row.keys() <= known:
                self._refuse_column(next(name for name in row if name not in known), self._rows + at)
        return self._fitted({name: [row.get(name) for row in rows] for name in names}, len(rows))

    def _fitted(self, columns: Mapping[str, Any], rows: int) -> pa.Table:
        """A table of these columns: sequences of values, or Arrow columns. It decides the schema if it is the first."""
        self._check_names(columns)
        if self._schema is None:
            found = {name: self._inferred(name, values) for name, values in columns.items()}
            self._schema = pa.schema([(name, plain_type(column.type)) for name, column in found.items()])
            self._decided_by = rows
            columns = found
        missing = [name for name in self._schema.names if name not in columns]
        if missing:
            raise DataError(
                f"{self._title}: the table at row {self._rows:,} has no column {missing[0]!r}"
                f"{did_you_mean(missing[0], list(columns))}",
                hint="all tables must have the same columns",
            )
        made = [self._fit(field.name, columns[field.name], field.type) for field in self._schema]
        return pa.Table.from_arrays(made, schema=self._schema)

    def _inferred(self, name: str, values: Any) -> pa.ChunkedArray:
        if isinstance(values, pa.ChunkedArray):
            return values
        found = array_of(values)
        if found is not None:
            return found
        at = first_misfit(values, lambda part: array_of(part) is not None)
        before = array_of(values[:at]) if at else None
        if before is None or pa.types.is_null(before.type):
            expected = "has no type that Parquet files have"
        else:
            expected = f"is not {type_words(before.type)}, as the values before it"
        raise self._misfit(name, values, at, expected)

    def _fit(self, name: str, values: Any, expected: pa.DataType) -> pa.ChunkedArray:
        column = values if isinstance(values, pa.ChunkedArray) else array_of(values)
        made = None if column is None else fitted(column, expected)
        if made is not None:
            return made
        at = first_misfit(values if column is None else column, lambda part: self._fits(part, expected))
        told = f"is not {type_words(expected)}"
        if not self._is_given:
            told += f", as {self._deciders}"
            if pa.types.is_null(expected):
                told = f"comes late: the first {self._decided_by:,} rows have no value, so this column has no type"
        raise self._misfit(name, values if column is None else column, at, told)

    @property
    def _deciders(self) -> str:
        return f"the first {self._decided_by:,} rows" if self._decided_by else "the first table"

    @staticmethod
    def _fits(values: Any, expected: pa.DataType) -> bool:
        column = values if isinstance(values, pa.ChunkedArray) else array_of(values)
        return column is not None and fitted(column, expected) is not None

    def _misfit(self, name: str, values: Any, at: int, told: str) -> DataError:
        value = values[at]
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."
        return DataError(
            f"{self._title}: row {self._rows + at:,} (rows count from 0), column {name!r}: {shown} "
            f"({type(value).__name__}) {told}",
            hint="correct the row, or give the types of all columns: eh.from_iterable(..., schema=pa.schema([...]))",
        )

    # --- tables and frames ----------------------------------------------------------------------------------

    def _of_columns(self, item: Any) -> pa.Table | None:
        """None: it has no rows, and no schema follows from it."""
        if _is_frame(item):
            if not item.columns.is_unique:
                raise self._twice(next(name for name in item.columns if list(item.columns).count(name) > 1))
            columns: dict[str, Any] = {name: item[name].reset_index(drop=True) for name in item.columns}
            rows = len(item)
            is_typed = rows > 0  # else its columns are of objects or of numbers, whatever rows would hold
        else:
            table = arrow_table(item)
            for name in table.column_names:
                if table.column_names.count(name) > 1:
                    raise self._twice(name)
            columns = dict(zip(table.column_names, table.columns, strict=True))
            rows = table.num_rows
            is_typed = rows > 0 or not any(map(pa.types.is_null, table.schema.types))
        if self._schema is None and not is_typed:
            return None
        if self._schema is not None:
            for name in columns:
                if name not in self._schema.names:
                    self._refuse_column(name, self._rows)
        return self._fitted(columns, rows)

    def _twice(self, name: str) -> DataError:
        return DataError(
            f"{self._title}: the table at row {self._rows:,} has more than one column {name!r}",
            hint="columns need different names",
        )

    def _check_names(self, columns: Mapping[Any, Any]) -> None:
        wrong = next((name for name in columns if not isinstance(name, str)), None)
        if wrong is not None:
            raise DataError(
                f"{self._title}: a column is named {wrong!r}, which is a {type(wrong).__name__} and no text",
                hint="rename it: job files name columns by their text",
            )
        if not columns:
            raise DataError(
                f"{self._title}: the rows have no columns", hint='yield dicts, as {"clicked": 1, "item": 7}'
            )

    def _refuse_column(self, name: Any, row: int) -> None:
        assert self._schema is not None or not isinstance(name, str)
        names = [] if self._schema is None else self._schema.names
        owners = "the schema" if self._is_given else self._deciders
        raise DataError(
            f"{self._title}: row {row:,} (rows count from 0) has a column {name!r}, which {owners} "
            f"{'have' if self._decided_by else 'has'} not{did_you_mean(str(name), names)}",
            hint="leave it out, or give the types of all columns: eh.from_iterable(..., schema=pa.schema([...]))",
        )


def arrow_table(item: Any) -> pa.Table:
    """What `is_tabular` says is one, as an Arrow table."""
    if isinstance(item, pa.Table):
        return item
    if isinstance(item, pa.RecordBatch) or not hasattr(item, "__arrow_c_stream__"):
        return pa.Table.from_batches([pa.record_batch(item)])
    return pa.table(item)
