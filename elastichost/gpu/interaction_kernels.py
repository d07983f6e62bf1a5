"""The dot interaction of a DLRM on a GPU: one kernel for the forward pass, one for the backward pass.

For each sample, with x_0 the dense vector and x_1 to x_F the pooled vectors, the output is x_0 followed by the
products x_i . x_j of all pairs i < j, in the order of torchrec's `InteractionArch`. The products of a sample are one
small matrix product on the tensor cores, X X^T. The backward pass is another, (S + S^T) X with S the gradients of the
products.
"""

from __future__ import annotations

from typing import Any

import torch

from elastichost.gpu.compiled import IS_INTERPRETED, ceil_divide, kernel, tl

__all__ = ["constants_of", "interact", "interaction_width", "suits_interaction"]

MOST_VECTORS = 64


@kernel
def _load_vectors(  # type: ignore[no-untyped-def]
    dense, sparse, sample, is_sample, FIELDS: tl.constexpr, VECTORS: tl.constexpr, DIM: tl.constexpr
):
    """x of each sample: [N, VECTORS, DIM]; zeros beyond the last vector."""
    vector = tl.arange(0, VECTORS)[None, :, None]
    lane = tl.arange(0, DIM)[None, None, :]
    number = sample[:, None, None].to(tl.int64)
    inside = is_sample[:, None, None]
    first = tl.load(dense + number * DIM + lane + vector * 0, mask=inside & (vector == 0), other=0.0)
    others = sparse + (number * FIELDS + vector - 1) * DIM + lane
    rest = tl.load(others, mask=inside & (vector > 0) & (vector <= FIELDS), other=0.0)
    return first.to(tl.float32) + rest.to(tl.float32)


@kernel
def _round(values, IN_FLOAT32: tl.constexpr):  # type: ignore[no-untyped-def]
    """The values as bfloat16. IN_FLOAT32: in the type float32, because Triton's interpreter cannot multiply
    bfloat16."""
    rounded = values.to(tl.bfloat16)
    if IN_FLOAT32:
        rounded = rounded.to(tl.float32)
    return rounded


@kernel
def _interact(  # type: ignore[no-untyped-def]
    dense,
    sparse,
    output,
    samples,
    FIELDS: tl.constexpr,
    VECTORS: tl.constexpr,
    DIM: tl.constexpr,
    SAMPLES: tl.constexpr,
    NARROW: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    sample = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    is_sample = sample < samples
    x = _load_vectors(dense, sparse, sample, is_sample, FIELDS, VECTORS, DIM)
    if NARROW:
        x = _round(x, IN_FLOAT32)
    products = tl.dot(x, tl.permute(x, (0, 2, 1)), input_precision="ieee")
    width = DIM + (FIELDS + 1) * FIELDS // 2
    i, j = tl.arange(0, VECTORS)[None, :, None], tl.arange(0, VECTORS)[None, None, :]
    line = sample[:, None, None].to(tl.int64) * width
    at = line + DIM + i * (FIELDS + 1) - i * (i + 1) // 2 + j - i - 1
    is_pair = (i < j) & (j <= FIELDS) & is_sample[:, None, None]
    kind = output.dtype.element_ty
    tl.store(output + at, products.to(kind), mask=is_pair)
    lane = tl.arange(0, DIM)[None, :]
    whole = is_sample[:, None] & (lane < DIM)
    copied = tl.load(dense + sample[:, None].to(tl.int64) * DIM + lane, mask=whole, other=0.0)
    tl.store(output + sample[:, None].to(tl.int64) * width + lane, copied.to(kind), mask=whole)


@kernel
def _interact_backward(  # type: ignore[no-untyped-def]
    dense,
    sparse,
    gradient,
    dense_gradient,
    sparse_gradient,
    samples,
    stride,
    FIELDS: tl.constexpr,
    VECTORS: tl.constexpr,
    DIM: tl.constexpr,
    SAMPLES: tl.constexpr,
    NARROW: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    sample = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    is_sample = sample < samples
    x = _load_vectors(dense, sparse, sample, is_sample, FIELDS, VECTORS, DIM)
    i, j = tl.arange(0, VECTORS)[None, :, None], tl.arange(0, VECTORS)[None, None, :]
    low, high = tl.minimum(i, j), tl.maximum(i, j)
    line = sample[:, None, None].to(tl.int64) * stride
    at = line + DIM + low * (FIELDS + 1) - low * (low + 1) // 2 + high - low - 1
    is_pair = (i != j) & (high <= FIELDS) & is_sample[:, None, None]
    pairs = tl.load(gradient + at, mask=is_pair, other=0.0).to(tl.float32)
    if NARROW:
        x, pairs = _round(x, IN_FLOAT32), _round(pairs, IN_FLOAT32)
    found = tl.dot(pairs, x, input_precision="ieee")
    vector, lane = tl.arange(0, VECTORS)[None, :, None], tl.arange(0, DIM)[None, None, :]
    number = sample[:, None, None].to(tl.int64)
    inside = is_sample[:, None, None]
    is_dense = inside & (vector == 0) & (lane < DIM)
    direct = tl.load(gradient + number * stride + lane + vector * 0, mask=is_dense, other=0.0).to(tl.float32)
    found += direct
    tl.store(
        dense_gradient + number * DIM + lane + vector * 0, found.to(dense_gradient.dtype.element_ty), mask=is_dense
    )
    place = sparse_gradient + (number * FIELDS + vector - 1) * DIM + lane
    is_sparse = inside & (vector > 0) & (vector <= FIELDS)
    tl.store(place, found.to(sparse_gradient.dtype.element_ty), mask=is_sparse)


class _DotInteraction(torch.autograd.Function):
    """dense [B, D], sparse [B, F, D] -> [B, D + (F + 1) F / 2] in the type of `dense`. Its gradients cannot be
    differentiated again."""

    @staticmethod
    def forward(context: Any, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        dense, sparse = dense.contiguous(), sparse.contiguous()
        context.save_for_backward(dense, sparse)
        samples, fields, dim = sparse.shape
        output = dense.new_empty(samples, interaction_width(fields, dim))
        constants = constants_of(fields, dim, dense.dtype)
        grid = (ceil_divide(samples, constants["SAMPLES"]),)
        _interact[grid](dense, sparse, output, samples, **constants)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense, sparse = context.saved_tensors
        samples, fields, dim = sparse.shape
        dense_gradient, sparse_gradient = torch.empty_like(dense), torch.empty_like(sparse)
        constants = constants_of(fields, dim, dense.dtype)
        grid = (ceil_divide(samples, constants["SAMPLES"]),)
        gradient = gradients[0] if gradients[0].stride(1) == 1 else gradients[0].contiguous()
        outputs = dense_gradient, sparse_gradient
        _interact_backward[grid](dense, sparse, gradient, *outputs, samples, gradient.stride(0), **constants)
        return dense_gradient, sparse_gradient


def constants_of(fields: int, dim: int, dtype: torch.dtype) -> dict[str, Any]:
    """The constants of both kernels for this shape."""
    vectors = 16
    while vectors < fields + 1:
        vectors *= 2
    samples = max(1, 8192 // (vectors * max(vectors, dim)))
    return {
        "FIELDS": fields,
        "VECTORS": vectors,
        "DIM": dim,
        "SAMPLES": samples,
        "NARROW": dtype == torch.bfloat16,
        "IN_FLOAT32": IS_INTERPRETED,
        "num_warps": 4,
    }


def interaction_width(fields: int, dim: int) -> int:
    """Columns of the output for `fields` pooled vectors of `dim` elements."""
    return dim + (fields + 1) * fields // 2


def suits_interaction(fields: int, dim: int) -> bool:
    """Whether the kernels take so many pooled vectors of this dim."""
    return 1 <= fields < MOST_VECTORS and dim in (16, 32, 64, 128)


def interact(dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    """dense [B, D], sparse [B, F, D] -> [B, D + (F + 1) F / 2] in the type of `dense`: float32, or bfloat16 with which
    the products are rounded inputs and float32 sums."""
    output: torch.Tensor = _DotInteraction.apply(dense, sparse)
    return output
