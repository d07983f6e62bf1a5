"""An export is the trained model, and can be used without elastichost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from torchrec import KeyedJaggedTensor

from elastichost.errors import CheckpointError, ConfigError, ModelError
from elastichost.results import reader
from elastichost.results.export import export

# The modules on a user's machine: everything but elastichost.
ALONE = """\
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "elastichost":
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Refuse())
directory, data, out = sys.argv[1:]
sys.path.insert(0, directory)
import numpy, pyarrow.parquet, torch, reader
model = reader.load_model(directory)
dense, sparse = reader.Preprocessor(directory).inputs(pyarrow.parquet.read_table(data))
with torch.no_grad():
    numpy.save(out, model(dense, sparse).numpy())
"""
OWN_MODEL = """\
import torch
from torchrec import EmbeddingCollection, EmbeddingConfig, EmbeddingBagCollection
from own_layers import Sum


class Own(torch.nn.Module):
    '''Bags of everything, and the sequence of recent items apart.'''

    def __init__(self, tables, num_dense):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)
        items = next(t for t in tables if "recent" in t.feature_names)
        sequence = EmbeddingConfig(
            name="recent_vectors", embedding_dim=3, num_embeddings=items.num_embeddings, feature_names=["recent"]
        )
        self.sequences = EmbeddingCollection(tables=[sequence])
        self.scale = Sum()
        self.register_buffer("constant", torch.arange(3))

    def forward(self, dense, sparse):
        recent = self.sequences(sparse)["recent"]
        sums = torch.segment_reduce(recent.values(), "sum", lengths=recent.lengths().long(), initial=0.0)
        return self.scale(self.bags(sparse).values()) + (sums * self.constant).sum(dim=1)


def build(tables, num_dense):
    return Own(tables, num_dense)
"""
OWN_LAYERS = """\
import torch


class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.tensor([0.25]))

    def forward(self, x):
        return self.weight * x.sum(dim=1) + self.shift
"""


def scores_alone(directory: Path, data: Path, tmp_path: Path) -> npt.NDArray[np.float32]:
    """The scores from a process that cannot import elastichost."""
    out = tmp_path / "scores.npy"
    command = [sys.executable, "-W", "ignore", "-c", ALONE, str(directory), str(data), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    scores: npt.NDArray[np.float32] = np.load(out)
    return scores


def test_an_export_without_elastichost_has_the_scores_of_the_checkpoint(run: Any, tmp_path: Path) -> None:
    report = export(run.directory, tmp_path / "model")
    assert (report.samples_trained, report.checkpoint, report.warnings) == (600, run.checkpoint, ())
    rows = dict(report.table_rows)
    assert rows == {"user": len(run.known_keys["user"]), "items": 3000, "word": 5, "code": 7}
    scores = scores_alone(report.directory, run.directory / "samples.parquet", tmp_path)
    np.testing.assert_allclose(scores, run.dlrm_logits(), rtol=1e-4, atol=1e-5)


def test_files_names_and_shapes(run: Any, tmp_path: Path) -> None:
    report = export(run.directory, tmp_path / "model")
    names = {path.name for path in report.directory.iterdir()}
    assert names == {"model.safetensors", "ids.safetensors", "preprocess.json", "reader.py", "models"}
    assert not list(report.directory.rglob("__pycache__"))
    assert report.model_bytes == (report.directory / "model.safetensors").stat().st_size
    prefix = "network.sparse_arch.embedding_bag_collection.embedding_bags"
    with safe_open(report.directory / "model.safetensors", framework="np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        users = file.get_tensor(f"{prefix}.user.weight")
    assert shapes[f"{prefix}.items_table.weight"] == (3000, 6)
    assert {name for name in shapes if prefix not in name} == set(run.dense)
    with safe_open(report.directory / "ids.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["user", "word"]
        ids = file.get_tensor("user")
    assert sorted(ids.tolist()) == sorted(run.known_keys["user"])
    for key, row in zip(ids.tolist(), users, strict=True):
        np.testing.assert_array_equal(row, run.vectors["user", key])


def test_preprocess_json_describes_the_inputs(run: Any, tmp_path: Path) -> None:
    about = json.loads((export(run.directory, tmp_path / "model").directory / "preprocess.json").read_text())
    assert about["schema"] == "elastichost/export/v1"
    assert about["features"] == ["user", "item", "recent", "word", "code"]
    assert {table["name"]: table["rule"] for table in about["tables"]} == {
        "user": "dynamic",
        "items": "modulo",
        "word": "dynamic",
        "code": "hash_modulo",
    }
    assert (about["dense"], about["dense_transform"], about["null_fill"]) == (["price", "age"], "log1p", 0.5)
    assert about["model"]["build"] == "elastichost.models:dlrm"
    assert about["model"]["args"] == {"bottom": [8, 6]}


@pytest.mark.thorough
def test_a_users_own_model_with_a_second_file_and_a_sequence(make: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODEL, encoding="utf-8")
    (tmp_path / "own_layers.py").write_text(OWN_LAYERS, encoding="utf-8")
    run = make(build=f"{tmp_path}/own.py:build", args="{}")
    report = export(run.directory, tmp_path / "model")
    assert sorted(p.name for p in (report.directory / "source").iterdir()) == ["own.py", "own_layers.py"]
    scores = scores_alone(report.directory, run.directory / "samples.parquet", tmp_path)
    *tables, sequence = run.manifest.model.embeddings
    expected = []
    for sample in range(run.table.num_rows):
        total = sum(run.pooled(e, run.bags(f)[sample]).sum() for e in tables for f in e.features)
        recent = sum(run.vectors[sequence.name, key] @ np.arange(3) for key in run.bags("recent")[sample])
        expected.append(1.5 * total + 0.25 + recent)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_tables_without_a_single_row_export_and_load(make: Any, tmp_path: Path) -> None:
    run = make(is_empty=True, build="elastichost.models:deepfm", args="{ hidden = [4] }")
    report = export(run.directory, tmp_path / "model")
    assert dict(report.table_rows)["user"] == 1
    assert np.isfinite(scores_alone(report.directory, run.directory / "samples.parquet", tmp_path)).all()


@pytest.mark.thorough
def test_several_labels(make: Any, tmp_path: Path) -> None:
    run = make(label='["label", "other"]', build="elastichost.models:wide_deep", args="{ hidden = [4] }")
    report = export(run.directory, tmp_path / "model")
    assert scores_alone(report.directory, run.directory / "samples.parquet", tmp_path).shape == (6, 2)


def test_a_destination_in_use_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        export(run.directory, tmp_path)
    assert (tmp_path / "kept.txt").read_text() == "mine"


def test_a_damaged_block_leaves_no_partial_export(make: Any, tmp_path: Path) -> None:
    run = make()
    record = next(r for r in run.manifest.blocks if r.kind == "rows" and r.nbytes)
    with (run.checkpoint / record.file).open("r+b") as file:
        file.seek(record.offset)
        file.write(b"\xff\xff\xff\xff")
    with pytest.raises(CheckpointError, match="is corrupt"):
        export(run.directory, tmp_path / "model")
    assert not [path for path in tmp_path.iterdir() if "model" in path.name]


def test_a_directory_that_is_not_a_run_and_a_run_without_checkpoint_are_refused(make: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        export(tmp_path, tmp_path / "model")
    run = make()
    run.checkpoint.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        export(run.directory, tmp_path / "model")
    assert export(run.directory, tmp_path / "model", checkpoint=tmp_path / "moved").samples_trained == 600


def test_an_emulated_run_has_no_model(make: Any, tmp_path: Path) -> None:
    run = make()
    job = run.directory / "job.resolved.toml"
    job.write_text(f"{job.read_text().partition('[emulate]')[0]}[emulate]\nenabled = true\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is an emulated run"):
        export(run.directory, tmp_path / "model")


def test_a_missing_model_file_is_reported(make: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODEL, encoding="utf-8")
    (tmp_path / "own_layers.py").write_text(OWN_LAYERS, encoding="utf-8")
    run = make(build=f"{tmp_path}/own.py:build", args="{}")
    (tmp_path / "own.py").unlink()
    with pytest.raises(ModelError, match=r"there is no file .*own\.py"):
        export(run.directory, tmp_path / "model")


# --- the reader's own parts ----------------------------------------------------------------------------


def test_xxh64_published_vectors() -> None:
    assert reader._xxh64(b"") == 0xEF46DB3751D8E999
    assert reader._xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert reader._xxh64(b"abc") == 0x44BC2CF5AD770999
    assert reader._xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


def test_xxh64_agrees_with_the_package_at_every_length() -> None:
    xxhash = pytest.importorskip("xxhash")
    for length in range(101):
        data = bytes(range(length))
        assert reader._xxh64(data) == xxhash.xxh64_intdigest(data)


def test_an_id_out_of_range_is_named(run: Any, tmp_path: Path) -> None:
    directory = export(run.directory, tmp_path / "model").directory
    about = json.loads((directory / "preprocess.json").read_text())
    about["tables"][1]["rule"] = "range"
    (directory / "preprocess.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="column item: id 3000 is out of range"):
        reader.Preprocessor(directory).inputs(run.table)


def test_inputs_of_a_sliced_table_are_a_slice_of_the_inputs(run: Any, tmp_path: Path) -> None:
    preprocessor = reader.Preprocessor(export(run.directory, tmp_path / "model").directory)
    table = pq.read_table(run.directory / "samples.parquet")
    dense, sparse = preprocessor.inputs(table)
    part_dense, part = preprocessor.inputs(table.slice(2, 3))
    assert isinstance(part, KeyedJaggedTensor)
    torch.testing.assert_close(part_dense, dense[2:5])
    for feature in sparse.keys():  # noqa: SIM118
        whole = sparse[feature].to_dense()[2:5]
        assert [bag.tolist() for bag in part[feature].to_dense()] == [bag.tolist() for bag in whole]


def column_of(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def test_integers_are_cast_to_the_text_a_table_was_trained_on(run: Any, tmp_path: Path) -> None:
    """Before, integers were not cast: their keys were all unknown, and the scores were wrong without an error."""
    preprocessor = reader.Preprocessor(export(run.directory, tmp_path / "model").directory)
    text = column_of(run.table, "code", pa.array(["17", None, "-4", "0", "18446744073709551615", "17"]))
    for kind, values in ((pa.int64(), [17, None, -4, 0, None, 17]), (pa.uint64(), [17, None, None, 0, 2**64 - 1, 17])):
        numbers = column_of(run.table, "code", pa.array(values, kind))
        bags, wanted = (preprocessor.inputs(one)[1]["code"].to_dense() for one in (numbers, text))
        given = [index for index, value in enumerate(values) if value is not None]
        assert [bags[index].tolist() for index in given] == [wanted[index].tolist() for index in given]
        assert all(len(bags[index]) == 0 for index in range(6) if index not in given)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_is_cast_to_the_integers_a_table_was_trained_on(run: Any, tmp_path: Path, kind: pa.DataType) -> None:
    preprocessor = reader.Preprocessor(export(run.directory, tmp_path / "model").directory)
    users = run.table.column("user").to_pylist()
    words = pa.array([None if one is None else str(one) for one in users]).cast(kind)
    asked = preprocessor.inputs(column_of(run.table, "user", words))[1]["user"]
    wanted = preprocessor.inputs(run.table)[1]["user"]
    torch.testing.assert_close(asked.values(), wanted.values())
    torch.testing.assert_close(asked.lengths(), wanted.lengths())


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        (
            "user",
            pa.array(["7", "007", "1", "2", "3", "4"]),
            "'007' is not an integer; the model was trained on integers",
        ),
        ("user", pa.array([1.5] * 6), "double cannot be cast to integers; the model was trained on integers"),
        ("code", pa.array([1.0] * 6), "double does not hold text; the model was trained on text"),
        ("code", pa.array([True] * 6), "bool does not hold text"),
        ("price", pa.array(["dear"] * 6), "string cannot be cast to numbers"),
    ],
)
def test_a_column_that_cannot_be_cast_exactly_is_refused(
    run: Any, tmp_path: Path, name: str, values: pa.Array, problem: str
) -> None:
    preprocessor = reader.Preprocessor(export(run.directory, tmp_path / "model").directory)
    with pytest.raises(reader.ColumnError, match=f"column {name}: {problem}") as raised:
        preprocessor.inputs(column_of(run.table, name, values))
    assert raised.value.column == name


def test_a_column_without_any_value_has_no_ids(run: Any, tmp_path: Path) -> None:
    preprocessor = reader.Preprocessor(export(run.directory, tmp_path / "model").directory)
    table = column_of(column_of(run.table, "user", pa.nulls(6)), "code", pa.nulls(6))
    _, sparse = preprocessor.inputs(table)
    assert [len(sparse[name].values()) for name in ("user", "code")] == [0, 0]


def test_a_column_that_is_missing_is_named(run: Any, tmp_path: Path) -> None:
    preprocessor = reader.Preprocessor(export(run.directory, tmp_path / "model").directory)
    with pytest.raises(reader.ColumnError, match="column word: is missing; the table has .*price"):
        preprocessor.inputs(run.table.drop_columns(["word"]))
