"""Tables of rows, frames and Arrow tables: one schema, and errors that name row, column, value and type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from elastichost.datasets.spool import row_tables
from elastichost.datasets.spool.row_tables import RowTables, is_tabular
from elastichost.errors import DataError


def tables_of(items: Any, first_rows: int = 2, schema: pa.Schema | None = None) -> list[pa.Table]:
    return list(RowTables("data.train", first_rows, schema).tables(items))


def whole(items: Any, first_rows: int = 2, schema: pa.Schema | None = None) -> pa.Table:
    return pa.concat_tables(tables_of(items, first_rows, schema))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tables, "BLOCK_ROWS", 3)


def test_rows_with_missing_keys_and_numpy_numbers() -> None:
    rows: list[dict[str, Any]] = [
        {"y": 1, "x": np.float32(0.5), "seen": [1, 2]},
        {"y": np.int64(0), "tag": "a", "seen": []},
        {"x": 3, "tag": None, "seen": np.array([7])},
        {"y": 1},
    ]
    table = whole(rows)
    assert table.schema == pa.schema(
        [("y", pa.int64()), ("x", pa.float32()), ("seen", pa.list_(pa.int64())), ("tag", pa.string())]
    )
    assert table.to_pylist() == [
        {"y": 1, "x": 0.5, "seen": [1, 2], "tag": None},
        {"y": 0, "x": None, "seen": [], "tag": "a"},
        {"y": None, "x": 3.0, "seen": [7], "tag": None},
        {"y": 1, "x": None, "seen": None, "tag": None},
    ]


def test_tables_batches_and_frames_take_the_types_of_the_first() -> None:
    first = pa.table({"y": pa.array([1], pa.int64()), "c": pa.array(["a"]).dictionary_encode()})
    batch = pa.record_batch({"c": pa.array(["b"], pa.large_string()), "y": pa.array([2], pa.int8())})
    frame = pd.DataFrame({"y": [3.0, np.nan], "c": pd.Categorical(["b", None])}, index=[7, 9])
    table = whole([first, batch, frame, {"y": 4}])
    assert table.schema == pa.schema([("y", pa.int64()), ("c", pa.string())])
    assert table.to_pydict() == {"y": [1, 2, 3, None, 4], "c": ["a", "b", "b", None, None]}


def test_tables_without_rows_and_types_decide_nothing() -> None:
    frame = pd.DataFrame({"item": ["a", "b"], "x": [0.5, 1.5]})
    none = pd.DataFrame({"item": pd.Series([], dtype=object), "x": pd.Series([], dtype="int64")})
    for empty in (none, pd.DataFrame(), pa.Table.from_pandas(none)):
        table = whole([empty, empty, frame, none])
        assert table.schema == whole([frame]).schema
        assert table.to_pydict() == {"item": ["a", "b"], "x": [0.5, 1.5]}
        assert tables_of([empty]) == []


def test_an_arrow_table_without_rows_decides_if_it_has_types() -> None:
    empty = pa.table({"item": pa.array([], pa.string())})
    table = whole([empty, pa.table({"item": pa.nulls(1)}), {"item": "a"}])
    assert table.to_pydict() == {"item": [None, "a"]}
    with pytest.raises(DataError, match=r"column 'item': 7 \(int\) is not string, as the first table"):
        tables_of([empty, {"item": 7}])
    with pytest.raises(DataError, match="has a column 'itam', which the first table has not"):
        tables_of([empty, {"itam": "a"}])


def test_a_stream_is_read_batch_by_batch_and_an_array_is_no_table() -> None:
    reader = pa.table({"y": [1, 2]}).to_reader(max_chunksize=1)
    assert not is_tabular(reader)
    assert [table.num_rows for table in tables_of(reader)] == [1, 1]
    assert not any(is_tabular(one) for one in (pa.array([1]), pa.chunked_array([[1]]), pd.Series([1]), pa.Table))


def test_few_rows_are_python_objects_at_one_time() -> None:
    """The second table is made before the rows of the third one are asked for."""
    asked = 0

    def rows() -> Iterator[dict[str, int]]:
        nonlocal asked
        for number in range(12):
            asked += 1
            yield {"y": number}

    sizes = []
    for table in RowTables("data.train", 2).tables(rows()):
        sizes.append((table.num_rows, asked))
    assert sizes == [(2, 2), (3, 5), (3, 8), (3, 11), (1, 12)]


ROWS = [{"y": 1, "x": 0.5, "c": "a"}, {"y": 0, "x": None, "c": None}, {"y": 0}, {"y": 0}, {"y": 1}]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"y": "no"},
            "data.train: row 6 (rows count from 0), column 'y': 'no' (str) is not int64, as the first 2 rows",
        ),
        ({"y": 0.5}, "row 6 (rows count from 0), column 'y': 0.5 (float) is not int64"),
        ({"y": True}, "row 6 (rows count from 0), column 'y': True (bool) is not int64"),
        ({"c": 7}, "row 6 (rows count from 0), column 'c': 7 (int) is not string"),
        ({"y": 2**64}, f"row 6 (rows count from 0), column 'y': {2**64} (int) is not int64"),
        ({"z": 1}, "row 6 (rows count from 0) has a column 'z', which the first 2 rows have not"),
        ({"c": "x" * 50 + "\ud800"}, f"column 'c': '{'x' * 39}... (str) is not string"),
    ],
)
def test_a_later_row_that_does_not_fit_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        tables_of([*ROWS, {"y": 0}, wrong, {"y": 0}, wrong])
    assert said in caught.value.message
    assert "schema=" in caught.value.hint


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, "a"], "row 1 (rows count from 0), column 'y': 'a' (str) is not int64, as the values before it"),
        ([None, object], "row 1 (rows count from 0), column 'y': <class 'object'> (type) has no type that"),
    ],
)
def test_first_rows_that_do_not_fit_together_are_named(values: list[Any], said: str) -> None:
    for items in ([{"y": value} for value in values], [pd.DataFrame({"y": pd.Series(values, dtype=object)})]):
        with pytest.raises(DataError) as caught:
            tables_of(items)
        assert said in caught.value.message


def test_a_value_of_a_table_that_does_not_fit_is_named() -> None:
    first = pa.table({"y": [1, 2]})
    with pytest.raises(DataError, match=r"row 4 \(rows count from 0\), column 'y': 2.5 \(float\) is not int64"):
        tables_of([first, pa.table({"y": [3.0, 4.0, 2.5]}).slice(0, 3)])
    with pytest.raises(DataError, match=r"row 2 \(rows count from 0\), column 'y': 'a' \(str\) is not int64"):
        tables_of([first, pd.DataFrame({"y": ["a"]})])


def test_columns_that_the_first_rows_left_empty_need_a_schema() -> None:
    rows = [{"y": 1, "c": None}, {"y": 0, "c": None}, {"y": 1, "c": "a"}]
    with pytest.raises(DataError, match=r"column 'c': 'a' \(str\) comes late: the first 2 rows"):
        tables_of(rows)
    schema = pa.schema([("y", pa.int8()), ("c", pa.dictionary(pa.int8(), pa.string()))])
    assert whole(rows, schema=schema).schema == pa.schema([("y", pa.int8()), ("c", pa.string())])
    with pytest.raises(DataError, match=r"row 1 .*: 300 \(int\) is not int8\n"):
        tables_of([{"y": 1}, {"y": 300}], schema=schema)
    with pytest.raises(DataError, match=r"has a column 'z', which the schema has not"):
        tables_of([{"y": 1, "z": 1}], schema=schema)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([(1, 2)], "row 0 is a tuple, not a row"),
        ([{"y": 1}, {"y": 2}, 3], "row 2 is a int, not a row"),
        ([pa.array([1])], "row 0 is a Int64Array, not a row"),
        ([{1: 2}], "a column is named 1, which is a int and no text"),
        ([{}], "the rows have no columns"),
        ([pa.table([[1], [2]], names=["y", "y"])], "has more than one column 'y'"),
        ([pd.DataFrame([[1, 2]], columns=["y", "y"])], "has more than one column 'y'"),
        ([pa.table({"price": [1]}), pa.table({"prise": [1]})], "has a column 'prise', which the first 1 rows have not"),
        ([pa.table({"y": [1], "c": [1]}), pa.table({"y": [1]})], "the table at row 1 has no column 'c'"),
    ],
)
def test_what_are_no_rows_is_refused(items: list[Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        tables_of(items)
    assert said in caught.value.message
