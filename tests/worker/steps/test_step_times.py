"""Times of training steps: every precision of this CPU, every batch size that the data has samples for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from elastichost.config.job import JobSpec, load_job
from elastichost.datasets import open_reader
from elastichost.host.cpu_features import present_cpu, refuses_bfloat16
from elastichost.specs import ModelSpec
from elastichost.worker.probe import build_and_describe
from elastichost.worker.steps import step_times

JOB = """
[job]
name = "timed"
[model]
build = "elastichost.models:dlrm"
args = { bottom = [256, 32], top = [256, 1] }
[data]
format = "synthetic"
synthetic = { rows = 3000, test_rows = 10, tables = 3, table_rows = 50, dense = 4, unit_rows = 1500 }
[tables.default]
dim = 32
rows = 50
[train]
batch_size = 300
"""


def test_every_precision_and_batch_size_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "ENOUGH_S", 0.0)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    job = load_job(path, environ={})
    reader = open_reader(job, "train")
    built: list[str] = []

    def build(trial: JobSpec) -> tuple[nn.Module, ModelSpec]:
        built.append(trial.train.precision)
        return build_and_describe(trial, reader.describe())

    threads = torch.get_num_threads()
    found = step_times.step_times(job, reader, build)
    assert torch.get_num_threads() == threads
    expected = ["float32"] if refuses_bfloat16(present_cpu()) else ["float32", "bfloat16"]
    assert built == expected, "each precision needs a model of its own, because layers are replaced in place"
    assert [(time.precision, time.samples) for time in found] == [
        (precision, samples) for precision in expected for samples in (300, 512, 1024)
    ], "units have 1500 samples"
    assert all(time.seconds > 0 for time in found)
