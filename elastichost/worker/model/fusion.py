"""Replaces modules of torchrec's DLRM by versions that compute the same in fewer passes over memory.

The class of a module object is changed in place, as for embedding collections. Only objects whose class is exactly
torchrec's are changed: a user's subclass may define another forward. `model.fused = false` changes none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torchrec.models.dlrm import InteractionArch, SparseArch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from elastichost.arena.kernels import warm_narrow
from elastichost.arena.rows.tiles import configuration
from elastichost.config.job import JobSpec
from elastichost.gpu.availability import has_triton
from elastichost.specs import Precision
from elastichost.worker.model import dense_kernels, interaction_kernels, interaction_tiles
from elastichost.worker.model.interaction_kernels import LANES, ROOM, interact, interact_backward, interaction_width
from elastichost.worker.model.interaction_tiles import interact_tiles, interact_tiles_backward, suits_tiles
from elastichost.worker.model.kernel_calls import flat_array, untraced

__all__ = [
    "FusedInteractionArch",
    "FusedSparseArch",
    "fuse_modules",
    "interacting_collections",
    "layer_precision",
    "warm",
    "warm_bfloat16",
]


class _Interaction(torch.autograd.Function):
    """The dot interaction: dense [B, D], sparse [B, F, D] -> [B, D + (F + 1) F / 2] in the type of `dense`. All are
    float32, or `dense` is bfloat16 and `sparse` either. Its gradients cannot be differentiated again."""

    @staticmethod
    def forward(context: Any, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        dense, sparse = dense.contiguous(), sparse.contiguous()
        context.save_for_backward(dense, sparse)
        samples, fields, dim = sparse.shape[0], sparse.shape[1] + 1, sparse.shape[2]
        width = interaction_width(fields, dim)
        out = torch.empty(samples * width + ROOM, dtype=dense.dtype)
        arrays = flat_array(dense), flat_array(sparse), flat_array(out)
        if dense.dtype == torch.bfloat16 and suits_tiles(fields, dim):
            interact_tiles(*arrays, samples, fields, dim, configuration())
        else:
            interact(*arrays, samples, fields, dim)
        return out[: samples * width].view(samples, width)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense, sparse = context.saved_tensors
        dense_gradient, sparse_gradient = torch.empty_like(dense), torch.empty_like(sparse)
        samples, fields, dim = sparse.shape[0], sparse.shape[1] + 1, sparse.shape[2]
        inputs = flat_array(dense), flat_array(sparse), flat_array(gradients[0].contiguous())
        outputs = flat_array(dense_gradient), flat_array(sparse_gradient)
        if dense.dtype == torch.bfloat16 and suits_tiles(fields, dim):
            interact_tiles_backward(*inputs, *outputs, samples, fields, dim, configuration())
        else:
            interact_backward(*inputs, *outputs, samples, fields, dim)
        return dense_gradient, sparse_gradient


@untraced
def _interaction(dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = _Interaction.apply(dense, sparse)  # type: ignore[no-untyped-call]
    return output


class FusedInteractionArch(InteractionArch):
    """torchrec's `InteractionArch` with one kernel for each direction. On a GPU, and for other dtypes, torchrec's own
    forward runs."""

    def forward(self, dense_features: torch.Tensor, sparse_features: torch.Tensor) -> torch.Tensor:
        if sparse_features.dtype == torch.bfloat16 and dense_features.dtype == torch.float32:
            # the bottom layers are small and compute in float32
            dense_features = dense_features.to(torch.bfloat16)
        wanted = (dense_features.shape[0], self.F, dense_features.shape[-1])
        if self.F > 0 and sparse_features.shape == wanted:
            if _has_kernel(dense_features, sparse_features):
                return _interaction(dense_features, sparse_features)
            if _has_gpu_kernel(dense_features, sparse_features):
                return _gpu_interaction(dense_features, sparse_features)
        plain: torch.Tensor = super().forward(dense_features, sparse_features)
        return plain


def _has_kernel(dense: torch.Tensor, sparse: torch.Tensor) -> bool:
    if dense.device.type != "cpu" or sparse.device.type != "cpu":
        return False
    if dense.dtype == torch.float32:
        return sparse.dtype == torch.float32
    narrow = sparse.dtype in (torch.float32, torch.bfloat16)
    return dense.dtype == torch.bfloat16 and narrow and dense.shape[-1] % LANES == 0


def _has_gpu_kernel(dense: torch.Tensor, sparse: torch.Tensor) -> bool:
    if dense.device.type != "cuda" or dense.dtype != sparse.dtype or not has_triton():
        return False
    from elastichost.gpu.interaction_kernels import suits_interaction

    return dense.dtype in (torch.float32, torch.bfloat16) and suits_interaction(sparse.shape[1], dense.shape[-1])


@untraced
def _gpu_interaction(dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    from elastichost.gpu.interaction_kernels import interact  # imports Triton, which a CPU installation lacks

    return interact(dense, sparse)


class FusedSparseArch(SparseArch):
    """torchrec's `SparseArch` that uses the pooled vectors without splitting and concatenating them, when the
    collection already gives them in the required order."""

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        pooled: KeyedTensor = self.embedding_bag_collection(features)
        if list(pooled.keys()) == self.sparse_feature_names:
            fields: torch.Tensor = pooled.values().reshape(-1, self.F, self.D)
            return fields
        parts = pooled.to_dict()
        return torch.cat([parts[name] for name in self.sparse_feature_names], dim=1).reshape(-1, self.F, self.D)


_REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    InteractionArch: FusedInteractionArch,
    SparseArch: FusedSparseArch,
}


def layer_precision(job: JobSpec) -> Precision | None:
    """The precision of the model's fused linear layers. None: they stay torch's, and `torch.autocast` alone makes them
    compute in bfloat16."""
    return job.train.precision if job.model.fused else None


def interacting_collections(model: nn.Module) -> list[str]:
    """Paths of the collections whose pooled vectors go to a fused interaction and to nothing else: these may give
    bfloat16 without a loss, because the interaction rounds its inputs to bfloat16 anyway."""
    return [
        f"{path}.embedding_bag_collection" if path else "embedding_bag_collection"
        for path, module in model.named_modules()
        if type(module) is FusedSparseArch
    ]


def fuse_modules(model: nn.Module) -> int:
    """Replaces all modules that have a faster version, in place. Returns the number of replaced modules."""
    found = [module for module in model.modules() if type(module) in _REPLACEMENTS]
    for module in found:
        module.__class__ = _REPLACEMENTS[type(module)]
    return len(found)


def warm() -> None:
    """Compiles the kernels that every job may use, or loads them from the cache on disk."""
    dense_kernels.warm()
    interaction_kernels.warm()


def warm_bfloat16() -> None:
    """Compiles all kernels of a job that computes in bfloat16, or loads them from the cache on disk."""
    warm_narrow()
    dense_kernels.warm_narrow()
    interaction_kernels.warm_narrow()
    interaction_tiles.warm()
