"""Rows of a JSON body to columns. Pure.

`{"rows": [{column: value, ...}, ...]}`. Every row has every column that the model reads; further columns are ignored. A
null is a missing value. An id that is an integer is written as an integer, and text as a string: neither is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from elastichost.results.preprocess import Preprocessor
from elastichost.serving.request_error import RequestError

__all__ = ["table_of_json"]

Row = dict[str, Any]
NULL = type(None)
NUMBERS = frozenset({int, float, bool, NULL})
OF_KIND: dict[bool, frozenset[type]] = {False: frozenset({int, NULL}), True: frozenset({str, NULL})}
EXAMPLE = '{"rows": [{"column": value, ...}, ...]}'


def table_of_json(body: bytes, preprocessor: Preprocessor, max_rows: int) -> pa.Table:
    """The columns that the model reads. Raises RequestError with row, column, value and expected kind."""
    rows = _rows_of(body, max_rows)
    columns = {name: _numbers(rows, name, preprocessor) for name in preprocessor.dense}
    columns |= {name: _ids(rows, name, preprocessor) for name in preprocessor.features}
    return pa.table(columns)


def _rows_of(body: bytes, max_rows: int) -> list[Row]:
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, "invalid_body", f"the body is not JSON: {error}") from error
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise RequestError(400, "invalid_body", f"the body must be {EXAMPLE}", expected=EXAMPLE)
    if len(rows) > max_rows:
        raise RequestError(413, "too_many_rows", f"{len(rows)} rows; at most {max_rows} are allowed in a request")
    for number, row in enumerate(rows):
        if type(row) is not dict:
            raise RequestError(
                422, "wrong_value", f"row {number} is not an object", row=number, value=row, expected="an object"
            )
    return rows


def _values(rows: Sequence[Row], name: str, preprocessor: Preprocessor) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except KeyError:
        number = next(number for number, row in enumerate(rows) if name not in row)
        expected = preprocessor.expected(name)
        message = f"row {number} has no column {name!r}: it needs {expected}, or null"
        raise RequestError(422, "missing_column", message, row=number, column=name, expected=expected) from None


def _numbers(rows: Sequence[Row], name: str, preprocessor: Preprocessor) -> pa.Array:
    values = _values(rows, name, preprocessor)
    if not NUMBERS.issuperset(map(type, values)):
        raise _wrong(values, name, preprocessor, lambda value: type(value) in NUMBERS)
    try:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    except OverflowError:  # an integer of hundreds of digits
        raise _wrong(values, name, preprocessor, lambda value: value is None or abs(value) < 1e300) from None


def _ids(rows: Sequence[Row], name: str, preprocessor: Preprocessor) -> pa.Array:
    values, is_text = _values(rows, name, preprocessor), preprocessor.tables[name].is_string
    of_kind, is_list = OF_KIND[is_text], preprocessor.lists[name]
    if is_list is None and list in set(map(type, values)):  # both are accepted: one id is a list of one
        values, is_list = [value if value is None or type(value) is list else [value] for value in values], True
    if is_list:
        if not {list, NULL}.issuperset(map(type, values)):
            raise _wrong(values, name, preprocessor, lambda value: type(value) in (list, NULL))
        if not of_kind.issuperset(type(one) for value in values if value is not None for one in value):
            raise _wrong(
                values, name, preprocessor, lambda value: value is None or of_kind.issuperset(map(type, value))
            )
    elif not of_kind.issuperset(map(type, values)):
        raise _wrong(values, name, preprocessor, lambda value: type(value) in of_kind)
    element = pa.string() if is_text else pa.int64()
    try:
        return pa.array(values, pa.list_(element) if is_list else element)
    except (OverflowError, pa.ArrowInvalid):  # an integer of more than 63 bits
        return _wide_integers(values, name, preprocessor, is_list=bool(is_list))


def _wide_integers(values: list[Any], name: str, preprocessor: Preprocessor, *, is_list: bool) -> pa.Array:
    """Unsigned integers of 64 bits are reinterpreted as signed ones, as in training."""

    def fits(value: Any) -> bool:
        return all(one is None or -(2**63) <= one < 2**64 for one in (value if type(value) is list else [value]))

    if not all(map(fits, values)):
        raise _wrong(values, name, preprocessor, fits)

    def wrapped(one: int | None) -> int | None:
        return one if one is None or one < 2**63 else one - 2**64

    if is_list:
        lists = [None if value is None else [wrapped(one) for one in value] for value in values]
        return pa.array(lists, pa.list_(pa.int64()))
    return pa.array(map(wrapped, values), pa.int64())


def _wrong(
    values: Sequence[Any], name: str, preprocessor: Preprocessor, is_right: Callable[[Any], bool]
) -> RequestError:
    """The refusal of the first value that is not right."""
    number, value = next((number, value) for number, value in enumerate(values) if not is_right(value))
    expected = preprocessor.expected(name)
    message = f"row {number}, column {name!r}: the value is not {expected}"
    return RequestError(422, "wrong_value", message, row=number, column=name, value=value, expected=expected)
