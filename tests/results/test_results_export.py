"""An export is the trained model, and can be used without elastichost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors import safe_open

from elastichost.errors import CheckpointError, ConfigError, ModelError
from elastichost.results import reader
from elastichost.results.export import export
from tests.results.conftest import make_run

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
import numpy, preprocess, pyarrow.parquet, torch, reader
model = reader.load_model(directory)
dense, sparse = reader.model_inputs(preprocess.Preprocessor(directory), pyarrow.parquet.read_table(data))
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
    files = {"README.md", "preprocess.json", "preprocess.py", "reader.py", "ids.safetensors", "model.safetensors"}
    assert names == {*files, "models"}
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
    assert about["schema"] == "elastichost/export/v2"
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


def test_packages_beside_the_model_and_imports_within_functions(make: Any, tmp_path: Path) -> None:
    """Two exports in one process have packages of the same name, and each loads its own."""
    scores = []
    for name, factor in (("first", "1.5"), ("second", "-1.5")):
        folder = tmp_path / name
        (folder / "layers").mkdir(parents=True)
        (folder / "layers" / "__init__.py").write_text("from .sums import Sum\n")
        (folder / "layers" / "sums.py").write_text(OWN_LAYERS.replace("self.weight *", f"{factor} * self.weight *"))
        late = OWN_MODEL.replace("from own_layers import Sum\n", "").replace(
            "        self.scale = Sum()", "        from layers import Sum\n\n        self.scale = Sum()"
        )
        (folder / "own.py").write_text(late, encoding="utf-8")
        run = make_run(folder / "run", build=f"{folder}/own.py:build", args="{}")
        report = export(run.directory, folder / "model")
        assert (report.directory / "source" / "layers" / "sums.py").is_file()
        scorer = reader.Scorer(report.directory)
        scores.append(scorer.scores(scorer.preprocessor.prepare(run.table)))
    assert not np.allclose(*scores)


def test_a_package_in_the_working_directory_is_exported_with_the_model(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that loads the export has no such package."""
    package = tmp_path / "work" / "own_package_of_test" / "nets"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "own_layers.py").write_text(OWN_LAYERS)
    (package / "own.py").write_text(OWN_MODEL.replace("from own_layers", "from .own_layers"))
    monkeypatch.chdir(tmp_path / "work")
    run = make(build="own_package_of_test.nets.own:build", args="{}")
    report = export(run.directory, tmp_path / "model")
    assert report.warnings == ()
    assert (report.directory / "source" / "own_package_of_test" / "nets" / "own_layers.py").is_file()
    assert np.isfinite(scores_alone(report.directory, run.directory / "samples.parquet", tmp_path)).all()
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("own_package_of_test")]:
        monkeypatch.delitem(sys.modules, name)  # a command is a fresh process
    with pytest.raises(ModelError, match="there is no module") as refused:
        export(run.directory, tmp_path / "other")
    assert "in the directory in which the run was started" in refused.value.hint


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
