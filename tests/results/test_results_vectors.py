"""Vectors that a model computes are written with the ids of a file; a file without what they depend on is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from elastichost.errors import ConfigError, DataError, ModelError
from elastichost.results.export import export
from elastichost.results.preprocess import Preprocessor
from elastichost.results.reader import load_model, model_inputs
from elastichost.results.vector_files import file_stems, parse_vectors

TOWERS = (
    '{ user = ["word", "user", "recent"], item = ["item", "code"], user_dense = [1], item_dense = [0], '
    "hidden = [5, 3] }"
)
OWN = """\
import torch
from torchrec import EmbeddingBagCollection

class Own(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)

    def vectors(self, column, dense, sparse):
        return {result}

    def forward(self, dense, sparse):
        return self.bags(sparse).values().sum(dim=1)

def build(tables, num_dense):
    return Own(tables)
"""


@pytest.fixture
def towers(make: Any) -> Any:
    return make(build="elastichost.models:two_towers", args=TOWERS, outputs="loss")


def wanted(run: Any, column: str, folder: Path, table: pa.Table) -> torch.Tensor:
    """The vectors of these samples, by the exported model."""
    exported = export(run.directory, folder / "whole").directory
    with torch.no_grad():
        model: Any = load_model(exported)
        found: torch.Tensor = model.vectors(column, *model_inputs(Preprocessor(exported), table))
    return found


def written(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "ids.parquet", row_group_size=2)
    return folder / "ids.parquet"


@pytest.mark.parametrize("form", ["torchrec", "pt2"])
def test_a_tower_needs_only_its_own_columns(towers: Any, tmp_path: Path, form: Any) -> None:
    """An id that occurs twice has the vector of its last row. `item` shares its table with a column of users."""
    table = towers.table.select(["price", "code", "item"])
    again = table.slice(1, 1).set_column(2, "item", pa.array([0]))
    report = export(
        towers.directory,
        tmp_path / "model",
        format=form,
        vectors={"item": written(pa.concat_tables([table, again]), tmp_path)},
    )
    assert [str(file.relative_to(report.directory)) for file in report.vectors] == ["vectors/item.parquet"]
    found = pq.read_table(report.vectors[0])
    assert found.schema.types == [pa.int64(), pa.list_(pa.float32(), 3)]
    assert found.column("id").to_pylist() == [2999, 3000, 6001, -1, 1500, 0]
    vectors = np.array(found.column("vector").to_pylist())
    last = changed(towers.table.slice(1, 1), "item", pa.array([0]))
    expected = wanted(towers, "item", tmp_path, pa.concat_tables([towers.table.slice(1), last]))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_text_ids_are_written_as_they_are(towers: Any, tmp_path: Path) -> None:
    rows = [0, 1, 3]
    table = towers.table.take(pa.array(rows))
    report = export(towers.directory, tmp_path / "model", vectors={"word": written(table, tmp_path)})
    found = pq.read_table(report.vectors[0])
    assert found.column("id").to_pylist() == ["tee", "käse", "unseen word"]
    expected = wanted(towers, "word", tmp_path, table)
    np.testing.assert_allclose(np.array(found.column("vector").to_pylist()), expected, atol=1e-6)


def test_ids_of_any_type_that_training_takes(towers: Any, tmp_path: Path) -> None:
    """Of a dictionary each row group has its own; ids of 64 bits may be unsigned; text may be no UTF-8."""
    words = pa.array(["tee", "käse", None, "unseen word", "", "brot"]).fill_null("x").dictionary_encode()
    items = pa.array([2**63 - 1, 2**63 + 7, 2**60 + 1, 4, 123456789, 5], pa.uint64())
    file = written(changed(changed(towers.table, "word", words), "item", items), tmp_path)
    report = export(towers.directory, tmp_path / "model", vectors={"word": file, "item": file})
    found = {path.stem: pq.read_table(path).column("id") for path in report.vectors}
    assert found["word"].to_pylist() == words.to_pylist()
    assert found["item"].to_pylist() == items.to_pylist()
    odd = pa.array([b"tee", b"\xff\x00", b"c", b"d", b"e", b"f"])
    file = written(changed(towers.table, "word", odd), tmp_path)
    report = export(towers.directory, tmp_path / "odd", vectors={"word": file})
    assert pq.read_table(report.vectors[0]).column("id").to_pylist() == odd.to_pylist()
    twice = towers.table.append_column("item", towers.table.column("item"))
    with pytest.raises(DataError, match="has several columns 'item'"):
        export(towers.directory, tmp_path / "twice", vectors={"item": written(twice, tmp_path)})


@pytest.mark.parametrize(
    ("column", "without", "message"),
    [
        ("item", "price", "no column 'price', from which the model computes the vectors of 'item'"),
        ("item", "code", "no column 'code', from which"),
        ("item", "item", "no column 'item', of which the vectors are wanted"),
        ("word", "recent", "no column 'recent', from which"),
        ("word", "age", "no column 'age', from which"),
    ],
)
def test_a_column_that_a_vector_depends_on(
    towers: Any, tmp_path: Path, column: str, without: str, message: str
) -> None:
    file = written(towers.table.drop_columns([without]).slice(0, 2), tmp_path)
    with pytest.raises(DataError, match=message):
        export(towers.directory, tmp_path / "model", vectors={column: file})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.parquet", "made"]


def changed(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def test_values_that_do_not_fit(towers: Any, tmp_path: Path) -> None:
    items = towers.table.column("item").to_pylist()
    cases = [
        ("item", pa.array([*items[:4], None, 7]), "column 'item', row 4: a null is no id"),
        ("item", pa.array([[one] for one in items]), "holds lists: a vector needs a single id"),
        ("item", pa.array([str(one) for one in items]), "column 'item', row 0: string is not an integer id"),
        ("item", pa.array([{"id": one} for one in items]), "column 'item': struct<id: int64> is not an integer id"),
        ("item", pa.array(range(6), pa.decimal128(9, 2)), r"column 'item': decimal128\(9, 2\) is not an integer id"),
        ("price", pa.array([1.0, 2, 3, 4, float("inf"), 6]), "column 'price', row 4: inf is infinite"),
    ]
    for name, values, message in cases:
        file = written(changed(towers.table, name, values), tmp_path)
        with pytest.raises(DataError, match=message):
            export(towers.directory, tmp_path / "model", vectors={"item": file})
    with pytest.raises(DataError, match="'item' has no rows"):
        export(towers.directory, tmp_path / "model", vectors={"item": written(towers.table.slice(0, 0), tmp_path)})
    (tmp_path / "ids.parquet").write_text("item\n3\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        export(towers.directory, tmp_path / "model", vectors={"item": tmp_path / "ids.parquet"})


def test_what_cannot_be_asked_for(run: Any, towers: Any, tmp_path: Path) -> None:
    data = run.directory / "samples.parquet"
    with pytest.raises(ConfigError, match="no vectors of 'itm': it is no column of ids; did you mean"):
        export(run.directory, tmp_path / "model", vectors={"itm": data})
    with pytest.raises(DataError, match="no such file"):
        export(run.directory, tmp_path / "model", vectors={"item": tmp_path / "nothing.parquet"})
    with pytest.raises(ModelError, match=r"models:dlrm has no method vectors\(column, dense, sparse\)"):
        export(run.directory, tmp_path / "model", vectors={"item": data})
    with pytest.raises(ModelError, match="there are vectors of word and item, not of code"):
        export(towers.directory, tmp_path / "model", vectors={"code": written(towers.table.slice(0, 2), tmp_path)})
    with pytest.raises(ConfigError, match="--vectors item: is not of the form COLUMN=FILE"):
        parse_vectors(["user=users.parquet", "item"])
    assert parse_vectors(["user=a=b.parquet"]) == {"user": "a=b.parquet"}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("dense[:, 0]", r"returned \(2,\) for 2 samples"),
        ("dense[:1]", r"returned \(1, 2\) for 2 samples"),
        ("dense / 0", "values that are not finite"),
        ("None", "returned NoneType"),
    ],
)
def test_a_method_that_returns_no_vectors(make: Any, tmp_path: Path, result: str, message: str) -> None:
    (tmp_path / "own.py").write_text(OWN.format(result=result), encoding="utf-8")
    run = make(build=f"{tmp_path}/own.py:build", args="{}")
    with pytest.raises(ModelError, match=message):
        export(run.directory, tmp_path / "model", vectors={"user": _with_all_ids(run, tmp_path)})


def test_a_package_of_this_process_stays_when_its_copy_in_the_export_was_used(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "work" / "towers_of_test"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "own.py").write_text(OWN.format(result="dense"), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "work")
    run = make(build="towers_of_test.own:build", args="{}")
    before = {name: one for name, one in sys.modules.items() if name.startswith("towers_of_test")}
    assert set(before) == {"towers_of_test", "towers_of_test.own"}
    for form in ("torchrec", "pt2"):
        file = _with_all_ids(run, tmp_path)
        export(run.directory, tmp_path / form, format=form, vectors={"user": file})  # type: ignore[arg-type]
        now = {name: one for name, one in sys.modules.items() if name.startswith("towers_of_test")}
        assert now == before
    for name in before:
        sys.modules.pop(name)


def _with_all_ids(run: Any, folder: Path) -> Path:
    return written(changed(run.table, "user", pa.array(range(6))), folder)


def test_columns_with_a_slash_have_files_of_their_own() -> None:
    assert file_stems(["a/b", "a_b", "user", "a/b/"]) == ("a_b_", "a_b", "user", "a_b__")
    assert file_stems([]) == ()
