"""train.non_finite on whole runs: handling of a batch with a loss or gradient that is not finite."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.errors import NonFiniteError
from elastichost.runs.events import (
    ArenaOpened,
    LeaseGranted,
    RollBackRefused,
    RolledBack,
    SamplesQuarantined,
    TunerOnlyWatches,
)
from tests.system.test_run import JOB, Supervised, folder

__all__ = ["folder"]

pytestmark = [pytest.mark.system, pytest.mark.thorough]

ROWS, BATCH = 150_000, 128

# `spoil` is the effect of a bad batch, on the outputs or only on their gradient.
MODEL = """
import time

import torch
from elastichost.models import dlrm

BAD = {bad!r}


class Spoilt(torch.autograd.Function):
    @staticmethod
    def forward(context, output):
        return output.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * float("nan")


def spoil(output):
    return {spoil}


def build(tables, num_dense, **args):
    inner = dlrm(tables, num_dense, **args)

    class Poisoned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, dense, sparse):
            output = self.inner(dense, sparse)
            if not self.training:
                return output
            time.sleep(0.004)
            is_bad = (dense[:, None, :] == torch.tensor(BAD)[None]).all(dim=2)
            return spoil(output) if bool(is_bad.any()) else output

    return Poisoned()
"""
NAN_LOSS, NAN_GRADIENT = "output * float('nan')", "Spoilt.apply(output)"


def write_model(folder: Path, places: list[tuple[int, int]], spoil: str) -> dict[str, Any]:
    """Writes a model that fails on the samples at these (unit, position) pairs."""
    settings: dict[str, Any] = {"rows": ROWS, "build": f"{folder}/model.py:build", "every_s": 0.4}
    job = folder / "look.toml"
    job.write_text(JOB.format(**{"epochs": 1, "restarts": 3, **settings}))
    reader = open_reader(load_job(job, environ={}), "train")
    units = reader.describe().units
    bad: list[list[float]] = []
    for unit, position in places:
        (batch,) = reader.batches(units[unit], position, position + 1, 1)
        bad.append([float(value) for value in batch.dense[0]])
    (folder / "model.py").write_text(MODEL.format(bad=bad, spoil=spoil))
    return settings


def roll_back(mode: str = "async", access: str = "auto") -> str:
    lines = f'[train]\nnon_finite = "roll_back"\nmode = "{mode}"\naccess = "{access}"\nmicro_batches = 2\n'
    return JOB.replace("[train]\n", lines)


@pytest.mark.parametrize(
    ("mode", "access", "spoil", "said"),
    [
        ("async", "direct", NAN_LOSS, "the loss is nan"),
        ("async", "direct", NAN_GRADIENT, "a gradient of embedding rows is not finite"),
        ("async", "served", NAN_GRADIENT, "a gradient of embedding rows is not finite"),
        ("sync", "auto", NAN_LOSS, "the loss is nan"),
    ],
)
def test_the_run_goes_back_and_leaves_out_what_failed(
    folder: Path, mode: str, access: str, spoil: str, said: str
) -> None:
    settings = write_model(folder, [(12, 4000)], spoil)
    run = Supervised(folder, template=roll_back(mode, access), **settings)
    code, errors = run.finish()
    assert code == 1, errors
    result = run.result()
    assert result["status"] == "quarantined"
    (back,) = result["rolled_back"]
    assert (back["epoch"], back["unit"]) == (0, 12)
    assert back["start"] <= 4000 < back["stop"] <= back["start"] + BATCH
    assert back["reason"].startswith(said)
    (entry,) = result["quarantined"]
    assert (entry["unit"], entry["start"], entry["stop"]) == (12, back["start"], back["stop"])
    left_out = back["stop"] - back["start"]
    assert result["samples"] == {"planned": ROWS, "trained": ROWS - left_out, "skipped": 0, "quarantined": left_out}
    assert back["checkpoint"].startswith("step-")
    assert back["samples"] >= 0
    arenas = [event.origin for event in run.events(ArenaOpened)]
    assert arenas == ["new", "checkpoint"]
    assert len(run.events(RolledBack)) == len(run.events(SamplesQuarantined)) == 1
    leases = [event.lease for event in run.events(LeaseGranted)]
    assert len(set(leases)) == len(leases)
    assert result["processes"]["restarts"] == 0
    assert result["test"]["auc"] > 0.55


def test_without_a_checkpoint_it_goes_back_to_the_beginning_and_after_three_times_it_ends(folder: Path) -> None:
    settings = write_model(folder, [(0, 100), (0, 2000), (1, 50), (2, 7000)], NAN_LOSS)
    run = Supervised(folder, template=roll_back(), **{**settings, "every_s": 0})
    code, errors = run.finish()
    assert code == NonFiniteError.exit_code, errors
    assert "NonFiniteError: the loss is nan at positions" in errors
    backs = run.result()["rolled_back"]
    assert len(backs) == 3
    assert all(back["checkpoint"] == "" for back in backs)
    assert len({(back["unit"], back["start"]) for back in backs}) == 3
    last = [line.event for line in run.lines() if line.event.category == "decision"][-1]
    assert isinstance(last, RollBackRefused)
    assert "the run was already rolled back 3 times" in last.reason


def test_a_resumed_run_keeps_the_quarantined_samples(folder: Path) -> None:
    settings = write_model(folder, [(2, 4000)], NAN_LOSS)
    settings["every_s"] = 0  # the run rolls back to the beginning; only the journal records that
    run = Supervised(folder, template=roll_back(), **settings)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(RolledBack))
    run.wait_until(lambda: [event.origin for event in run.events(ArenaOpened)] == ["new", "new"])
    before = len(run.events(LeaseGranted))
    run.wait_until(lambda: len(run.events(LeaseGranted)) > before + 2)
    os.kill(run.process.pid, signal.SIGKILL)
    run.finish()
    resumed = Supervised(folder, resume=True, template=roll_back(), **settings)
    code, errors = resumed.finish()
    assert code == 1, errors
    result = resumed.result()
    assert len(result["rolled_back"]) == 1
    assert result["samples"]["trained"] + result["samples"]["quarantined"] == ROWS
    (entry,) = result["quarantined"]
    assert entry["unit"] == 2
    assert entry["start"] <= 4000 < entry["stop"]


def test_a_size_that_was_asked_for_stays_after_a_roll_back(folder: Path) -> None:
    """This also holds if the requested size was the present size."""
    from elastichost.wire.commands import CommandClient, ReachedMsg, ScaleMsg

    settings = write_model(folder, [(12, 4000)], NAN_LOSS)
    template = roll_back().replace('[tuner]\nmode = "off"\n', "[tuner]\nfirst_plan = {{ workers = 2 }}\n")
    template = template.replace("workers = 2\nrestarts", "workers = [1, 2]\nservers = 1\nrestarts")
    run = Supervised(folder, template=template, **{**settings, "every_s": 0})
    client = CommandClient(run.wait_until(lambda: run.status().get("commands")))
    client.send(ScaleMsg(workers=2))
    reply = run.wait_until(lambda: client.receive(0.1))
    client.close()
    assert isinstance(reply, ReachedMsg) and "nothing to change" in reply.text
    code, errors = run.finish()
    assert code == 1, errors
    (back,) = run.lines(RolledBack)
    assert any(line.monotonic_s > back.monotonic_s for line in run.lines(TunerOnlyWatches))
    assert run.result()["processes"]["workers"] == 2


def test_skip_leaves_a_batch_with_a_bad_gradient_out(folder: Path) -> None:
    settings = write_model(folder, [(2, 4000)], NAN_GRADIENT)
    run = Supervised(folder, template=JOB.replace("[train]\n", '[train]\nnon_finite = "skip"\n'), **settings)
    code, errors = run.finish()
    assert code == 0, errors
    samples = run.result()["samples"]
    assert samples["trained"] + samples["skipped"] == ROWS
    assert 0 < samples["skipped"] <= BATCH
    assert run.result()["rolled_back"] == []
