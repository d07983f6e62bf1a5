"""Vectors of tables are written with the ids as they are in the training data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from elastichost.datasets.files import PinnedFiles, stamp, write_pinned
from elastichost.errors import ConfigError, DataError
from elastichost.results.export import export
from tests.datasets.sources.s3_server import S3Server, s3_environment, store
from tests.results.conftest import CODES, FIXED_ROWS, as_key

__all__ = ["s3_environment", "store"]


def vectors_of(file: Path) -> dict[Any, np.ndarray[Any, Any]]:
    table = pq.read_table(file)
    assert table.column_names == ["id", "vector"]
    ids, vectors = table.column("id").to_pylist(), table.column("vector").to_pylist()
    assert len(set(ids)) == len(ids)
    return {one: np.array(vector, dtype=np.float32) for one, vector in zip(ids, vectors, strict=True)}


def test_integers_of_dynamic_and_fixed_tables(run: Any, tmp_path: Path) -> None:
    report = export(run.directory, tmp_path / "model", embeddings=["user", "recent"])
    assert [file.name for file in report.embeddings] == ["user.parquet", "items_table.parquet"]
    users, items = (vectors_of(file) for file in report.embeddings)
    assert sorted(users) == sorted(run.known_keys["user"])
    assert sorted(items) == list(range(FIXED_ROWS))
    for name, found in (("user", users), ("items_table", items)):
        for key, vector in found.items():
            np.testing.assert_array_equal(vector, run.vectors[name, key])


@pytest.mark.parametrize("form", ["parquet", "csv", "parquet in a store", "csv in a store"])
def test_texts_are_found_in_the_training_data(make: Any, tmp_path: Path, store: S3Server, form: str) -> None:
    run = make()
    if form.startswith("csv"):
        job, data = run.directory / "job.resolved.toml", run.directory / "samples.csv"
        columns = {name: run.table.column(name).cast(pa.string()) for name in ("word", "code")}
        pa.csv.write_csv(pa.table({"label": run.table.column("label"), **columns}), data)
        text = job.read_text().replace('format = "parquet"', 'format = "csv"').replace("samples.parquet", "samples.csv")
        job.write_text(text)
    if form.endswith("in a store"):
        data = next(run.directory.glob("samples.*"))
        store.put_file(data, f"texts/{data.name}")
        job = run.directory / "job.resolved.toml"
        job.write_text(job.read_text().replace(str(data), store.url(f"texts/{data.name}")))
        data.unlink()
    report = export(run.directory, tmp_path / "model", embeddings=["word", "code"])
    words, codes = (vectors_of(file) for file in report.embeddings)
    assert {"tee", "käse"} <= set(words) <= {"tee", "käse", ""}
    for word, vector in words.items():
        np.testing.assert_array_equal(vector, run.vectors["word", as_key(word)])
    assert {"a", "b", "c", "x" * 40} <= set(codes)
    for code, vector in codes.items():
        np.testing.assert_array_equal(vector, run.vectors["code", as_key(code) % 2**64 % CODES])
    missing = 5 - len(words)
    assert f"table 'word': {missing} ids of the checkpoint are not in the training data any more" in report.warnings[0]


def test_texts_are_those_of_the_files_of_the_run(make: Any, tmp_path: Path) -> None:
    """A file that arrived later in the folder of a glob is not read."""
    run = make()
    data, job = run.directory / "samples.parquet", run.directory / "job.resolved.toml"
    job.write_text(job.read_text().replace("samples.parquet", "*.parquet"))
    write_pinned(run.directory, PinnedFiles(train=(stamp(str(data)),)))
    (run.directory / "later.parquet").write_bytes(b"damaged")
    report = export(run.directory, tmp_path / "model", embeddings=["word"])
    assert {"tee", "käse"} <= set(vectors_of(report.embeddings[0]))


def test_two_embeddings_of_a_table_have_a_file_each(make: Any, tmp_path: Path) -> None:
    run = make(build="elastichost.models:wide_deep", args="{ hidden = [4] }")
    report = export(run.directory, tmp_path / "model", embeddings=["user"])
    assert len(report.embeddings) == 2
    assert sorted(len(next(iter(vectors_of(file).values()))) for file in report.embeddings) == [1, 6]


def test_an_unknown_table_is_refused_before_anything_is_written(run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no table 'usr'; did you mean \"user\""):
        export(run.directory, tmp_path / "model", embeddings=["usr"])
    assert not list(tmp_path.glob("*model*"))


def test_training_data_that_are_gone_are_named(make: Any, tmp_path: Path) -> None:
    run = make()
    (run.directory / "samples.parquet").unlink()
    export(run.directory, tmp_path / "ints", embeddings=["user"])
    with pytest.raises(DataError, match=r"samples\.parquet"):
        export(run.directory, tmp_path / "texts", embeddings=["word"])
