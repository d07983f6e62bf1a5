"""Kernels of linear layers on a GPU that torch has not: the mask of a ReLU and the gradient of a bias in one pass."""

from __future__ import annotations

import torch

from elastichost.gpu.compiled import ceil_divide, kernel, tl

__all__ = ["mask_and_sum"]

_ROWS, _COLUMNS = 128, 64  # of the part that one program handles


@kernel
def _mask_and_sum(  # type: ignore[no-untyped-def]
    gradient,
    output,
    masked,
    sums,
    rows,
    columns,
    stride,
    HAS_RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    value = tl.load(gradient + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)
    if HAS_RELU:
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        is_open = tl.load(output + at, mask=inside, other=0.0).to(tl.float32) > 0.0
        value = tl.where(is_open, value.to(tl.float32), 0.0)
        tl.store(masked + at, value.to(masked.dtype.element_ty), mask=inside)
    total = tl.sum(value.to(tl.float32), axis=0)
    tl.store(sums + tl.program_id(0) * columns + column, total, mask=column < columns)


def mask_and_sum(gradient: torch.Tensor, output: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """(the gradient where the output of the ReLU is above 0, the sum of its rows float32 [columns]). output:
    contiguous; None: there is no ReLU, and the gradient is returned as it is."""
    rows, columns = gradient.shape
    gradient = gradient if gradient.stride(1) == 1 else gradient.contiguous()
    masked = gradient if output is None else torch.empty_like(output)
    blocks = ceil_divide(rows, _ROWS)
    sums = torch.empty((blocks, columns), device=gradient.device)
    grid = (blocks, ceil_divide(columns, _COLUMNS))
    of_relu = gradient if output is None else output
    sizes = (rows, columns, gradient.stride(0))
    _mask_and_sum[grid](
        gradient, of_relu, masked, sums, *sizes, HAS_RELU=output is not None, ROWS=_ROWS, COLUMNS=_COLUMNS
    )
    return masked, sums.sum(0)
