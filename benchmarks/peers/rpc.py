"""A custom parameter server over torch.distributed.rpc: one worker, one server. It trains the small shape only.

The worker takes the unique ids of a batch, pulls their rows, and pushes one gradient for each. It holds the dense part
and runs Adam itself. A thread prepares unique ids and pulls one batch ahead; the worker waits for pushes only if two
are in flight. The server keeps all tables of one width as one tensor and applies row-wise Adagrad to all rows of a push
at once.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.distributed import rpc
from torch.nn import functional
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedTensor

from benchmarks.peers.common import Counter, PeerSettings, endless, fork_role
from benchmarks.peers.torch_parts import (
    INIT_BOUND,
    ROW_EPS,
    ROW_RATE,
    adam,
    build_network,
    dims_of,
    replace_collections,
    step_loss,
)
from benchmarks.workload.samples import Batch
from benchmarks.workload.shape import SMALL

__all__ = ["PulledCollection", "RowServer", "UniqueIds", "main"]

SERVER, WORKER = "server", "worker"
BATCHES_AHEAD = 1
PUSHES_ON_THE_WAY = 2
NEVER_S = 0.0  # means no timeout in torch rpc: an arm is stopped while others are measured


class RowServer:
    """All rows of the job: for each width, weights float32 [26 * 100,000, width] and one optimizer state per row."""

    def __init__(self, widths: list[int]) -> None:
        rows = SMALL.tables * SMALL.rows
        self._weights = [torch.empty(rows, width).uniform_(-INIT_BOUND, INIT_BOUND) for width in widths]
        self._states = [torch.zeros(rows) for _ in widths]

    def pull(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """rows int64 [n] -> float32 [n, width] for each width."""
        return [weights.index_select(0, rows) for weights in self._weights]

    def push(self, rows: torch.Tensor, gradients: list[torch.Tensor]) -> None:
        """rows int64 [n], unique; gradients float32 [n, width] for each width."""
        for weights, states, gradient in zip(self._weights, self._states, gradients, strict=True):
            state = states.index_select(0, rows).add_(gradient.square().mean(1))
            states.index_copy_(0, rows, state)
            rate = state.sqrt_().add_(ROW_EPS).reciprocal_().mul_(-ROW_RATE)
            weights.index_add_(0, rows, gradient.mul_(rate.unsqueeze(1)))


class UniqueIds:
    """Finds the unique rows of a batch in a few passes without sorting. Each position writes its number into a table
    over all rows; the position of the remaining number represents the row."""

    def __init__(self, batch_size: int) -> None:
        tables = torch.arange(SMALL.tables, dtype=torch.int64) * SMALL.rows
        self._first_rows = tables.repeat_interleave(batch_size)
        self._positions = torch.arange(len(self._first_rows), dtype=torch.int64)
        self._last_position = torch.empty(SMALL.tables * SMALL.rows, dtype=torch.int64)

    def __call__(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """ids int64 [26 * B], feature-major -> (unique rows int64 [n], index of each id's row int64 [26 * B])."""
        rows = ids + self._first_rows
        self._last_position[rows] = self._positions
        stands_for = self._last_position.index_select(0, rows)
        chosen = (stands_for == self._positions).nonzero().view(-1)
        number = torch.empty_like(rows)
        number[chosen] = self._positions[: len(chosen)]
        return rows.index_select(0, chosen), number.index_select(0, stands_for)


class PulledCollection(nn.Module):
    """Replaces a collection: looks ids up among the pulled rows. Its features are indices into these rows."""

    def __init__(self, replaced: EmbeddingBagCollection) -> None:
        super().__init__()
        self.dim = dims_of(replaced)[0]
        self._names = [name for config in replaced.embedding_bag_configs() for name in config.feature_names]
        self.rows = torch.empty(0)

    def load(self, rows: torch.Tensor) -> None:
        self.rows = rows.requires_grad_()

    def forward(self, numbers: torch.Tensor) -> KeyedTensor:
        """numbers int64 [B, 26]"""
        values = functional.embedding(numbers, self.rows).flatten(1)
        return KeyedTensor(keys=self._names, length_per_key=[self.dim] * len(self._names), values=values)


@dataclass(frozen=True, slots=True)
class _Pulled:
    batch: Batch
    rows: torch.Tensor
    numbers: torch.Tensor
    weights: list[torch.Tensor]


_server: RowServer | None = None


def _serve_pull(rows: torch.Tensor) -> list[torch.Tensor]:
    assert _server is not None
    return _server.pull(rows)


def _serve_push(rows: torch.Tensor, gradients: list[torch.Tensor]) -> None:
    assert _server is not None
    _server.push(rows, gradients)


def main(settings: PeerSettings) -> None:
    """Trains until it is killed."""
    with fork_role("server-0") as is_server:
        torch.set_num_threads(settings.threads)
        if is_server:
            _serve(settings)
        else:
            _train(settings)


def _join(settings: PeerSettings, name: str, rank: int) -> None:
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=4, rpc_timeout=NEVER_S, init_method=f"file://{settings.folder}/rpc"
    )
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)


def _serve(settings: PeerSettings) -> None:
    global _server  # rpc calls functions of a module, so their state must be global
    network = build_network(settings.model, SMALL)
    collections = [module for module in network.modules() if isinstance(module, EmbeddingBagCollection)]
    _server = RowServer([dims_of(collection)[0] for collection in collections])
    _join(settings, SERVER, 0)
    rpc.shutdown()  # blocks, because it waits for the worker, which never ends


def _train(settings: PeerSettings) -> None:
    network = build_network(settings.model, SMALL)
    collections = [
        made for made in replace_collections(network, PulledCollection) if isinstance(made, PulledCollection)
    ]
    optimizer = adam(network)
    _join(settings, WORKER, 1)
    ahead: queue.Queue[_Pulled] = queue.Queue(BATCHES_AHEAD)
    threading.Thread(target=_pull_ahead, args=(settings, ahead), daemon=True).start()
    counter = Counter(Path(settings.counter))
    pushes: list[torch.futures.Future[None]] = []
    while True:
        pulled = ahead.get()
        for collection, weights in zip(collections, pulled.weights, strict=True):
            collection.load(weights)
        loss = step_loss(network, pulled.batch, pulled.numbers)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        gradients = [collection.rows.grad for collection in collections]
        if len(pushes) == PUSHES_ON_THE_WAY:
            pushes.pop(0).wait()
        pushes.append(rpc.rpc_async(SERVER, _serve_push, args=(pulled.rows, gradients)))
        counter.add(0, settings.batch_size)


def _pull_ahead(settings: PeerSettings, ahead: queue.Queue[_Pulled]) -> None:
    torch.set_num_threads(settings.threads)
    unique = UniqueIds(settings.batch_size)
    for batch in endless(settings.open_batches()):
        rows, numbers = unique(torch.from_numpy(batch.ids))
        weights = rpc.rpc_sync(SERVER, _serve_pull, args=(rows,))
        by_sample = numbers.view(SMALL.tables, -1).t().contiguous()
        ahead.put(_Pulled(batch, rows, by_sample, weights))
