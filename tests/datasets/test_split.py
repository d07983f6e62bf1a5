"""Training data and test data of the same files: every row in one of them, in every format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.config.job import load_job
from elastichost.datasets.api import Unit
from elastichost.datasets.preflight import check_data
from elastichost.datasets.reader import units_of_split
from elastichost.datasets.settings import DataSettings
from elastichost.errors import ConfigError, DataError

from .conftest import load, reader_of, settings, write_parquet


def units_of(sizes: list[int]) -> list[Unit]:
    firsts = np.cumsum([0, *sizes])
    return [Unit(index, int(firsts[index]), size, 0, index) for index, size in enumerate(sizes)]


def split(units: list[Unit], name: str, fraction: float, limit: int = 0) -> tuple[Unit, ...]:
    found = DataSettings(name, (), "parquet", ("y",), (), ("c",), limit_rows=limit, test_fraction=fraction)  # type: ignore[arg-type]
    return units_of_split(units, found)


def rows_of(units: tuple[Unit, ...]) -> list[tuple[int, int]]:
    return [(unit.group, row) for unit in units for row in range(unit.skip, unit.skip + unit.samples)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0.0, 0.999))
def test_every_row_is_in_one_split_and_the_last_are_test_data(sizes: list[int], fraction: float) -> None:
    units = units_of(sizes)
    train, test = split(units, "train", fraction), split(units, "test", fraction)
    assert rows_of(train) + (rows_of(test) if fraction else []) == rows_of(tuple(units))
    assert [unit.index for unit in test] == list(range(len(test)))
    for found in (train, test):
        assert [unit.first_sample for unit in found] == list(np.cumsum([0, *(unit.samples for unit in found)])[:-1])
    assert rows_of(train), "something is left to train"
    if fraction and sum(sizes) > 1:
        wanted = round(fraction * sum(sizes))
        assert len(rows_of(test)) == min(max(1, wanted), sum(sizes) - 1)


def test_a_limit_cuts_what_is_left_for_training() -> None:
    units = units_of([10, 10])
    assert len(rows_of(split(units, "train", 0.25, limit=12))) == 12
    assert len(rows_of(split(units, "train", 0.25, limit=18))) == 15
    assert rows_of(split(units, "test", 0.25, limit=3)) == [(1, row) for row in range(5, 10)]


ROWS = 50


def files(folder: Path) -> dict[str, Path]:
    values = {"y": [row % 2 for row in range(ROWS)], "x": [float(row) for row in range(ROWS)], "c": list(range(ROWS))}
    text = folder / "rows.csv"
    text.write_text("y,x,c\n" + "".join(f"{row % 2},{row},{row}\n" for row in range(ROWS)))
    return {"parquet": write_parquet(folder / "rows.parquet", values, row_group_rows=20), "csv": text}


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_the_rows_of_each_split(tmp_path: Path, file_format: str) -> None:
    path = files(tmp_path)[file_format]
    read: dict[str, list[float]] = {}
    for name in ("train", "test"):
        reader = reader_of(
            settings(path, file_format, split=name, test_fraction=0.3, csv_types={"c": "int"}, text_unit_lines=20)
        )
        batches = [batch for unit in reader.describe().units for batch in reader.batches(unit, 0, unit.samples, 7)]
        read[name] = np.concatenate([batch.dense[:, 0] for batch in batches]).tolist()
        assert np.concatenate([batch.keys for batch in batches]).tolist() == read[name]
    assert read == {"train": list(range(35)), "test": list(range(35, 50))}


@pytest.mark.parametrize(("file_format", "place"), [("parquet", "row 45 "), ("csv", "line 47")])
def test_a_bad_row_of_the_test_data_is_named_by_its_place_in_the_file(
    tmp_path: Path, file_format: str, place: str
) -> None:
    labels = [0] * 45 + [7] + [0] * 4
    path = tmp_path / "rows.csv"
    path.write_text("y,x,c\n" + "".join(f"{label},1,{row}\n" for row, label in enumerate(labels)))
    if file_format == "parquet":
        path = write_parquet(tmp_path / "rows.parquet", {"y": labels, "x": [1.0] * ROWS, "c": list(range(ROWS))}, 20)
    reader = reader_of(
        settings(path, file_format, split="test", test_fraction=0.3, csv_types={"c": "int"}, text_unit_lines=20)
    )
    units = reader.describe().units
    with pytest.raises(DataError, match=place):
        list(reader.batches(units[-1], 0, units[-1].samples, 50))


def test_a_job_that_holds_a_part_back_has_test_data(tmp_path: Path) -> None:
    files(tmp_path)
    job = load(
        tmp_path, 'train = ["rows.parquet"]\nlabel = "y"\ndense = ["x"]\ncategorical = ["c"]\ntest_fraction = 0.1\n'
    )
    assert job.data.has_test
    check = check_data(job)
    assert check.test is not None
    assert (check.train.samples, check.test.samples) == (45, 5)


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_one_row_leaves_none_for_the_test_data_and_says_what_to_do(tmp_path: Path, file_format: str) -> None:
    path = tmp_path / f"rows.{file_format}"
    path.write_text("y,x,c\n1,2,3\n")
    if file_format == "parquet":
        write_parquet(path, {"y": [1], "x": [2.0], "c": [3]})
    columns = f'format = "{file_format}"\ntrain = ["{path.name}"]\nlabel = "y"\ndense = ["x"]\ncategorical = ["c"]\n'
    with pytest.raises(DataError) as caught:
        check_data(load(tmp_path, f"{columns}test_fraction = 0.1\n"))
    assert caught.value.message == (
        f"data.test_fraction = 0.1: no rows are left for the test data, because the training data ({path}) has only 1 "
        "row; name files with more rows in data.train, or remove data.test_fraction"
    )
    assert check_data(load(tmp_path, columns)).train.samples == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('train = ["a"]\ntest = ["b"]\nlabel = "y"\ncategorical = ["c"]', "remove one of them"),
        ('train = ["a"]\nformat = "m:Reader"\nlabel = "y"\ncategorical = ["c"]', "your own reader"),
        ('format = "synthetic"', "reads no files"),
    ],
)
def test_settings_that_exclude_it(tmp_path: Path, data: str, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'[model]\nbuild = "elastichost.models:dlrm"\n[data]\n{data}\ntest_fraction = 0.1\n')
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    assert said in "\n".join(caught.value.problems)
