"""The elastic peer on Ray: Ray Train's TorchTrainer, which starts a new group of workers when one of them dies.

    python -m benchmarks.peers.ray_train_elastic CLUSTER MARKS STORAGE BATCH ROWS EVERY MOST

The network and its steps are those of `torchrun_elastic`. If the installed Ray Train supports an elastic
ScalingConfig, the group has 1 to MOST workers, else MOST. Rank 0 reports a checkpoint every EVERY steps. MARKS is a
file of int64 [32] in shared memory: the step, the number of groups that have trained, the size of the last group, its
pids.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.peers.torchrun_elastic import DENSE, FEATURES, Network

__all__ = ["GROUPS", "IS_ELASTIC", "MARKS", "PIDS", "STEP", "WORLD", "main"]

MARKS = 32
STEP, GROUPS, WORLD, IS_ELASTIC, PIDS = 0, 1, 2, 3, 8  # indices into MARKS; pids by rank from index PIDS on
STATE = "state.pt"


def train(told: Mapping[str, Any]) -> None:
    """Trains in every worker of a group until the worker is killed."""
    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(0)
    network = Network(told["rows"])
    model: torch.nn.Module = DistributedDataParallel(network) if world > 1 else network
    dense = [parameter for name, parameter in network.named_parameters() if not name.startswith("bags")]
    optimizers = (
        torch.optim.Adagrad(network.bags.parameters(), lr=0.05),
        torch.optim.Adam(dense, lr=1e-3),
    )
    step = _load(network, optimizers)
    marks = np.memmap(told["marks"], dtype=np.int64, mode="r+", shape=(MARKS,))
    marks[PIDS + rank] = os.getpid()
    torch.manual_seed(step * world + rank)
    is_first = True
    while True:
        ids = torch.randint(told["rows"], (told["batch_size"], FEATURES))
        logits = model(torch.randn(told["batch_size"], DENSE), ids)
        loss = functional.binary_cross_entropy_with_logits(logits, torch.rand(told["batch_size"]).round())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        if rank == 0:
            marks[STEP] = step
            if is_first:
                marks[WORLD] = world
                marks[GROUPS] += 1
        is_first = False
        if step % told["every"] == 0:
            _report(rank, step, network, optimizers)


def _report(rank: int, step: int, network: Network, optimizers: tuple[torch.optim.Optimizer, ...]) -> None:
    """Reports a step; every rank must call it. Rank 0 adds the checkpoint."""
    if rank != 0:
        ray.train.report({"step": step})
        return
    with tempfile.TemporaryDirectory() as folder:
        states = [optimizer.state_dict() for optimizer in optimizers]
        torch.save({"step": step, "network": network.state_dict(), "optimizers": states}, Path(folder) / STATE)
        ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def _load(network: Network, optimizers: tuple[torch.optim.Optimizer, ...]) -> int:
    """Loads the newest checkpoint and returns its step; 0 if there is none."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        saved = torch.load(Path(folder) / STATE, weights_only=True)
    network.load_state_dict(saved["network"])
    for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    return int(saved["step"])


def _scaling(most: int) -> tuple[ray.train.ScalingConfig, bool]:
    """The scaling configuration (one CPU for each worker), and whether it is elastic."""
    settings: dict[str, Any] = {"resources_per_worker": {"CPU": 1}, "placement_strategy": "SPREAD"}
    try:
        return ray.train.ScalingConfig(num_workers=(1, most), **settings), True
    except (TypeError, ValueError):
        return ray.train.ScalingConfig(num_workers=most, **settings), False


def main(cluster: str, marks_path: str, storage: str, *numbers: str) -> None:
    """Trains until it is killed."""
    batch_size, rows, every, most = map(int, numbers)
    scaling, is_elastic = _scaling(most)
    marks = np.memmap(marks_path, dtype=np.int64, mode="r+", shape=(MARKS,))
    marks[IS_ELASTIC] = is_elastic
    ray.init(address=cluster, log_to_driver=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"marks": marks_path, "batch_size": batch_size, "rows": rows, "every": every},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=scaling,
        run_config=ray.train.RunConfig(
            name="recovery",
            storage_path=storage,
            failure_config=ray.train.FailureConfig(max_failures=-1),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
