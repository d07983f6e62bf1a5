"""Datasets of Hugging Face as training data: their tables are taken as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import elastichost as eh
from elastichost.api.rows import PythonRows
from elastichost.errors import ConfigError

datasets = pytest.importorskip("datasets", reason="the package datasets of Hugging Face is not installed")
COLUMNS: dict[str, Any] = {"label": "y", "categorical": ["item"]}


def written(rows: PythonRows, run_dir: Path) -> Path:
    return rows.write("train", run_dir, (), lambda line: None)


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("is_iterable", [True, False])
def test_a_dataset_of_hugging_face(is_direct: bool, is_iterable: bool, tmp_path: Path) -> None:
    """Its tables are taken as they are, in the order of the dataset, which a shuffle changes."""
    dataset = datasets.Dataset.from_dict(
        {"y": [0, 1, 0, 1], "item": ["a", "b", None, "d"], "seen": [[1], [], [2, 3], []]}
    )
    expected = dataset.shuffle(seed=3).select([0, 2, 3])
    source = expected.to_iterable_dataset() if is_iterable else expected
    if is_direct:
        rows = eh.Data(train=source, **COLUMNS).rows["train"]
    else:
        rows = eh.from_iterable(source, unit_rows=2)
    table = pq.read_table(written(rows, tmp_path))
    assert table.to_pydict() == expected.to_dict()
    assert table.schema.types == [pa.int64(), pa.string(), pa.list_(pa.int64())]


def test_a_dataset_of_hugging_face_is_known_by_its_fingerprint_and_by_its_splits(tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_dict({"y": [0, 1], "item": [1, 2]})
    path = written(eh.from_iterable(dataset), tmp_path)
    before = path.stat().st_ino
    assert written(eh.from_iterable(dataset), tmp_path).stat().st_ino == before
    assert written(eh.from_iterable(dataset.select([1])), tmp_path).stat().st_ino != before
    with pytest.raises(ConfigError, match=r"the dataset has the splits train, test\n.*dataset\['train'\]"):
        eh.Data(train=datasets.DatasetDict({"train": dataset, "test": dataset}), **COLUMNS)
