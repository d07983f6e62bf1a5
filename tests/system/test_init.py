"""From a CSV file to a trained run, without an edit in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.train.test_init import write_csv
from tests.datasets.sources.s3_server import S3Server, s3_environment, store
from tests.system.test_run import ROOT, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(200)]

__all__ = ["folder", "s3_environment", "store"]


def call(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "elastichost", *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_job_of_init_trains_unedited(folder: Path) -> None:
    write_csv(folder / "clicks.csv")
    (folder / "job.toml").write_text(call(folder, "init", "clicks.csv", "--label", "clicked"))
    call(folder, "run", "job.toml", "--run-dir", "run", "--dashboard", "no")
    result = json.loads((folder / "run" / "result.json").read_text())
    assert (result["status"], result["samples"]["trained"]) == ("done", 1080)
    assert 0 < result["test"]["auc"] < 1


def test_a_file_in_a_store_is_trained_exported_and_scored_without_a_copy_here(folder: Path, store: S3Server) -> None:
    write_csv(folder / "clicks.csv")
    store.put_file(folder / "clicks.csv", "init/clicks.csv")
    (folder / "clicks.csv").unlink()
    url = store.url("init/clicks.csv")
    (folder / "job.toml").write_text(call(folder, "init", url, "--label", "clicked"))
    call(folder, "run", "job.toml", "--run-dir", "run", "--dashboard", "no")
    call(folder, "export", "run", "model", "--embeddings", "item")
    call(folder, "predict", "run", url)
    call(folder, "convert", url, "clicks.parquet")
    items = set(pq.read_table(folder / "model" / "embeddings" / "item.parquet").column("id").to_pylist())
    rows = pq.read_table(folder / "clicks.parquet")
    assert items and items <= {
        *rows.column("item").to_pylist(),
        *"|".join(filter(None, rows.column("seen").to_pylist())).split("|"),
    }
    assert pq.read_table(folder / "clicks.csv.scores.parquet").num_rows == rows.num_rows == 1200
