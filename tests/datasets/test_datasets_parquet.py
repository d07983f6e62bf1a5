"""Parquet: types, nulls, lists, row groups, bad rows."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from elastichost.datasets.api import Unit
from elastichost.errors import DataError
from tests.effort import examples

from .conftest import all_batches, hash_string, ids_of, only_unit, reader_of, settings, write_parquet

INT64 = st.integers(-(2**63), 2**63 - 1)


def labelled(columns: dict[str, Any], rows: int) -> dict[str, Any]:
    """The columns with labels `y` and dense values `x`."""
    return {
        "y": pa.array([row % 2 for row in range(rows)]),
        "x": pa.array([float(row) for row in range(rows)]),
        **columns,
    }


@hypothesis_settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    values=st.lists(st.one_of(st.none(), INT64), min_size=1, max_size=30),
    groups=st.integers(1, 10),
    batch_size=st.integers(1, 12),
)
def test_int64_ids_and_nulls_are_kept_exactly(
    tmp_path: Path, values: list[int | None], groups: int, batch_size: int
) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(values, pa.int64())}, len(values)), groups)
    batches = all_batches(reader_of(settings(path)), batch_size)
    assert ids_of(batches, 1) == [[[] if value is None else [value] for value in values]]
    assert [batch.size for batch in batches[:-1]] == [b.stop - b.start for b in batches[:-1]]


def test_an_id_above_2_to_53_with_nulls_beside_it_is_not_rounded(tmp_path: Path) -> None:
    ids = pa.array([2**60 + 1, None, -(2**63)], pa.int64())
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": ids}, 3))
    assert ids_of(all_batches(reader_of(settings(path))), 1) == [[[2**60 + 1], [], [-(2**63)]]]


@hypothesis_settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    values=st.lists(
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "bb", "ü"])), max_size=4)),
        min_size=1,
        max_size=20,
    ),
    element=st.sampled_from(["element", "item"]),
    wide=st.booleans(),
)
def test_lists_of_strings_lose_only_their_nulls(
    tmp_path: Path, values: list[list[str | None] | None], element: str, wide: bool
) -> None:
    make = pa.large_list if wide else pa.list_
    column = pa.array(values, make(pa.field(element, pa.large_string() if wide else pa.string())))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(labelled({"c": column}, len(values))), path, use_compliant_nested_type=False)
    expected = [[hash_string(one) for one in value or [] if one is not None] for value in values]
    reader = reader_of(settings(path))
    assert ids_of(all_batches(reader), 1) == [expected]
    assert reader.describe().multi_valued == ("c",)
    assert reader.describe().key_kinds == {"c": "string"}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([2**64 - 1, None], pa.uint64()), [[-1], []]),
        (pa.array([-3, 4], pa.int8()), [[-3], [4]]),
        (pa.array([7, None], pa.uint32()), [[7], []]),
        (pa.array([True, False]), [[1], [0]]),
        (pa.array([[1, None, -2], []], pa.list_(pa.int32())), [[1, -2], []]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), [[1, 2], [3, 4]]),
        (pa.array(["a", None]).dictionary_encode(), [[hash_string("a")], []]),
        (pa.array([b"a", b""]), [[hash_string("a")], [hash_string("")]]),
        (pa.array([None, None], pa.string()), [[], []]),
    ],
)
def test_types_of_ids(tmp_path: Path, column: pa.Array, expected: list[list[int]]) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": column}, 2))
    assert ids_of(all_batches(reader_of(settings(path))), 1) == [expected]


def test_dense_of_any_numeric_type_with_nulls(tmp_path: Path) -> None:
    columns = labelled({"c": pa.array([1, 2, 3])}, 3) | {
        "f": pa.array([1.5, None, float("nan")]),
        "i": pa.array([-4, None, 2**40], pa.int64()),
        "b": pa.array([True, None, False]),
        "h": pa.array(np.array([0.5, 1, 2], dtype=np.float16)),
        "d": pa.array([1, 2, None]).cast(pa.decimal128(30, 2)),
    }
    path = write_parquet(tmp_path / "a.parquet", columns)
    (batch,) = all_batches(reader_of(settings(path, dense=("f", "i", "b", "h", "d"), null_fill=-9.0)))
    assert batch.dense.dtype == np.float32
    assert batch.dense.tolist() == [[1.5, -4, 1, 0.5, 1], [-9, -9, -9, 1, 2], [-9, 2**40, 0, 2, -9]]


def test_log1p_clamps_negative_values_and_fills_nulls_afterwards(tmp_path: Path) -> None:
    columns = labelled({"c": pa.array([1, 2, 3])}, 3) | {"x": pa.array([-5.0, None, 1.0])}
    path = write_parquet(tmp_path / "a.parquet", columns)
    (batch,) = all_batches(reader_of(settings(path, dense_transform="log1p", null_fill=7.0)))
    np.testing.assert_array_equal(batch.dense[:, 0], np.array([0, 7, np.log1p(np.float32(1))], dtype=np.float32))


def test_signed_log1p_keeps_the_sign(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"y": [0] * 4, "x": [-3.0, None, 1.0, -0.0], "c": [1, 2, 3, 4]})
    (batch,) = all_batches(reader_of(settings(path, dense_transform="signed_log1p", null_fill=7.0)))
    large, small = np.log1p(np.float32(3)), np.log1p(np.float32(1))
    np.testing.assert_array_equal(batch.dense[:, 0], np.array([-large, 7, small, 0], dtype=np.float32))
    write_parquet(path, {"y": [0], "x": [-np.inf], "c": [1]})
    with pytest.raises(DataError, match="value is infinite in float32"):
        all_batches(reader_of(settings(path, dense_transform="signed_log1p")))


def test_several_labels_and_weights(tmp_path: Path) -> None:
    columns = labelled({"c": pa.array([1, 2])}, 2) | {"z": pa.array([True, False]), "w": pa.array([0.5, 2.0])}
    path = write_parquet(tmp_path / "a.parquet", columns)
    (batch,) = all_batches(reader_of(settings(path, labels=("y", "z"), weight="w")))
    assert batch.labels.tolist() == [[0, 1], [1, 0]]
    assert batch.weights is not None
    assert batch.weights.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("bad_columns", "message"),
    [
        ({"y": pa.array([0, 1, 0, 3])}, "row 3 (row group 1, rows count from 0), column 'y': label is 3, not 0 or 1"),
        ({"y": pa.array([0, 1, None, 0])}, "row 2 (row group 1, rows count from 0), column 'y': label is null"),
        ({"y": pa.array([0, 0.5, 0, 1])}, "row 1 (row group 0, rows count from 0), column 'y': label is 0.5"),
        ({"x": pa.array([0, 0, float("inf"), 1])}, "row 2 (row group 1, rows count from 0), column 'x': value is infi"),
        ({"w": pa.array([1.0, -1, 0, 1])}, "row 1 (row group 0, rows count from 0), column 'w': weight is -1.0"),
    ],
)
def test_bad_rows_stop_or_are_skipped(tmp_path: Path, bad_columns: dict[str, pa.Array], message: str) -> None:
    columns = labelled({"c": pa.array([10, 11, 12, 13]), "w": pa.array([1.0] * 4)}, 4) | bad_columns
    path = write_parquet(tmp_path / "a.parquet", columns, 2)
    with pytest.raises(DataError) as raised:
        all_batches(reader_of(settings(path, weight="w")))
    assert f"{path}: {message}" in str(raised.value)
    assert 'data.bad_rows = "skip"' in raised.value.hint
    batches = all_batches(reader_of(settings(path, weight="w", skip_bad_rows=True)))
    assert sum(batch.size for batch in batches) == 3
    assert sum(batch.skipped for batch in batches) == 1


def test_a_range_of_bad_rows_gives_an_empty_batch_that_covers_them(tmp_path: Path) -> None:
    columns = labelled({"c": pa.array(range(6))}, 6) | {"y": pa.array([0, None, None, None, 1, None])}
    path = write_parquet(tmp_path / "a.parquet", columns)
    reader = reader_of(settings(path, skip_bad_rows=True))
    unit = only_unit(reader)

    def cut(start: int, stop: int, size: int) -> list[tuple[int, int, int, int]]:
        return [(b.start, b.stop, b.size, b.skipped) for b in reader.batches(unit, start, stop, size)]

    assert cut(1, 4, 2) == [(1, 4, 0, 3)]
    assert cut(0, 6, 1) == [(0, 1, 1, 0), (1, 6, 1, 4)]
    assert cut(0, 6, 9) == [(0, 6, 2, 4)]
    assert cut(2, 2, 9) == []


@hypothesis_settings(
    max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bad=st.lists(st.booleans(), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    batch_size=st.integers(1, 9),
    seed=st.one_of(st.none(), st.integers(-(2**63), 2**64)),
)
def test_ranges_concatenate_to_the_whole_unit(
    tmp_path: Path, bad: list[bool], cuts: list[int], batch_size: int, seed: int | None
) -> None:
    rows = len(bad)
    lists = pa.array([list(range(row % 4)) for row in range(rows)], pa.list_(pa.int64()))
    columns = {
        "y": pa.array([None if is_bad else row % 2 for row, is_bad in enumerate(bad)], pa.int64()),
        "x": pa.array([float(row) for row in range(rows)]),
        "c": lists,
    }
    path = write_parquet(tmp_path / "a.parquet", columns)
    reader = reader_of(settings(path, skip_bad_rows=True))
    unit = only_unit(reader)
    bounds = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    parts = [batch for start, stop in pairwise(bounds) for batch in reader.batches(unit, start, stop, batch_size, seed)]
    (whole,) = reader.batches(unit, 0, rows, rows, seed)
    assert np.concatenate([part.dense for part in parts]).tolist() == whole.dense.tolist()
    assert sorted(whole.dense[:, 0].tolist()) == [float(row) for row in range(rows) if not bad[row]]
    assert ids_of(parts, 1) == ids_of([whole], 1)
    assert all(part.stop - part.start == part.size + part.skipped for part in parts)
    assert [position for part in parts for position in range(part.start, part.stop)] == list(range(rows))
    for row, ids in zip(whole.dense[:, 0].astype(int).tolist(), ids_of([whole], 1)[0], strict=True):
        assert ids == list(range(row % 4))


def test_other_units_and_other_seeds_get_other_permutations(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(range(200))}, 200), 100)
    reader = reader_of(settings(path))
    first, second = reader.describe().units

    def order(unit: Unit, seed: int) -> list[int]:
        (batch,) = reader.batches(unit, 0, 100, 100, seed)
        return [int(key) % 100 for key in batch.keys]

    assert order(first, 1) == order(first, 1)
    assert len({tuple(order(first, 1)), tuple(order(first, 2)), tuple(order(second, 1))}) == 3


@pytest.mark.parametrize(
    ("limit", "samples"), [(0, [4, 4, 2]), (10, [4, 4, 2]), (5, [4, 1]), (4, [4]), (99, [4, 4, 2])]
)
def test_limit_rows_cuts_the_last_unit(tmp_path: Path, limit: int, samples: list[int]) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(range(10))}, 10), 4)
    reader = reader_of(settings(path, limit_rows=limit))
    description = reader.describe()
    assert [unit.samples for unit in description.units] == samples
    assert description.samples == sum(samples)
    assert [batch.keys.tolist() for batch in all_batches(reader, 4)] == [
        list(range(unit.first_sample, unit.first_sample + unit.samples)) for unit in description.units
    ]


def test_globs_are_read_in_name_order_and_each_file_once(tmp_path: Path) -> None:
    for name, first in (("b", 10), ("a", 0)):
        write_parquet(tmp_path / f"{name}.parquet", labelled({"c": pa.array(range(first, first + 3))}, 3))
    patterns = (str(tmp_path / "*.parquet"), str(tmp_path / "b.parquet"))
    reader = reader_of(settings("", patterns=patterns))
    assert [os.path.basename(file) for file in reader.describe().files] == ["a.parquet", "b.parquet"]
    assert [unit.first_sample for unit in reader.describe().units] == [0, 3]
    assert np.concatenate([batch.keys for batch in all_batches(reader)]).tolist() == [0, 1, 2, 10, 11, 12]


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text("not parquet at all")
    write_parquet(tmp_path / "good.parquet", {"y": ["a"], "dense": [1.0], "c": [1.5]})
    patterns = tuple(
        str(tmp_path / name) for name in ("empty.parquet", "text.parquet", "good.parquet", "goood.parquet")
    )
    with pytest.raises(DataError) as raised:
        reader_of(settings("", patterns=patterns, dense=("dnse",))).describe()
    text = str(raised.value)
    assert "6 problems" in text
    for expected in (
        "empty.parquet: is empty (0 bytes)",
        'text.parquet: is a text file, not Parquet: set data.format = "csv"',
        'goood.parquet: no such file; did you mean "good.parquet"?',
        "no column 'dnse'; did you mean \"dense\"?",
        "column 'y' is string: a label must be a number or bool; write it as 0 and 1",
        "column 'c' is double: ids are ints, strings, or lists of them",
    ):
        assert expected in text


def test_a_column_with_different_types_in_two_files_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array([1])}, 1))
    write_parquet(tmp_path / "b.parquet", labelled({"c": pa.array(["1"])}, 1))
    with pytest.raises(DataError, match=r"column 'c' holds strings, but ints in .*a\.parquet"):
        reader_of(settings(tmp_path / "*.parquet")).describe()


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(range(8))}, 8), 4)
    reader = reader_of(settings(path))
    first, second = reader.describe().units
    next(reader.batches(first, 0, 4, 4))
    write_parquet(path, labelled({"c": pa.array(range(9))}, 9), 4)
    with pytest.raises(DataError, match="changed while it was being read"):
        reader.batches(second, 0, 4, 4)


def test_a_unit_of_another_description_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(range(8))}, 8))
    stale = Unit(index=0, first_sample=0, samples=9, file=0, group=0)
    with pytest.raises(DataError, match="changed since the job started"):
        reader_of(settings(path)).batches(stale, 0, 9, 9)


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(range(5000))}, 5000))
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    path.write_bytes(content)
    with pytest.raises(DataError, match="row group 0 cannot be read"):
        all_batches(reader_of(settings(path)))


def test_unlabelled_data_gives_nan_labels_where_that_is_allowed(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"x": [1.0], "c": [1]})
    with pytest.raises(DataError, match="no column 'y'"):
        reader_of(settings(path)).describe()
    (batch,) = all_batches(reader_of(settings(path, labels_required=False)))
    assert np.isnan(batch.labels).all()
    assert batch.labels.shape == (1, 1)


def test_a_range_outside_the_unit_is_a_programming_error(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(range(5))}, 5))
    reader = reader_of(settings(path))
    with pytest.raises(ValueError, match=r"\[2, 6\)"):
        reader.batches(only_unit(reader), 2, 6, 4)
    with pytest.raises(ValueError, match="batch_size"):
        reader.batches(only_unit(reader), 0, 5, 0)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"y,x,c\n1,0.5,a\n", 'is a text file, not Parquet: set data.format = "csv"'),
        (b"1" + 13 * b"\t2" + 26 * b"\t68fd1e64", 'is a text file, not Parquet: set data.format = "criteo_tsv"'),
        (b"0\t2\t3\t68fd1e64\n", r'is a text file, not Parquet: set data.format = "csv" and data.csv.delimiter = "\t"'),
        (b"y;x;c\n1;0.5;a\n", 'is a text file, not Parquet: set data.format = "csv" and data.csv.delimiter = ";"'),
        (b"y\tx\tc\td\n", r'is a text file, not Parquet: set data.format = "csv" and data.csv.delimiter = "\t"'),
        (gzip.compress(b"y,x,c\n", mtime=0), "is a gzip file, not Parquet"),
        (b"PK\3\4\0\0", "is not a Parquet file: it begins with b'PK\\x03\\x04' instead of b'PAR1'"),
        (b"PAR1 and no footer", "not a readable Parquet file"),
    ],
)
def test_the_message_for_another_file_names_its_format(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError) as raised:
        reader_of(settings(tmp_path / "a.parquet")).describe()
    assert f"a.parquet: {expected}" in str(raised.value)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1, 0])] * 2 + [pa.array([0.5, 1.0])], names=["y", "c", "c"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(
        DataError, match=r"a\.parquet: has more than one column 'c': write the file with different column names"
    ):
        reader_of(settings(tmp_path / "a.parquet", dense=())).describe()


def test_an_address_that_nothing_reads_is_refused_with_those_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"y.parquet: .* nothing here reads nothing://: s3://.* download the file"):
        reader_of(settings("nothing://example/y.parquet")).describe()


def test_csv_files_are_named_as_such_in_one_line(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("y,x,c\n1,0.5,a\n")
    with pytest.raises(DataError) as raised:
        reader_of(settings(tmp_path / "*.csv")).describe()
    assert raised.value.message == (
        f'{tmp_path}/a.csv (and 1 more files): is a CSV file, not Parquet: set data.format = "csv", or convert it '
        "once: elastichost convert IN OUT.parquet"
    )


def test_a_folder_is_refused_with_the_glob_of_its_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder: name the files in it, for example .*/\*\.parquet"):
        reader_of(settings(tmp_path)).describe()


@pytest.mark.parametrize(
    ("categorical", "remedy"),
    [
        (("c",), "take it out of data.dense: it is in data.categorical too"),
        (("d",), "move it from data.dense to data.categorical, or write it as numbers"),
    ],
)
def test_a_column_of_text_as_dense_is_refused_with_the_remedy(
    tmp_path: Path, categorical: tuple[str, ...], remedy: str
) -> None:
    path = write_parquet(tmp_path / "a.parquet", labelled({"c": pa.array(["a"]), "d": pa.array([1])}, 1))
    with pytest.raises(DataError) as raised:
        reader_of(settings(path, dense=("c",), categorical=categorical)).describe()
    assert "column 'c' is string: a dense value must be a number or bool" in raised.value.message
    assert raised.value.message.endswith(remedy)
