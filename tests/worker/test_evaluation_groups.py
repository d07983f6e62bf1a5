"""The groups of a batch of test data: they are read in every format, and taken off the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from elastichost.config.job import JobSpec, make_job
from elastichost.datasets import open_reader
from elastichost.datasets.preflight import check_data
from elastichost.errors import DataError
from elastichost.worker.evaluation_groups import take_groups

METRICS = ["gauc(item)", "gauc(user)", "recall@3(session)"]


def make(folder: Path, kind: str, metrics: list[str] = METRICS) -> JobSpec:
    table = pa.table(
        {
            "y": [1, 0, 1, 0],
            "item": [5, 6, 5, 7],
            "tag": pa.array([[1], [2, 3], [], [4]]) if kind == "parquet" else ["1", "2|3", "", "4"],
            "user": ["ann", "bob", None, "ann"],
            "session": [-1, 2, 2, None],
        }
    )
    for name in ("train", "test"):
        if kind == "parquet":
            pa.parquet.write_table(table, folder / name)
        else:
            pa.csv.write_csv(table, folder / name, pa.csv.WriteOptions(quoting_style="none"))
    types = {"item": "int", "tag": "list[int]"}
    data = {"train": ["train"], "test": ["test"], "label": "y", "categorical": ["item", "tag"], "format": kind}
    more = {"csv": {"types": types}} if kind == "csv" else {}
    raw = {"model": {"build": "a:b"}, "data": {**data, **more}, "evaluate": {"metrics": metrics}}
    return make_job(raw, folder, "job", environ={})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_groups_are_taken_off_the_batch(tmp_path: Path, kind: str) -> None:
    job = make(tmp_path, kind)
    check_data(job)
    reader = open_reader(job, "test")
    (unit,) = reader.describe().units
    (batch,) = reader.batches(unit, 0, 4, 4)
    kept, groups = take_groups(job, batch)
    assert kept.keys.tolist() == [5, 6, 5, 7, 1, 2, 3, 4]
    assert kept.lengths.tolist() == [1, 1, 1, 1, 1, 2, 0, 1]
    item, user, session = groups.ids.T
    assert item.tolist() == [5, 6, 5, 7]
    assert groups.has_id.tolist() == [[True] * 3, [True] * 3, [True, False, True], [True, True, False]]
    assert user[0] == user[3] != user[1]
    assert session[1] == session[2] != session[0]
    train = open_reader(job, "train")
    (batch,) = train.batches(train.describe().units[0], 0, 4, 4)
    assert batch.lengths.tolist() == kept.lengths.tolist()


def test_without_groups_the_batch_is_the_same(tmp_path: Path) -> None:
    job = make(tmp_path, "parquet", ["auc"])
    reader = open_reader(job, "test")
    (batch,) = reader.batches(reader.describe().units[0], 0, 4, 4)
    kept, groups = take_groups(job, batch)
    assert kept is batch and groups.ids.shape == groups.has_id.shape == (4, 0)
    assert np.issubdtype(groups.ids.dtype, np.int64)


def test_a_column_of_lists_is_no_group(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'tag' of .*test holds lists"):
        check_data(make(tmp_path, "parquet", ["gauc(tag)"]))
    with pytest.raises(DataError, match="no column 'usr'"):
        check_data(make(tmp_path, "parquet", ["gauc(usr)"]))
