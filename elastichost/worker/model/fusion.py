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

from elastichost.worker.model.interaction_kernels import interact, interact_backward, interaction_width

__all__ = ["FusedInteractionArch", "FusedSparseArch", "fuse_modules"]


class _Interaction(torch.autograd.Function):
    """The dot interaction: dense float32 [B, D], sparse float32 [B, F, D] -> float32 [B, D + (F + 1) F / 2]. Its
    gradients cannot be differentiated again."""

    @staticmethod
    def forward(context: Any, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        dense, sparse = dense.contiguous(), sparse.contiguous()
        context.save_for_backward(dense, sparse)
        samples, fields, dim = sparse.shape[0], sparse.shape[1] + 1, sparse.shape[2]
        out = torch.empty(samples, interaction_width(fields, dim))
        interact(_flat(dense), _flat(sparse), _flat(out), samples, fields, dim)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense, sparse = context.saved_tensors
        dense_gradient, sparse_gradient = torch.empty_like(dense), torch.empty_like(sparse)
        interact_backward(
            _flat(dense),
            _flat(sparse),
            _flat(gradients[0].contiguous()),
            _flat(dense_gradient),
            _flat(sparse_gradient),
            sparse.shape[0],
            sparse.shape[1] + 1,
            sparse.shape[2],
        )
        return dense_gradient, sparse_gradient


def _flat(tensor: torch.Tensor) -> Any:
    return tensor.detach().view(-1).numpy()


class FusedInteractionArch(InteractionArch):
    """torchrec's `InteractionArch` with one kernel for each direction. On a GPU, and for other dtypes, torchrec's own
    forward runs."""

    def forward(self, dense_features: torch.Tensor, sparse_features: torch.Tensor) -> torch.Tensor:
        wanted = (dense_features.shape[0], self.F, dense_features.shape[-1])
        if self.F > 0 and sparse_features.shape == wanted and _is_plain(dense_features) and _is_plain(sparse_features):
            fused: torch.Tensor = _Interaction.apply(dense_features, sparse_features)  # type: ignore[no-untyped-call]
            return fused
        plain: torch.Tensor = super().forward(dense_features, sparse_features)
        return plain


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


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


def fuse_modules(model: nn.Module) -> int:
    """Replaces all modules that have a faster version, in place. Returns the number of replaced modules."""
    found = [module for module in model.modules() if type(module) in _REPLACEMENTS]
    for module in found:
        module.__class__ = _REPLACEMENTS[type(module)]
    return len(found)
