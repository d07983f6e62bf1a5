"""Sync mode gives the same bits for any number of processes and after any death: step losses and exported model."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from elastichost.results.export import export
from elastichost.wire.applied import read_applied
from tests.system.test_run import JOB, Supervised, folder
from tests.system.test_scale import SLOW_MODEL, scale

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

__all__ = ["folder"]

SAMPLES = 12_000
# Dropout: its random numbers depend on the micro-batch. Batch norm: the running means are part of the model.
MODEL = """
from torch import nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection
import torch


class Net(nn.Module):
    def __init__(self, tables, dense):
        super().__init__()
        self.rows = EmbeddingBagCollection(tables=tables)
        wide = dense + sum(len(t.feature_names) * t.embedding_dim for t in tables)
        self.top = nn.Sequential(nn.Linear(wide, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, dense, features):
        return self.top(torch.cat([dense, self.rows(features).values()], dim=1)).squeeze(1)


def build(tables, num_dense, bottom=(), top=()):
    return Net(tables, num_dense)
"""
TEMPLATE = JOB.replace("[train]\n", '[train]\nmode = "sync"\nmicro_batches = {micro_batches}\n').replace(
    "workers = 2", "workers = {workers}\nservers = {servers}"
)


def trained(folder: Path, name: str, template: str = TEMPLATE, **settings: int | str) -> tuple[list[float], str]:
    """Trains a whole run; returns its `outcome`."""
    place = folder / name
    place.mkdir()
    facts = {"micro_batches": 4, "workers": 1, "servers": 1, "rows": SAMPLES, "every_s": 60, **settings}
    run = Supervised(place, template=template, **facts)
    code, errors = run.finish()
    assert code == 0, errors
    return outcome(run.run_dir)


def outcome(run_dir: Path) -> tuple[list[float], str]:
    """(mean loss of every step, hash of the exported model). Checks that every sample was trained once."""
    applied = read_applied(run_dir)
    applied = applied[applied["samples"] > 0]
    assert int(applied["samples"].sum()) == SAMPLES
    for unit in np.unique(applied["unit"]):
        of_unit = applied[applied["unit"] == unit]
        assert of_unit["start"].tolist() == [0, *of_unit["stop"][:-1].tolist()]
    exported = run_dir.parent / "exported"
    export(run_dir, exported)
    digest = hashlib.sha256()
    for name in ("ids.safetensors", "model.safetensors"):
        digest.update((exported / name).read_bytes())
    return applied["loss_sum"].tolist(), digest.hexdigest()


@pytest.mark.thorough
def test_the_bits_are_those_of_one_worker_and_one_ps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained(folder, "plain")
    assert trained(folder, "three", workers=3, servers=2) == expected
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", "worker.batch.before_commit:30,ps.apply.midway:30")
    assert trained(folder, "killed", workers=2, servers=2, every_s=0.5) == expected
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", "worker.batch.after_commit:50,ps.commit.before_apply:60")
    assert trained(folder, "killed-again", workers=2, servers=2, every_s=0.5) == expected
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", "ps.step.before_commit:50")
    assert trained(folder, "killed-a-step", workers=2, servers=1) == expected


@pytest.mark.thorough
def test_dropout_and_batch_norm_do_not_depend_on_the_worker(folder: Path) -> None:
    (folder / "net.py").write_text(MODEL)
    build = f"{folder / 'net.py'}:build"
    expected = trained(folder, "one", build=build)
    assert trained(folder, "two", build=build, workers=2, servers=2) == expected
    other = trained(folder, "cut-otherwise", build=build, micro_batches=3)
    assert other[0] != expected[0], "other micro-batches must change the losses, or the comparison cannot fail"


@pytest.mark.thorough
def test_a_run_that_is_stopped_and_resumed_otherwise_has_the_same_bits(folder: Path) -> None:
    expected = trained(folder, "plain")
    place = folder / "stopped"
    place.mkdir()
    facts = {"micro_batches": 4, "rows": SAMPLES, "every_s": 60}
    run = Supervised(place, template=TEMPLATE, workers=2, servers=1, **facts)
    run.wait_trained(SAMPLES // 4)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish()[0] == 75
    trained_before = run.result()["samples"]["trained"]
    assert 0 < trained_before < SAMPLES
    run = Supervised(place, template=TEMPLATE, workers=1, servers=2, resume=True, **facts)
    code, errors = run.finish()
    assert code == 0, errors
    assert outcome(run.run_dir) == expected


@pytest.mark.thorough
def test_clipping_adamw_and_adam_of_rows_keep_the_bits_through_kills(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = 'clip_norm = 0.05\noptimizer_dense = {{ name = "adamw", lr = 0.01, weight_decay = 0.1 }}\n'
    rows = 'optimizer_rows = {{ name = "adam", lr = 0.01, weight_decay = 0.1 }}\n'
    template = TEMPLATE.replace("[train]\n", f"[train]\n{dense}{rows}")
    expected = trained(folder, "plain", template)
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", "worker.batch.before_commit:30,ps.apply.midway:40")
    assert trained(folder, "killed", template, workers=2, servers=2, every_s=0.5) == expected
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", "ps.step.before_commit:50")
    assert trained(folder, "killed-a-step", template, workers=2, servers=1) == expected
    monkeypatch.delenv("ELASTICHOST_CRASH_AT")
    other = trained(folder, "unclipped", template.replace("clip_norm = 0.05", "clip_norm = 0"))
    assert other[0] != expected[0], "the limit must matter, or equal bits prove nothing"


@pytest.mark.thorough
def test_every_option_of_training_keeps_the_bits_while_the_run_is_scaled_and_killed(folder: Path) -> None:
    """Rows move to other PS with their means, counters and decay; the rates follow the samples; the dense vector moves
    with the means of AdamW."""
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.005", "0.02"))
    options = (
        'clip_norm = 0.05\noptimizer_dense = {{ name = "adamw", lr = 0.01, weight_decay = 0.1 }}\n'
        'optimizer_rows = {{ name = "adam", lr = 0.01, weight_decay = 0.1 }}\n'
        'schedule = {{ name = "cosine", warmup_samples = 2000 }}\n'
    )
    template = TEMPLATE.replace("[train]\n", f"[train]\n{options}")
    facts = {"micro_batches": 4, "rows": SAMPLES, "every_s": 60, "build": f"{folder / 'slow.py'}:build"}
    expected = trained(folder, "plain", template, **facts)
    place = folder / "scaled"
    place.mkdir()
    run = Supervised(place, template=template, workers=1, servers=1, **facts)
    run.wait_trained(SAMPLES // 8)
    scale(run, workers=2, servers=2)
    os.kill(run.pid("worker-1"), signal.SIGKILL)
    os.kill(run.pid("server-1"), signal.SIGKILL)
    scale(run, workers=1, servers=3)
    assert run.status()["samples_trained"] < SAMPLES, "the run must train in its last size"
    code, errors = run.finish()
    assert code == 0, errors
    assert sorted(lost.process.name for lost in run.lost()) == ["server-1", "worker-1"]
    assert outcome(run.run_dir) == expected


@pytest.mark.thorough
def test_adam_of_rows_goes_on_after_a_stop_with_other_servers(folder: Path) -> None:
    """Both means and the counter of a row are in checkpoints, and move with its bucket."""
    rows = 'optimizer_rows = {{ name = "adam", lr = 0.01, weight_decay = 0.1 }}\n'
    template = TEMPLATE.replace("[train]\n", f"[train]\n{rows}")
    expected = trained(folder, "plain", template)
    place = folder / "stopped"
    place.mkdir()
    facts = {"micro_batches": 4, "rows": SAMPLES, "every_s": 60}
    run = Supervised(place, template=template, workers=2, servers=1, **facts)
    run.wait_trained(SAMPLES // 4)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish()[0] == 75
    run = Supervised(place, template=template, workers=1, servers=3, resume=True, **facts)
    code, errors = run.finish()
    assert code == 0, errors
    assert outcome(run.run_dir) == expected
