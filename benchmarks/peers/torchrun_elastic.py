"""The elastic peer: DistributedDataParallel under torchrun, restarted from its checkpoint when a process dies.

    python -m torch.distributed.run ... -m benchmarks.peers.torchrun_elastic MARKS CHECKPOINT BATCH ROWS EVERY

It trains the dense network of a DLRM over one EmbeddingBag (26 features of ROWS ids, dim 16, sparse gradients) with
gloo, one thread for each process, and random batches. Rank 0 writes a checkpoint every EVERY steps; a starting process
loads the newest one. MARKS is a file of int64 [8] in shared memory: the number of steps of each rank, the incarnation
of each rank that trains, the global step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

__all__ = ["INCARNATIONS", "STEP", "STEPS", "main"]

FEATURES, DIM, DENSE = 26, 16, 13
STEPS, INCARNATIONS, STEP = (
    0,
    2,
    4,
)  # indices into MARKS: steps of ranks 0 and 1, their incarnations that have trained, the global step


class Network(nn.Module):
    """Bottom MLP, dot interaction, top MLP, as in `elastichost.models.dlrm` with the sizes of the synthetic example."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(FEATURES * rows, DIM, mode="sum", sparse=True)
        self.bottom = nn.Sequential(nn.Linear(DENSE, 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU())
        pairs = (FEATURES + 1) * FEATURES // 2
        self.top = nn.Sequential(nn.Linear(pairs + DIM, 64), nn.ReLU(), nn.Linear(64, 1))
        self.first: torch.Tensor
        self.lower: torch.Tensor
        self.register_buffer("first", torch.arange(FEATURES) * rows, persistent=False)
        self.register_buffer("lower", torch.tril_indices(FEATURES + 1, FEATURES + 1, -1), persistent=False)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """dense float32 [B, 13], ids int64 [B, 26] -> logits [B]"""
        low = self.bottom(dense)
        rows = self.bags((ids + self.first).view(-1, 1)).view(len(dense), FEATURES, DIM)
        both = torch.cat((low.unsqueeze(1), rows), dim=1)
        dots = torch.bmm(both, both.transpose(1, 2))[:, self.lower[0], self.lower[1]]
        logits: torch.Tensor = self.top(torch.cat((low, dots), dim=1)).view(-1)
        return logits


def main(marks_path: str, checkpoint: str, batch_size: int, rows: int, every: int) -> None:
    """Trains until it is killed."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    network = Network(rows)
    model = DistributedDataParallel(network)
    of_rows = torch.optim.Adagrad(network.bags.parameters(), lr=0.05)
    dense = [parameter for name, parameter in network.named_parameters() if not name.startswith("bags")]
    of_dense = torch.optim.Adam(dense, lr=1e-3)
    step = _load(Path(checkpoint), network, of_rows, of_dense)
    marks = np.memmap(marks_path, dtype=np.int64, mode="r+", shape=(8,))
    torch.manual_seed(time.monotonic_ns() + rank)
    is_first = True
    while True:
        ids = torch.randint(rows, (batch_size, FEATURES))
        logits = model(torch.randn(batch_size, DENSE), ids)
        loss = functional.binary_cross_entropy_with_logits(logits, torch.rand(batch_size).round())
        for optimizer in (of_rows, of_dense):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (of_rows, of_dense):
            optimizer.step()
        step += 1
        marks[STEPS + rank] += 1
        if is_first:
            marks[INCARNATIONS + rank] += 1
            is_first = False
        if rank == 0:
            marks[STEP] = step
            if step % every == 0:
                _save(Path(checkpoint), step, network, of_rows, of_dense)


def _save(path: Path, step: int, network: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    making = path.with_suffix(".new")
    states = [optimizer.state_dict() for optimizer in optimizers]
    torch.save({"step": step, "network": network.state_dict(), "optimizers": states}, making)
    os.replace(making, path)


def _load(path: Path, network: nn.Module, *optimizers: torch.optim.Optimizer) -> int:
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    network.load_state_dict(saved["network"])
    for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    return int(saved["step"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
