"""The verbs run, resume, export and predict on a tiny job with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastichost.cli.runs import find_run
from tests.cli.conftest import Elastichost

ROOT = Path(__file__).parents[3]
TINY = """
[model]
build = "elastichost.models:dlrm"
args = { bottom = [8, 4], top = [8, 1] }
[data]
format = "synthetic"
[data.synthetic]
rows = 4000
test_rows = 1000
tables = 3
table_rows = 50
dense = 2
unit_rows = 1000
[tables.default]
dim = 4
[train]
batch_size = 128
[resources]
workers = 1
"""


@pytest.fixture
def tiny_job(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def call(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ELASTICHOST_ARENA_DIR": str(directory)}
    command = [sys.executable, "-m", "elastichost", *arguments]
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False)


def test_dry_run_checks_and_plans(elastichost: Elastichost, tiny_job: Path) -> None:
    outcome = elastichost("run", str(tiny_job), "--dry-run")
    assert outcome.code == 0
    assert "cold start: 1 worker on" in outcome.stdout
    rows = [line.split() for line in outcome.stdout.splitlines()]
    assert ["c0,", "c1,", "c2", "int", "dynamic", "4", "float32", "rowwise_adagrad", "(lr", "0.1)"] in rows
    assert [row[:2] for row in rows if row[0] in ("worker", "parameter")] == [["worker", "0"], ["parameter", "server"]]
    many = elastichost("run", str(tiny_job), "--dry-run", "--set", "resources.workers=5")
    assert "\nworkers 0-4 " in many.stdout, "processes that are alike have one line"
    facts = json.loads(elastichost("run", str(tiny_job), "--dry-run", "--json").last_line)
    assert (facts["train_samples"], facts["test_samples"], len(facts["tables"])) == (4000, 1000, 3)
    table = facts["tables"][1]
    assert (table["name"], table["rows"], table["dims"], table["optimizer"]) == ("c1", 0, [4], "rowwise_adagrad")
    assert [spec["role"] for spec in facts["plan"]["processes"]] == ["worker", "server"]
    assert 0 < facts["memory"]["host_bytes"] < facts["memory_bytes"]
    assert "fork server" in {part["name"] for part in facts["memory"]["parts"]}
    assert "more than" not in outcome.stderr and "expected to need" not in outcome.stderr
    small = elastichost("run", str(tiny_job), "--dry-run", "--set", "resources.memory=100MiB")
    assert "but resources.memory allows 100.0 MiB" in small.stderr and "raise resources.memory" in small.stderr
    assert not (tiny_job.parent / "runs").exists()


def test_dry_run_finds_a_broken_model(elastichost: Elastichost, tiny_job: Path) -> None:
    (tiny_job.parent / "model.py").write_text("def bild():\n    pass\n")
    outcome = elastichost("run", str(tiny_job), "--dry-run", "--set", "model.build=model.py:build")
    assert outcome.code == 3
    assert "model.py" in outcome.stderr


WRONG_SHAPE = """
import torch
from torchrec import EmbeddingBagCollection


class Model(torch.nn.Module):
    def __init__(self, tables, num_dense):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)
        self.linear = torch.nn.Linear(num_dense, 3)

    def forward(self, dense, sparse):
        return self.linear(dense) + self.bags(sparse).values().sum()


def build(tables, num_dense):
    return Model(tables, num_dense)
"""
RETURNED = "the model returned (64, 3) for a batch of 64 samples with 1 label(s)"


@pytest.mark.thorough
def test_dry_run_runs_a_batch_and_leaves_nothing(
    elastichost: Elastichost, tiny_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tiny_job.parent
    arena = here / "arena"
    arena.mkdir()
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(arena))
    (here / "model.py").write_text(WRONG_SHAPE)
    wrong = elastichost(
        "run", str(tiny_job), "--dry-run", "--set", "model.build=model.py:build", "--set", "model.args={}"
    )
    assert (wrong.code, wrong.stderr.count(RETURNED)) == (3, 1)
    assert "must return logits [B]" in wrong.stderr
    facts = json.loads(elastichost("run", str(tiny_job), "--dry-run", "--json").last_line)
    # [2, 8], [8], [8, 4], [4] of the dense features; 4 + 3 * 4 / 2 dot products, [10, 8], [8], [8, 1], [1] of the rest
    parameters = 2 * 8 + 8 + 8 * 4 + 4 + 10 * 8 + 8 + 8 + 1
    assert facts["model"] == {"dense_parameters": parameters, "embeddings": 3, "batch_samples": 128}
    assert not (here / "runs").exists()
    assert not list(arena.iterdir())


@pytest.mark.thorough
@pytest.mark.system
def test_an_error_that_ends_a_run_is_shown_once(tiny_job: Path) -> None:
    here = tiny_job.parent
    (here / "model.py").write_text(WRONG_SHAPE)
    settings = ("model.build=model.py:build", "model.args={}", "resources.workers=2")
    sets = [word for one in settings for word in ("--set", one)]
    message = "the model returned (128, 3) for a batch of 128 samples"
    ended = call(here, "run", str(tiny_job), "--dashboard", "no", *sets)
    assert (ended.returncode, ended.stdout, ended.stderr.count(message)) == (3, "", 1)
    assert "reported an error that ends the run: ModelError" in ended.stderr
    as_json = call(here, "run", str(tiny_job), "--json", *sets)
    assert (as_json.returncode, as_json.stderr.count(message)) == (3, 0)
    assert message in json.loads(as_json.stdout)["error"]["message"], "one line, the JSON object"
    code, shown = on_terminal(here, "run", str(tiny_job), *sets)
    assert (code, shown.count(message)) == (3, 1)
    model = {"build": f"{here}/model.py:build", "args": {}}
    job = f"eh.Job.from_toml({str(tiny_job)!r}).with_settings(model={model})"
    (here / "train.py").write_text(f"import elastichost as eh\neh.train({job}, progress=True)\n")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ELASTICHOST_ARENA_DIR": str(here)}
    raised = subprocess.run(
        [sys.executable, "train.py"], cwd=here, env=environ, capture_output=True, text=True, check=False
    )
    assert (raised.returncode, raised.stderr.count(message)) == (1, 1)
    assert f"ModelError: {message}" in raised.stderr


def on_terminal(directory: Path, *arguments: str) -> tuple[int, str]:
    """(exit code, all that is shown) of a verb on a terminal of its own."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ELASTICHOST_ARENA_DIR": str(directory), "COLUMNS": "200"}
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "elastichost", *arguments]
    with subprocess.Popen(command, cwd=directory, env=environ, stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
        os.close(ours)
    return program.returncode, shown.decode(errors="replace")


def test_a_missing_arena_directory_is_found_before_the_start(
    elastichost: Elastichost, tiny_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tiny_job.parent / "nowhere"))
    outcome = elastichost("run", str(tiny_job), "--dry-run")
    assert outcome.code == 3
    assert "nowhere is not a directory that you may write to" in outcome.stderr
    assert "ELASTICHOST_ARENA_DIR" in outcome.stderr


def test_predict_checks_paths_before_it_loads_the_model(elastichost: Elastichost, run_directory: Path) -> None:
    missing = elastichost("predict", str(run_directory), "none.parquet")
    assert (missing.code, "none.parquet: no such file" in missing.stderr) == (3, True)
    (run_directory / "data.parquet").touch()
    nowhere = elastichost("predict", str(run_directory), str(run_directory / "data.parquet"), "-o", "none/a.parquet")
    assert (nowhere.code, "its directory does not exist" in nowhere.stderr) == (2, True)
    near = elastichost("predict", str(run_directory), str(run_directory / "dta.parquet"))
    assert 'did you mean "data.parquet"?' in near.stderr
    assert "is a folder" in elastichost("predict", str(run_directory), ".").stderr
    assert "loading the model" not in missing.stderr + nowhere.stderr


@pytest.mark.system
def test_a_run_from_its_start_to_its_scores(tiny_job: Path) -> None:
    here = tiny_job.parent
    trained = call(here, "run", str(tiny_job), "--json")
    assert trained.returncode == 0, trained.stderr
    facts: dict[str, Any] = json.loads(trained.stdout.splitlines()[-1])
    assert (facts["schema"], facts["status"]) == ("elastichost/v1", "done")
    assert facts["samples"] == {"planned": 4000, "trained": 4000, "skipped": 0, "quarantined": 0}
    assert find_run("latest", here / "runs") == Path(facts["run_dir"])
    assert "not running: done" in call(here, "status").stdout
    assert "run_started" in call(here, "events", "--json").stdout
    exported = call(here, "export", "latest", "exported")
    assert exported.returncode == 0, exported.stderr
    assert (here / "exported" / "model.safetensors").is_file()
    again = call(here, "resume", "--dashboard", "no")
    assert again.returncode == 0, again.stderr
    assert "4000 of 4000 trained" in again.stdout
    assert not list(here.glob("elastichost-*"))


def test_a_resumed_run_stays_the_same_job(elastichost: Elastichost, tiny_job: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "job.resolved.toml").write_text(elastichost("config", "show", str(tiny_job)).stdout)
    outcome = elastichost("resume", str(run_dir), "--set", "train.batch_size=64", "--set", "resources.workers=2")
    assert outcome.code == 2
    assert "[train]" in outcome.stderr
    assert "resources" in outcome.stderr
    allowed = elastichost("resume", str(run_dir), "--set", "resources.workers=2", "--set", "train.access=served")
    assert "no checkpoint" in allowed.stderr
