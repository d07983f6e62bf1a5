"""Vectors of tables are written with the ids as they are in the training data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from elastichost.datasets.files import PinnedFiles, stamp, write_pinned
from elastichost.errors import ConfigError, DataError
from elastichost.results.assemble import CheckpointTensors, load_run_job
from elastichost.results.embeddings import write_embeddings
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


def test_a_word_that_is_no_utf8_and_has_no_row_changes_nothing(make: Any, tmp_path: Path) -> None:
    run = make()
    words = pa.array([b"tee", b"brot", b"\xff\x00", None, b"", b"tee"])
    pq.write_table(
        run.table.set_column(run.table.column_names.index("word"), "word", words), run.directory / "samples.parquet"
    )
    report = export(run.directory, tmp_path / "model", embeddings=["word"])
    found = vectors_of(report.embeddings[0])
    assert set(found) == {"tee", "brot", ""}
    np.testing.assert_array_equal(found["brot"], run.vectors["word", as_key("brot")])


def test_ids_that_are_no_utf8_are_written_as_bytes(make: Any, tmp_path: Path) -> None:
    """A table of a fixed size has a row for every text."""
    run = make()
    codes = pa.array([b"a", b"\xff\x00", b"b", None, b"", b"a"])
    place = run.table.column_names.index("code")
    pq.write_table(run.table.set_column(place, "code", codes), run.directory / "samples.parquet")
    report = export(run.directory, tmp_path / "model", embeddings=["code"])
    assert set(vectors_of(report.embeddings[0])) == {b"a", b"b", b"", b"\xff\x00"}


def test_ids_above_those_of_int64_are_written_as_they_are(make: Any, tmp_path: Path) -> None:
    """They are kept as the int64 of the same bits."""
    run = make()
    users = pa.array([2**63 - 1, 2**63, 2**60 + 1, None, 123456789, 5], pa.uint64())
    pq.write_table(
        run.table.set_column(run.table.column_names.index("user"), "user", users), run.directory / "samples.parquet"
    )
    report = export(run.directory, tmp_path / "model", embeddings=["user"])
    found = vectors_of(report.embeddings[0])
    assert sorted(found) == sorted(key % 2**64 for key in run.known_keys["user"])
    np.testing.assert_array_equal(found[2**63], run.vectors["user", -(2**63)])


def test_a_csv_file_may_have_columns_that_the_job_does_not_read(make: Any, tmp_path: Path) -> None:
    """One of them is there twice, and one holds anything."""
    run = make()
    job, data = run.directory / "job.resolved.toml", run.directory / "samples.csv"
    job.write_text(
        job.read_text().replace('format = "parquet"', 'format = "csv"').replace("samples.parquet", "samples.csv")
    )
    data.write_text("note,word,note\n1,tee,x\nb\xe9,brot,\n", encoding="latin-1")
    report = export(run.directory, tmp_path / "model", embeddings=["word"])
    assert set(vectors_of(report.embeddings[0])) == {"tee", "brot"}


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


TWO_OF_ONE_NAME = """\
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

class Two(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.deep = EmbeddingBagCollection(tables=tables)
        wide = EmbeddingBagConfig(
            name="user", embedding_dim=2, num_embeddings=tables[0].num_embeddings, feature_names=["user"]
        )
        self.wide = EmbeddingBagCollection(tables=[wide])

    def forward(self, dense, sparse):
        return self.deep(sparse).values().sum(dim=1) + self.wide(sparse).values().sum(dim=1)

def build(tables, num_dense):
    return Two(tables)
"""


def test_two_embeddings_of_one_name_have_a_file_each(make: Any, tmp_path: Path) -> None:
    """The second one was written over the first."""
    (tmp_path / "two.py").write_text(TWO_OF_ONE_NAME, encoding="utf-8")
    run = make(build=f"{tmp_path}/two.py:build", args="{}")
    report = export(run.directory, tmp_path / "model", embeddings=["user", "code"])
    assert [file.name for file in report.embeddings] == ["deep_user.parquet", "wide_user.parquet", "code.parquet"]
    deep, wide = (vectors_of(file) for file in report.embeddings[:2])
    assert [{len(vector) for vector in vectors.values()} for vectors in (deep, wide)] == [{6}, {2}]
    tensors = CheckpointTensors(run.checkpoint, run.manifest)
    users = tensors.model.tables[0]
    for vectors, embedding in zip((deep, wide), tensors.model.embeddings_of(users.index), strict=True):
        rows = [vectors[one] for one in tensors.ids(users).array().tolist()]
        np.testing.assert_array_equal(rows, tensors.embedding(embedding).array())


def test_a_column_with_a_slash_in_its_name(run: Any, tmp_path: Path) -> None:
    """Its table and its embedding have the name of the column."""
    job, names = load_run_job(run.directory), {"user": "ctx/user", "items_table": "ctx_user"}
    embeddings = tuple(
        msgspec.structs.replace(one, name=names.get(one.name, one.name)) for one in run.manifest.model.embeddings
    )
    model = msgspec.structs.replace(run.manifest.model, embeddings=embeddings)
    tensors = CheckpointTensors(run.checkpoint, msgspec.structs.replace(run.manifest, model=model))
    written = write_embeddings(job, tensors, model.tables[:2], tmp_path / "embeddings")
    assert written.files == ("ctx_user_.parquet", "ctx_user.parquet")
    users, items = (vectors_of(tmp_path / "embeddings" / name) for name in written.files)
    assert sorted(users) == sorted(run.known_keys["user"])
    assert sorted(items) == list(range(FIXED_ROWS))
