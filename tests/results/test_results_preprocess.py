"""Columns become inputs of an exported model, or are refused with the column, the row and the expected kind."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torchrec import KeyedJaggedTensor

from elastichost.results import preprocess, reader
from elastichost.results.export import export
from elastichost.results.preprocess import ColumnError, Preprocessor


@pytest.fixture
def preprocessor(run: Any, tmp_path: Path) -> Preprocessor:
    return Preprocessor(export(run.directory, tmp_path / "model").directory)


def test_xxh64_published_vectors() -> None:
    assert preprocess._xxh64(b"") == 0xEF46DB3751D8E999
    assert preprocess._xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert preprocess._xxh64(b"abc") == 0x44BC2CF5AD770999
    assert preprocess._xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


def test_xxh64_agrees_with_the_package_at_every_length() -> None:
    xxhash = pytest.importorskip("xxhash")
    for length in range(101):
        data = bytes(range(length))
        assert preprocess._xxh64(data) == xxhash.xxh64_intdigest(data)


def test_an_id_out_of_range_is_named(run: Any, tmp_path: Path) -> None:
    directory = export(run.directory, tmp_path / "model").directory
    about = json.loads((directory / "preprocess.json").read_text())
    about["tables"][1]["rule"] = "range"
    (directory / "preprocess.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="column item, row 2: 3000 is out of range: the table has rows 0 to 2999"):
        reader.model_inputs(preprocess.Preprocessor(directory), run.table)


def test_inputs_of_a_sliced_table_are_a_slice_of_the_inputs(run: Any, tmp_path: Path) -> None:
    preprocessor = preprocess.Preprocessor(export(run.directory, tmp_path / "model").directory)
    table = pq.read_table(run.directory / "samples.parquet")
    dense, sparse = reader.model_inputs(preprocessor, table)
    part_dense, part = reader.model_inputs(preprocessor, table.slice(2, 3))
    assert isinstance(part, KeyedJaggedTensor)
    torch.testing.assert_close(part_dense, dense[2:5])
    for feature in sparse.keys():  # noqa: SIM118
        whole = sparse[feature].to_dense()[2:5]
        assert [bag.tolist() for bag in part[feature].to_dense()] == [bag.tolist() for bag in whole]


def column_of(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


WRONG_KINDS = [
    ("user", pa.array(["7", "8", "1", "2", "3", "4"]), "string is not an integer id", 0, "7"),
    ("user", pa.array([None, 1.0, 2.0, 3.0, 4.0, 5.0]), "double is not an integer id", 1, 1.0),
    ("user", pa.array([[1], [2], [3], [4], [5], [6]]), "list<.*> is not an integer id", 0, [1]),
    ("recent", pa.array([1, 2, 3, 4, 5, 6]), "int64 is not a list of integer ids", 0, 1),
    ("recent", pa.array([["1"]] * 6), "list<.*string> is not a list of integer ids", 0, ["1"]),
    ("recent", pa.array([[[1]]] * 6), "list<.*> is not a list of integer ids", 0, [[1]]),
    ("code", pa.array([None, None, 17, 18, 19, 20]), "int64 is not a text id", 2, 17),
    ("word", pa.array([True] * 6), "bool is not a text id", 0, True),
    ("price", pa.array(["1.5"] * 6), "string is not a number", 0, "1.5"),
    ("price", pa.array([[1.5]] * 6), "list<.*> is not a number", 0, [1.5]),
]


@pytest.mark.parametrize(("name", "values", "problem", "row", "value"), WRONG_KINDS)
def test_a_column_of_another_kind_is_refused(
    run: Any, preprocessor: Preprocessor, name: str, values: pa.Array, problem: str, row: int, value: object
) -> None:
    """Integers for a table of texts were keys that it did not know: the scores were wrong without an error."""
    with pytest.raises(ColumnError, match=f"column {name}, row {row}: {problem}") as raised:
        preprocessor.prepare(column_of(run.table, name, values))
    error = raised.value
    assert (error.column, error.row, error.value) == (name, row, value)
    assert problem.endswith(error.expected)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("user", pa.uint64()),
        ("item", pa.int16()),
        ("item", pa.dictionary(pa.int8(), pa.int64())),
        ("word", pa.string()),
        ("word", pa.large_string()),
        ("word", pa.string_view()),
        ("code", pa.binary()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
        ("recent", pa.large_list(pa.int32())),
        ("price", pa.float32()),
    ],
)
def test_any_type_of_the_same_kind_has_the_same_keys(
    run: Any, preprocessor: Preprocessor, name: str, kind: pa.DataType
) -> None:
    column = run.table.column(name).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind == pa.uint64():
        column = pa.array([None if one is None else one % 2**64 for one in column.to_pylist()], kind)
    elif pa.types.is_dictionary(kind):
        column = column.dictionary_encode()
    given, wanted = preprocessor.prepare(column_of(run.table, name, column.cast(kind))), preprocessor.prepare(run.table)
    np.testing.assert_array_equal(given.dense, wanted.dense)
    for found, expected in zip((*given.rows, *given.lengths), (*wanted.rows, *wanted.lengths), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_word_that_many_rows_share_is_not_copied(run: Any, preprocessor: Preprocessor) -> None:
    """A dictionary of one long text, with a null among its words."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None, 1, 0], pa.int8()), pa.array(["x" * 10_000, None]))
    lengths = preprocessor.prepare(column_of(run.table, "code", words)).lengths[4]
    assert lengths.tolist() == [1, 0, 1, 0, 0, 1]


def test_a_column_without_any_value_has_no_ids(run: Any, preprocessor: Preprocessor) -> None:
    table = run.table
    for name, kind in (("user", pa.null()), ("code", pa.null()), ("recent", pa.list_(pa.null()))):
        table = column_of(table, name, pa.nulls(6, kind))
    lengths = dict(zip(preprocessor.features, preprocessor.prepare(table).lengths, strict=True))
    assert [int(lengths[name].sum()) for name in ("user", "code", "recent")] == [0, 0, 0]


def test_a_column_that_is_missing_is_named(run: Any, preprocessor: Preprocessor) -> None:
    with pytest.raises(ColumnError, match="column word: is missing; the columns are .*price") as raised:
        preprocessor.prepare(run.table.drop_columns(["word"]))
    assert (raised.value.row, raised.value.expected) == (None, "a text id")


def test_a_column_that_is_there_twice_is_named(run: Any, preprocessor: Preprocessor) -> None:
    twice = run.table.append_column("item", run.table.column("item"))
    with pytest.raises(ColumnError, match="column item: is there 2 times"):
        preprocessor.prepare(twice)
    assert preprocessor.prepare(run.table.append_column("label", run.table.column("label"))).dense.shape == (6, 2)


def test_an_infinite_number_is_refused(run: Any, preprocessor: Preprocessor) -> None:
    with pytest.raises(ColumnError, match=r"column price, row 4: 1e\+300 is infinite in float32"):
        preprocessor.prepare(column_of(run.table, "price", pa.array([1, 2, 3, None, 1e300, 0])))


def test_nulls_are_refused_if_asked(run: Any, tmp_path: Path) -> None:
    directory = export(run.directory, tmp_path / "model").directory
    strict = Preprocessor(directory, refuse_nulls=True)
    full = run.table
    for name, values in (
        ("user", [5] * 6),
        ("recent", [[1]] * 6),
        ("word", ["tee"] * 6),
        ("code", ["a"] * 6),
        ("price", [1.0] * 6),
        ("age", [1.0] * 6),
    ):
        full = column_of(full, name, pa.array(values))
    assert len(strict.prepare(full).dense) == 6
    for name, values in (("price", [1.0, None] * 3), ("price", [1.0, float("nan")] * 3), ("word", ["tee", None] * 3)):
        with pytest.raises(ColumnError, match=f"column {name}, row 1"):
            strict.prepare(column_of(full, name, pa.array(values)))


def test_a_checkpoint_that_does_not_say_which_columns_hold_lists_takes_both(make: Any, tmp_path: Path) -> None:
    run = make(lists=None)
    preprocessor = Preprocessor(export(run.directory, tmp_path / "model").directory)
    single = preprocessor.prepare(column_of(run.table, "recent", pa.array([1] * 6)))
    many = preprocessor.prepare(column_of(run.table, "recent", pa.array([[1]] * 6)))
    np.testing.assert_array_equal(single.rows[2], many.rows[2])
    assert preprocessor.expected("recent") == "an integer id or a list of integer ids"


def test_an_export_of_another_version_is_refused(run: Any, tmp_path: Path) -> None:
    directory = export(run.directory, tmp_path / "model").directory
    file = directory / "preprocess.json"
    file.write_text(file.read_text().replace("export/v2", "export/v1"))
    with pytest.raises(ValueError, match="has the format elastichost/export/v1, not .*: export the run again"):
        Preprocessor(directory)


def test_parts_that_are_joined_are_the_whole(run: Any, preprocessor: Preprocessor) -> None:
    parts = [preprocessor.prepare(run.table.slice(start, 2)) for start in (0, 2, 4)]
    joined, whole = preprocess.Prepared.join(parts), preprocessor.prepare(run.table)
    np.testing.assert_array_equal(joined.dense, whole.dense)
    for found, expected in zip((*joined.rows, *joined.lengths), (*whole.rows, *whole.lengths), strict=True):
        np.testing.assert_array_equal(found, expected)


HUGE = 20_000_000
NULLS = pa.ListArray.from_arrays(pa.array([0, HUGE], pa.int32()), pa.nulls(HUGE))  # a few bytes
WORDS = pa.DictionaryArray.from_arrays(np.zeros(200, np.int8), pa.array(["x" * 2**20]))  # a MiB
LONG_LISTS = [
    ("price", NULLS, "is not a number", [None] * 5 + ["..."]),
    ("code", pa.ListArray.from_arrays(pa.array([0, 200], pa.int32()), WORDS), "is not a text id", None),
    ("recent", NULLS, "has no id", [None] * 5 + ["..."]),
    ("user", pa.StructArray.from_arrays([NULLS], ["many"]), "is not an integer id", "struct<many: list<item: null>>"),
]


@pytest.mark.parametrize(("name", "values", "problem", "value"), LONG_LISTS)
def test_a_long_list_is_refused_without_the_memory_of_its_items(
    run: Any, tmp_path: Path, name: str, values: pa.Array, problem: str, value: object
) -> None:
    strict = Preprocessor(export(run.directory, tmp_path / "model").directory, refuse_nulls=True)
    table = column_of(run.table.slice(0, 1), name, values)
    arrow_bytes = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(ColumnError, match=f"column {name}, row 0: .*{problem}") as raised:
            strict.prepare(table)
        assert tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - arrow_bytes < 50e6
    finally:
        tracemalloc.stop()
    if value is not None:
        assert raised.value.value == value


def test_the_value_of_a_message_has_the_first_items_of_nested_lists() -> None:
    shown = [preprocess._shown(pa.scalar(value)) for value in ([[1, 2], [3]], [[[1]]], list(range(9)), 2.5, "a")]
    assert shown == [[[1, 2], [3]], [["list<item: int64>"]], [0, 1, 2, 3, 4, "..."], 2.5, "a"]
    assert preprocess._shown(pa.scalar(None, pa.list_(pa.int64()))) is None
