"""The dense exchange of a worker with direct access: what the model's copy of the vector holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from elastichost.arena.arena import Arena
from elastichost.arena.dense import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.plan import ProcessId
from elastichost.specs import ModelSpec
from elastichost.wire.messages import LeaseProgress
from elastichost.worker.channel import DirectoryHolder
from elastichost.worker.commit import BatchRange, Committer
from elastichost.worker.dense import FlatDense, describe_dense, initial_vector
from tests.worker.parameter_server import JOB, ThreadedServers


def test_buffers_spoilt_by_a_skipped_batch_are_brought_in_again(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    spec = describe_dense(model)
    arena = Arena.create(tmp_path, plan_layout(ModelSpec((), (), spec, 3, 1), 7, 1 << 24))
    store = DenseStore(arena)
    initial = initial_vector(model, spec)
    store.load(initial, None, 1, 0, 0)
    flat = FlatDense(model, spec, torch.device("cpu"))
    committer = Committer(ProcessId("worker", 0, 1), 7, DirectoryHolder(), flat, store, spec.elements, lambda: None)
    committer.refresh()
    model(torch.full((4, 3), torch.nan))  # its loss is not finite: nothing is committed, no newer version comes
    pushed = np.empty(spec.elements, dtype=np.float32)
    flat.zero_gradients()
    flat.write_push(pushed)
    assert np.isnan(pushed).any()
    committer.forget_vector()
    committer.refresh()
    flat.zero_gradients()
    flat.write_push(pushed)
    assert np.array_equal(pushed[spec.parameters :], initial[spec.parameters :])
    committer.close()
    arena.close()


def test_a_fetch_takes_the_acknowledgements_that_come_before_its_answer(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    spec = describe_dense(model)
    directory = tmp_path / "arena"
    directory.mkdir()
    arena = Arena.create(directory, plan_layout(ModelSpec((), (), spec, 3, 1), 7, 1 << 24))
    DenseStore(arena).load(initial_vector(model, spec), None, 1, 0, 0)
    servers = ThreadedServers(arena, tmp_path)
    flat = FlatDense(model, spec, torch.device("cpu"))
    committer = Committer(ProcessId("worker", 0, 1), JOB, servers.holder(), flat, None, spec.elements, lambda: None)
    committer.fetch()
    flat.zero_gradients()
    for start in (0, 4):
        committer.commit(BatchRange(1, 0, 0, start, start + 4, 4, 0), 1.0)
        committer.fetch()
    committer.settle()
    assert committer.progress() == (LeaseProgress(lease_id=1, stop=8, samples=8, skipped=0),)
    committer.close()
    servers.close()
    arena.close()
