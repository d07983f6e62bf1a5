"""Commits of an emulated worker, with a real PS."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.emulation.commit import EmulatedCommit
from elastichost.specs import ModelSpec
from elastichost.wire.control import LeaseProgressMsg
from elastichost.worker.channels.channel import pump_nothing
from elastichost.worker.commit.lease_commit import BatchRange
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.worker.access import test_rows
from tests.worker.parameter_server import ThreadedServers


def test_a_fetch_takes_the_acknowledgements_that_come_before_its_answer(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    spec = describe_dense(model)
    directory = tmp_path / "arena"
    directory.mkdir()
    arena = Arena.create(directory, plan_layout(ModelSpec((), (), spec, 3, 1), 7, 1 << 24))
    DenseStore(arena).load(initial_vector(model, spec), None, 1, 0, 0)
    servers = ThreadedServers(arena, tmp_path)
    flat = FlatDense(model, spec, torch.device("cpu"))
    strategy = EmulatedCommit(servers.holder(test_rows.WORKER), pump_nothing, flat)
    strategy.fetch()
    flat.zero_gradients()
    for start in (0, 4):
        strategy.commit(BatchRange(1, 0, 0, start, start + 4, 4, 0, 0.0), 1.0)
        strategy.fetch()
    strategy.settle()
    assert strategy.progress() == (LeaseProgressMsg(lease_id=1, stop=8, samples=8, skipped=0),)
    assert strategy.samples_applied == 8
    strategy.close()
    servers.close()
    arena.close()
