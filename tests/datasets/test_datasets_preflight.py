"""All problems with the data of a job are reported in one error, before any process starts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.datasets import open_reader
from elastichost.datasets.preflight import check_data
from elastichost.errors import DataError, ExitCode
from elastichost.specs import TableSpec

from .conftest import all_batches, criteo_line, load, write_parquet

COLUMNS = 'label = "y"\ndense = ["x"]\ncategorical = ["c"]\n'


def table(rows: int, **changes: Any) -> TableSpec:
    base = TableSpec(name="items", index=0, features=("c",), key_kind="int", rows=rows)
    return msgspec.structs.replace(base, **changes)


def rows_of(ids: Any, **changes: Any) -> dict[str, Any]:
    return {"y": [0] * len(ids), "x": [0.5] * len(ids), "c": ids} | changes


def problems_of(folder: Path, data: str, *tables: TableSpec) -> str:
    with pytest.raises(DataError) as raised:
        check_data(load(folder, data), tables)
    assert raised.value.exit_code == ExitCode.PREFLIGHT
    return str(raised.value)


def test_good_data(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", rows_of([0, 9]))
    write_parquet(tmp_path / "test.parquet", rows_of([3]))
    check = check_data(load(tmp_path, f'train = ["train.parquet"]\ntest = ["test.parquet"]\n{COLUMNS}'), (table(10),))
    assert (check.train.samples, check.test.samples if check.test else None, check.warnings) == (2, 1, ())
    assert check_data(load(tmp_path, f'train = ["train.parquet"]\n{COLUMNS}')).test is None


def test_problems_of_both_splits_are_reported_together(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", {"y": [0], "z": [1.0], "c": [1]})
    text = problems_of(tmp_path, f'train = ["train.parquet"]\ntest = ["tset.parquet", "*.csv"]\n{COLUMNS}')
    assert "3 problems" in text
    assert f"{tmp_path}/train.parquet: no column 'x'" in text
    assert f"{tmp_path}/tset.parquet: no such file" in text
    assert f"{tmp_path}/*.csv: no file matches" in text


def test_the_hint_of_a_reader_that_cannot_be_loaded_is_kept(tmp_path: Path) -> None:
    text = problems_of(tmp_path, f'format = "no_such_module:Reader"\ntrain = ["train.parquet"]\n{COLUMNS}')
    assert "the module no_such_module cannot be imported" in text
    assert text.endswith("-> install it, start elastichost in its folder, or put this folder on PYTHONPATH")


def test_train_and_test_must_have_the_same_kinds_of_ids(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", rows_of([1]))
    write_parquet(tmp_path / "test.parquet", rows_of([["1"]]))
    text = problems_of(tmp_path, f'train = ["train.parquet"]\ntest = ["test.parquet"]\n{COLUMNS}')
    assert f"column 'c' holds ints in {tmp_path}/train.parquet, but strings in {tmp_path}/test.parquet" in text
    assert "column 'c' holds lists in test only" in text


@pytest.mark.parametrize("statistics", [True, False])
def test_the_first_bad_label_is_named(tmp_path: Path, statistics: bool) -> None:
    for name, labels in (("a", [0, 1, 5, 7]), ("b", [0, None, 1, 1]), ("c", [0.0, 1.0, 0.25, 1.0])):
        columns = rows_of([1] * 4, y=pa.array(labels))
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", write_statistics=statistics)
    data = f'train = ["*.parquet"]\n{COLUMNS}'
    text = problems_of(tmp_path, data)
    assert "a.parquet: row 2 (row group 0, rows count from 0), column 'y': label is 5, not 0 or 1" in text
    assert "b.parquet: row 1 (row group 0, rows count from 0), column 'y': label is null" in text
    assert "c.parquet: row 2 (row group 0, rows count from 0), column 'y': label is 0.25" in text
    check = check_data(load(tmp_path, f'{data}bad_rows = "skip"\n'))
    assert len(check.warnings) == 3
    assert all("will be skipped" in warning for warning in check.warnings)


def test_statistics_lead_to_the_row_group_with_the_bad_label(tmp_path: Path) -> None:
    labels = [0] * 95 + [2] + [0] * 4
    write_parquet(tmp_path / "a.parquet", rows_of([1] * 100, y=labels), 10)
    data = f'train = ["a.parquet"]\n{COLUMNS}'
    assert "row 95 (row group 9, rows count from 0)" in problems_of(tmp_path, data)
    assert check_data(load(tmp_path, f"{data}limit_rows = 95\n")).train.samples == 95


def test_float16_labels_and_weights_whose_statistics_are_bytes(tmp_path: Path) -> None:
    def half(*values: float) -> pa.Array:
        return pa.array(np.array(values, np.float16))

    data = f'train = ["a.parquet"]\nweight = "w"\n{COLUMNS}'
    write_parquet(tmp_path / "a.parquet", rows_of([1] * 3, y=half(0, 1, 1), w=half(1, 0.5, 2)))
    assert check_data(load(tmp_path, data)).warnings == ()
    write_parquet(tmp_path / "a.parquet", rows_of([1] * 3, y=half(0, 2, 1), w=half(1, 1, -1)))
    text = problems_of(tmp_path, data)
    assert "2 problems" in text
    assert "a.parquet: row 1 (row group 0, rows count from 0), column 'y': label is 2.0, not 0 or 1" in text
    assert "column 'w': weight is -1.0, not a number >= 0" in text
    write_parquet(tmp_path / "a.parquet", rows_of([1] * 2, y=pa.array([None, 1.0], pa.float16()), w=half(1, 1)))
    assert "column 'y': label is null, not 0 or 1" in problems_of(tmp_path, data)


def test_a_fraction_in_a_decimal_label_is_found(tmp_path: Path) -> None:
    """It lies within the range of the statistics, as a floating-point one does."""
    write_parquet(tmp_path / "a.parquet", rows_of([1] * 2, y=pa.array([Decimal("0.5"), Decimal("1.0")])))
    assert "column 'y': label is 0.5, not 0 or 1" in problems_of(tmp_path, f'train = ["a.parquet"]\n{COLUMNS}')


@pytest.mark.parametrize(
    ("ids", "place"),
    [
        (pa.array([1, 2, 10, None]), "row 2 (row group 1, rows count from 0), column 'c': id 10"),
        (pa.array([1, 2, 3, -1]), "row 3 (row group 1, rows count from 0), column 'c': id -1"),
        (pa.array([[1], [], [2, 3], [11, 0]]), "row 3 (row group 1, rows count from 0), column 'c': id 11"),
        (pa.array([0, 0, 0, 2**64 - 1], pa.uint64()), "row 3 (row group 1, rows count from 0), column 'c': id -1"),
    ],
)
def test_ids_outside_of_fixed_tables(tmp_path: Path, ids: pa.Array, place: str) -> None:
    write_parquet(tmp_path / "a.parquet", rows_of(ids), 2)
    data = f'train = ["a.parquet"]\n{COLUMNS}bad_rows = "skip"\n'
    text = problems_of(tmp_path, data, table(10))
    assert f"a.parquet: {place} is outside table 'items' of 10 rows" in text
    assert "tables.items.rows" in text
    for harmless in (table(10, out_of_range="modulo"), table(0), table(10, features=("d",))):
        check_data(load(tmp_path, data), (harmless,))


def test_large_row_groups_are_a_warning(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", rows_of(pa.array([1] * 262_145)), 2**20)
    (warning,) = check_data(load(tmp_path, f'train = ["a.parquet"]\n{COLUMNS}')).warnings
    assert "row groups of up to 262,145 rows" in warning


def test_a_line_of_the_rows_that_are_held_back_is_named(tmp_path: Path) -> None:
    lines = [f"{row % 2},1,{77 if row == 949 else 5}" for row in range(1000)]
    (tmp_path / "a.csv").write_text("\n".join(["y,x,c", *lines]) + "\n")
    data = f'train = ["a.csv"]\nformat = "csv"\ntest_fraction = 0.1\n{COLUMNS}csv = {{ types = {{ c = "int" }} }}\n'
    assert "a.csv: line 951, column 'c': id 77 is outside table 'items'" in problems_of(tmp_path, data, table(10))


def test_the_first_lines_of_text_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,x,c\n0,1,5\n1,1,77\n")
    (tmp_path / "b.csv").write_text("y,x,c\n0,1,5\n1,1\n")
    data = f'train = ["*.csv"]\nformat = "csv"\n{COLUMNS}csv = {{ types = {{ c = "int" }} }}\n'
    text = problems_of(tmp_path, data, table(10))
    assert "a.csv: line 3, column 'c': id 77 is outside table 'items' of 10 rows" in text
    assert "b.csv: line 3: 2 fields where 3 are expected" in text
    (tmp_path / "a.csv").unlink()
    (warning,) = check_data(load(tmp_path, f'{data}bad_rows = "skip"\n'), (table(10),)).warnings
    assert "b.csv: line 3" in warning


def test_only_the_head_of_text_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\n".join([criteo_line()] * 400 + ["bad"]))
    check = check_data(load(tmp_path, 'train = ["a.tsv"]\nformat = "criteo_tsv"\n'))
    assert check.train.samples == 401
    (tmp_path / "a.tsv").write_text("\n".join(["bad", criteo_line()]))
    assert "line 1: 1 fields" in problems_of(tmp_path, 'train = ["a.tsv"]\nformat = "criteo_tsv"\n')


def test_synthetic_data_has_no_problems(tmp_path: Path) -> None:
    check = check_data(load(tmp_path, 'format = "synthetic"\n[data.synthetic]\nrows = 10\ntest_rows = 5\n'))
    assert check.test is not None
    assert (check.train.samples, check.test.samples) == (10, 5)


@pytest.mark.parametrize("is_text", [False, True])
def test_nan_counts_as_missing_and_is_told(tmp_path: Path, is_text: bool) -> None:
    """NaN may be the missing value of a data frame, or a fault of what computed the column. A null is meant."""
    nan = float("nan")
    table = pa.table({"y": [0, 1, 0], "x": [nan, None, 1.0], "z": [None, 2.0, None], "c": ["a", "b", "c"]})
    path = tmp_path / ("a.csv" if is_text else "a.parquet")
    if is_text:
        path.write_text("y,x,z,c\n0,nan,,a\n1,,2,b\n0,1,,c\n")
    else:
        pq.write_table(table, path)
    columns = COLUMNS.replace('["x"]', '["x", "z"]')
    job = load(
        tmp_path, f'format = "{"csv" if is_text else "parquet"}"\ntrain = ["{path.name}"]\nnull_fill = -1.0\n{columns}'
    )
    (warning,) = check_data(job).warnings
    assert warning == (
        f"{path}: column 'x' is NaN in 1 of the first 3 rows: NaN counts as a missing value and becomes "
        "data.null_fill = -1"
    )
    (batch,) = all_batches(open_reader(job, "train"))
    assert batch.dense.tolist() == [[-1, -1], [-1, 2], [1, -1]]


def test_files_that_are_read_twice_are_warnings(tmp_path: Path) -> None:
    rows = rows_of([1, 2])
    for name in ("a", "b", "test"):
        write_parquet(tmp_path / f"{name}.parquet", rows)
    (tmp_path / "latest.parquet").symlink_to(tmp_path / "b.parquet")
    job = load(tmp_path, f'train = "{tmp_path}/*.parquet"\ntest = "{tmp_path}/test.parquet"\n{COLUMNS}')
    twice, also = check_data(job).warnings
    assert f"{tmp_path}/b.parquet and {tmp_path}/latest.parquet are the same file, so data.train" in twice
    assert f"{tmp_path}/test.parquet is in data.train and in data.test" in also
    job = load(tmp_path, f'train = "{tmp_path}/a.parquet"\ntest_fraction = 0.5\n{COLUMNS}')
    assert check_data(job).warnings == (), "the rows of one file are divided"
