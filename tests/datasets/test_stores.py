"""Parquet, CSV and compressed text in a store: the same samples and the same errors as from the disk."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from elastichost.datasets import open_reader
from elastichost.datasets.preflight import check_data
from elastichost.datasets.sources.control import InputControl
from elastichost.errors import DataError
from elastichost.wire.facts import InputKnobs
from tests.datasets.conftest import all_batches, assert_same_samples, load, write_parquet
from tests.datasets.sources.s3_server import BUCKET, S3Server, s3_environment, store

__all__ = ["s3_environment", "store"]

ROWS = 600
COLUMNS = 'label = "y"\ndense = ["x"]\ncategorical = ["c"]'
KNOBS = InputKnobs(connections=3, decode_threads=2, prefetch_bytes=1 << 24, range_bytes=4096)


@pytest.fixture
def files(tmp_path: Path, store: S3Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of each format, here and in the store."""
    monkeypatch.setenv("ELASTICHOST_CACHE", str(tmp_path / "cache"))
    for number in range(2):
        values = np.arange(ROWS) + number * ROWS
        labels, floats, words = values % 2, values / 7.0, [f"word {value % 17}" for value in values]
        columns = {"y": labels.astype(np.float32), "x": floats.astype(np.float32), "c": words}
        write_parquet(tmp_path / f"{number}.parquet", columns, row_group_rows=200)
        rows = zip(labels, floats, words, strict=True)
        text = "y,x,c\n" + "".join(f"{y},{x:.4f},{c}\n" for y, x, c in rows)
        (tmp_path / f"{number}.csv").write_text(text)
        (tmp_path / f"{number}.csv.gz").write_bytes(gzip.compress(text.encode()))
        for kind in ("parquet", "csv", "csv.gz"):
            store.put_file(tmp_path / f"{number}.{kind}", f"rows/{number}.{kind}")
    return tmp_path


@pytest.mark.parametrize(("kind", "here"), [("parquet", "parquet"), ("csv", "csv"), ("csv.gz", "csv")])
def test_a_glob_in_a_store_gives_the_batches_of_the_files(files: Path, store: S3Server, kind: str, here: str) -> None:
    form = f'format = "{here}"\n{COLUMNS}'
    local = open_reader(load(files, f'train = "{files}/?.{here}"\n{form}'), "train")
    control = InputControl(KNOBS)
    remote = open_reader(load(files, f'train = "{store.url(f"rows/*.{kind}")}"\n{form}'), "train", control=control)
    assert remote.describe().samples == 2 * ROWS
    assert remote.describe().units == local.describe().units
    assert_same_samples(all_batches(remote), all_batches(local), 1)
    assert control.take_stages(queued=0)[0].bytes > 0 or kind == "csv.gz"
    control.close()


def test_test_data_and_what_is_wrong_are_found_before_a_run(files: Path, store: S3Server) -> None:
    train, test = store.url("rows/0.parquet"), store.url("rows/1.parquet")
    found = check_data(load(files, f'train = "{train}"\ntest = "{test}"\n{COLUMNS}'))
    assert found.test is not None and found.test.samples == ROWS
    for url, words in (
        (store.url("rows/7.parquet"), "no such file in the store: check data.train"),
        (train.replace(BUCKET, "nobody"), "there is no bucket 'nobody': check its name"),
        (store.url("rows/*.orc"), "no file matches"),
        (store.url("rows/0.csv"), 'is a CSV file, not Parquet: set data.format = "csv"'),
    ):
        with pytest.raises(DataError, match=words):
            check_data(load(files, f'train = "{url}"\n{COLUMNS}'))
