"""A program of torch.export has the scores of the model, for any number of samples, and needs torch alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.errors import ModelError
from elastichost.results.export import export
from elastichost.results.predict import predict
from elastichost.results.reader import Scorer, load_model
from tests.results.test_results_export import OWN_LAYERS, OWN_MODEL

# The modules on a machine that serves: neither elastichost nor torchrec nor fbgemm.
ALONE = """\
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("elastichost", "torchrec", "fbgemm_gpu"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Refuse())
"""
BRANCH = """\
import torch
from torchrec import EmbeddingBagCollection

class Branch(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)

    def forward(self, dense, sparse):
        pooled = self.bags(sparse).values().sum(dim=1)
        return pooled if dense.sum() > 0 else -pooled

def build(tables, num_dense):
    return Branch(tables)
"""
TIED = """\
import torch
from torchrec import EmbeddingBagCollection

class Tied(torch.nn.Module):
    '''A weight of two layers; tables and a norm with buffers that the model has under two names each.'''

    def __init__(self, tables):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)
        width = sum(table.embedding_dim * len(table.feature_names) for table in tables)
        self.one, self.two = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.two.weight = self.one.weight
        self.norm = torch.nn.BatchNorm1d(width)
        self.again = torch.nn.ModuleList([self.norm, self.bags])

    def forward(self, dense, sparse):
        norm, bags = self.again
        return norm(self.two(self.norm(self.one(bags(sparse).values())))).sum(dim=1)

def build(tables, num_dense):
    return Tied(tables)
"""


def code_of(readme: Path) -> list[str]:
    """The Python blocks of a README."""
    return [part.partition("```")[0] for part in readme.read_text(encoding="utf-8").split("```python\n")[1:]]


@pytest.mark.parametrize("name", ["dlrm", "deepfm", "wide_deep", "dcn", "xdeepfm"])
def test_the_ready_models_have_the_scores_of_the_model(make: Any, tmp_path: Path, name: str) -> None:
    args = "{ bottom = [8, 6] }" if name == "dlrm" else "{ hidden = [4] }"
    run = make(build=f"elastichost.models:{name}", args=args)
    program = Scorer(export(run.directory, tmp_path / "program", format="pt2").directory)
    model = Scorer(export(run.directory, tmp_path / "model").directory)
    for table in (run.table, run.table.slice(2, 1), run.table.slice(0, 0), pa.concat_tables([run.table] * 30)):
        given, wanted = (one.scores(one.preprocessor.prepare(table)) for one in (program, model))
        assert given.shape == wanted.shape == (table.num_rows,)
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "args", "labels", "outputs"),
    [
        ("mmoe", "{ hidden = [4] }", '["label", "other"]', "logits"),
        ("din", '{ attention = { recent = "item" }, hidden = [4] }', '["label", "other"]', "logits"),
        ("two_towers", '{ user = ["user", "recent"], item = ["item", "word", "code"] }', '"label"', "loss"),
    ],
)
def test_models_of_several_labels_of_sequences_and_of_a_loss(
    make: Any, tmp_path: Path, name: str, args: str, labels: str, outputs: str
) -> None:
    run = make(build=f"elastichost.models:{name}", args=args, label=labels, outputs=outputs)
    exports = [export(run.directory, tmp_path / form, format=form).directory for form in ("pt2", "torchrec")]  # type: ignore[arg-type]
    program, model = map(Scorer, exports)
    suffixes = ["_label", "_other"] if "other" in labels else [""]
    predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    columns = [pq.read_table(tmp_path / "scores.parquet").column(f"probability{suffix}") for suffix in suffixes]
    predicted = np.stack([column.to_numpy() for column in columns], axis=1)
    for rows in (slice(0, 6), slice(2, 3), slice(0, 0)):
        table = run.table.slice(rows.start, rows.stop - rows.start)
        given, wanted = (one.scores(one.preprocessor.prepare(table)) for one in (program, model))
        assert given.shape == wanted.shape == ((table.num_rows, 2) if len(suffixes) == 2 else (table.num_rows,))
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6)
        np.testing.assert_allclose(given.reshape(-1, len(suffixes)), predicted[rows], rtol=0, atol=1e-6)


def test_the_readme_of_a_model_that_returns_its_loss(make: Any, tmp_path: Path) -> None:
    args = '{ user = ["user", "recent"], item = ["item", "word", "code"] }'
    run = make(build="elastichost.models:two_towers", args=args, outputs="loss")
    report = export(run.directory, tmp_path / "model")
    code = "\n".join(code_of(report.directory / "README.md")).replace("DIR", str(report.directory))
    code = code.replace("FILE", str(run.directory / "samples.parquet"))
    script = f"{code}\nprint(abs(torch.sigmoid(output).numpy() - probabilities).max() < 1e-6)"
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_sample_without_any_id(run: Any, tmp_path: Path) -> None:
    directories = [export(run.directory, tmp_path / form, format=form).directory for form in ("pt2", "torchrec")]
    table = run.table.slice(0, 1)
    for name in ("user", "recent", "item", "word", "code"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.nulls(1, table.schema.field(name).type))
    given, wanted = (scorer.scores(scorer.preprocessor.prepare(table)) for scorer in map(Scorer, directories))
    np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6)


def test_the_readme_loads_it_with_torch_alone(run: Any, tmp_path: Path) -> None:
    report = export(run.directory, tmp_path / "model", format="pt2")
    assert report.model_bytes == (report.directory / "model.pt2").stat().st_size
    names = {path.name for path in report.directory.iterdir()}
    assert names == {"README.md", "ids.safetensors", "model.pt2", "preprocess.json", "preprocess.py", "reader.py"}
    data, out = run.directory / "samples.parquet", tmp_path / "scores.npy"
    scores, program = (
        code.replace("DIR", str(report.directory)).replace("FILE", str(data))
        for code in code_of(report.directory / "README.md")
    )
    script = (
        f"{ALONE}{scores}\nimport numpy; numpy.save({str(out)!r}, probabilities)\n{program}\nprint(probabilities.shape)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "torch.Size([2])\n"), done.stderr
    predict(run.directory, data, tmp_path / "scores.parquet")
    wanted = pq.read_table(tmp_path / "scores.parquet").column("probability").to_numpy()
    np.testing.assert_allclose(np.load(out), wanted, rtol=0, atol=1e-6)


def test_the_readme_of_a_torchrec_export_loads_it(run: Any, tmp_path: Path) -> None:
    report = export(run.directory, tmp_path / "model")
    data = run.directory / "samples.parquet"
    code = "\n".join(code_of(report.directory / "README.md")).replace("DIR", str(report.directory))
    script = (
        f"{code.replace('FILE', str(data))}\nprint(abs(torch.sigmoid(output).numpy() - probabilities).max() < 1e-6)"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_model_with_sequences(make: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODEL, encoding="utf-8")
    (tmp_path / "own_layers.py").write_text(OWN_LAYERS, encoding="utf-8")
    run = make(build=f"{tmp_path}/own.py:build", args="{}")
    given, wanted = (
        scorer.scores(scorer.preprocessor.prepare(run.table))
        for scorer in (
            Scorer(export(run.directory, tmp_path / form, format=form).directory) for form in ("pt2", "torchrec")
        )
    )
    np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6)


def test_several_labels(make: Any, tmp_path: Path) -> None:
    run = make(label='["label", "other"]', build="elastichost.models:wide_deep", args="{ hidden = [4] }")
    scorer = Scorer(export(run.directory, tmp_path / "model", format="pt2").directory)
    assert scorer.scores(scorer.preprocessor.prepare(run.table)).shape == (6, 2)


def test_a_model_that_cannot_be_traced_is_refused_and_leaves_nothing(make: Any, tmp_path: Path) -> None:
    (tmp_path / "branch.py").write_text(BRANCH, encoding="utf-8")
    run = make(build=f"{tmp_path}/branch.py:build", args="{}")
    with pytest.raises(ModelError, match="cannot be exported as a program") as raised:
        export(run.directory, tmp_path / "model", format="pt2")
    assert "--format torchrec" in raised.value.hint
    assert not [path for path in tmp_path.iterdir() if "model" in path.name]


def test_a_model_that_no_longer_fits_the_checkpoint_is_refused(make: Any, tmp_path: Path) -> None:
    run = make()
    job = run.directory / "job.resolved.toml"
    job.write_text(job.read_text().replace("8,", "16,", 1))
    with pytest.raises(ModelError, match=r"elastichost\.models:dlrm cannot be loaded with the weights") as raised:
        export(run.directory, tmp_path / "model", format="pt2")
    assert "restore the code" in raised.value.hint
    assert not [path for path in tmp_path.iterdir() if "model" in path.name]


def test_a_model_with_tensors_under_two_names(make: Any, tmp_path: Path) -> None:
    """A checkpoint has each of them once, under its first name."""
    (tmp_path / "tied.py").write_text(TIED, encoding="utf-8")
    run = make(build=f"{tmp_path}/tied.py:build", args="{}")
    assert "one.weight" in run.dense and "two.weight" not in run.dense
    predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    predicted = pq.read_table(tmp_path / "scores.parquet").column("probability").to_numpy()
    exports = [export(run.directory, tmp_path / form, format=form).directory for form in ("pt2", "torchrec")]
    program, model = (one.scores(one.preprocessor.prepare(run.table)) for one in map(Scorer, exports))
    np.testing.assert_allclose(program, predicted, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model, predicted, rtol=0, atol=1e-6)
    assert len(set(predicted.tolist())) > 1
    state = load_model(exports[1]).state_dict()
    for name in ("one.weight", "two.weight"):
        np.testing.assert_array_equal(state[name].numpy(), run.dense["one.weight"])
