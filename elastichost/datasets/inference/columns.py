"""The facts about the columns of a sample on which their use depends. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from elastichost.datasets.arrow_columns import id_type, is_numeric
from elastichost.datasets.inference.sample import FileSample
from elastichost.datasets.inference.text_types import are_times

__all__ = ["ColumnFacts", "ColumnType", "facts_of"]

ColumnType = Literal["int", "float", "bool", "string", "list[int]", "list[string]", "time", "other"]
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column in a sample of `rows` rows.

    nulls               rows without a value, NaN included
    distinct            different values, or different items of lists
    once, twice         values, or items, that occur once in the sample, and twice
    least, middle, most of numbers; None for other types
    is_whole            all numbers are
    are_words           they are the words of a text file, which can be read as another type, too
    file_rows           about as many rows has the file; 0: as the sample
    """

    name: str
    type: ColumnType
    rows: int
    nulls: int
    distinct: int
    least: float | None = None
    middle: float | None = None
    most: float | None = None
    examples: tuple[str, ...] = ()
    is_whole: bool = False
    are_words: bool = False
    file_rows: int = 0
    once: int = 0
    twice: int = 0


def facts_of(sample: FileSample) -> tuple[ColumnFacts, ...]:
    """The facts about each column, in the order of the file."""
    told = sample.text_types or {}
    return tuple(
        replace(
            _facts(name, sample.table.column(name), told.get(name)),
            are_words=name in told,
            file_rows=sample.about_rows,
        )
        for name in sample.table.column_names
    )


def _facts(name: str, column: pa.ChunkedArray, told: ColumnType | None) -> ColumnFacts:
    kind = told or _type_of(column.type)
    rows, nulls = len(column), column.null_count
    values = column.drop_null()
    if kind.startswith("list"):
        values = pc.list_flatten(values).drop_null()
    if kind == "float":
        values = values.cast(pa.float64())
        finite = values.filter(pc.invert(pc.is_nan(values)))
        nulls += len(values) - len(finite)
        values = finite
    if kind == "other":
        return ColumnFacts(name, kind, rows, nulls, 0)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kind == "string" and are_times(values):
        kind = "time"
    if kind == "time":  # its values are not looked at: Python has none for parts of a microsecond
        return ColumnFacts(name, kind, rows, nulls, pc.count_distinct(values).as_py())
    unique, counts = pc.value_counts(values).flatten()
    examples = tuple(str(value.as_py()) for value in unique[:EXAMPLES])
    once, twice = (int(pc.sum(pc.equal(counts, count)).as_py() or 0) for count in (1, 2))
    facts = ColumnFacts(name, kind, rows, nulls, len(unique), examples=examples, once=once, twice=twice)
    return _with_numbers(facts, values) if kind in ("int", "float") and len(values) else facts


def _with_numbers(facts: ColumnFacts, values: Any) -> ColumnFacts:
    bounds = pc.min_max(values).as_py()
    middle = pc.quantile(values.cast(pa.float64(), safe=False), 0.5)[0].as_py()  # a large id is rounded
    is_whole = facts.type == "int" or bool(pc.all(pc.equal(values, pc.trunc(values))).as_py())
    least, most = float(bounds["min"]), float(bounds["max"])
    return replace(facts, least=least, middle=float(middle), most=most, is_whole=is_whole)


def _type_of(kind: pa.DataType) -> ColumnType:
    """As readers take the type: `arrow_columns` decides what ids and what numbers are."""
    if pa.types.is_boolean(kind):
        return "bool"
    ids = id_type(kind)
    if ids is not None:
        lists: dict[str, ColumnType] = {"int": "list[int]", "string": "list[string]"}
        return lists[ids[0]] if ids[1] else ids[0]
    if is_numeric(kind):
        return "float"
    return "time" if pa.types.is_temporal(kind) else "other"
