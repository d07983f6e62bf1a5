"""Linear layers of a model on a GPU, with bfloat16 products and float32 parameters.

Bias and ReLU are part of the product. The layers compute with a bfloat16 copy of the parameters, which the optimizer
writes (`dense_updates`), so no step converts weights. The backward pass adds the gradients of weights as float32
straight to their places in the flat gradient.

Only the worker's backward pass writes gradients; in any other, such as a `torch.autograd.grad` of the user's model, a
layer returns them to autograd.

Only layers whose class is exactly `torch.nn.Linear` are changed. A ReLU is fused where it follows such a layer in
torchrec's `Perceptron`. Everything else runs under `torch.autocast`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torchrec.modules.mlp import Perceptron

from elastichost.gpu.dense_kernels import mask_and_sum

__all__ = ["NarrowLinear", "NarrowPerceptron", "narrow_layers"]

_ALIGNED_COLUMNS = 8  # bfloat16 elements in 16 bytes


class GradientWriter(Protocol):
    """Whether the worker's own backward pass runs (`worker.model.weight_gradient.BackwardPass`)."""

    is_running: bool


class _NarrowProduct(torch.autograd.Function):
    """relu(x W^T + b), or without ReLU: x [B, I] -> bfloat16 [B, O]."""

    @staticmethod
    def forward(
        context: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: NarrowLinear,
        has_relu: bool,
    ) -> torch.Tensor:
        aligned = _aligned(inputs)
        low = layer.aligned_weight()
        if layer.low_bias is None:
            output = torch.mm(aligned, low.t())
            if has_relu:
                output.relu_()
        elif has_relu:
            output = torch._addmm_activation(layer.low_bias, aligned, low.t())
        else:
            output = torch.addmm(layer.low_bias, aligned, low.t())
        context.save_for_backward(inputs, weight, aligned, output if has_relu else None)
        context.layer, context.low = layer, low  # not saved: a second use of the layer writes the same copy again
        return output

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        layer: NarrowLinear = context.layer
        inputs, weight, aligned, output = context.saved_tensors
        wanted = context.needs_input_grad
        if torch.is_grad_enabled() or not layer.writes_gradients:
            return *_returned_gradients(gradients[0], inputs, weight, output, wanted), None, None
        gradient, sums = mask_and_sum(gradients[0], output)
        if layer.weight.grad is not None:
            _add_product(gradient.t(), aligned, layer.weight.grad)
        if layer.bias is not None and layer.bias.grad is not None:
            layer.bias.grad.add_(sums)
        of_inputs = torch.mm(gradient, context.low)[:, : layer.in_features].to(inputs.dtype) if wanted[0] else None
        return of_inputs, None, None, None, None


def _returned_gradients(
    gradient: torch.Tensor,
    inputs: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of x, W and b for another backward pass than the worker's, in operations that autograd can
    differentiate."""
    masked = gradient if output is None else gradient * (output > 0)
    return (
        (masked @ weight.to(masked.dtype)).to(inputs.dtype) if wanted[0] else None,
        (masked.t() @ inputs.to(masked.dtype)).to(weight.dtype) if wanted[1] else None,
        masked.sum(0, dtype=weight.dtype) if wanted[2] else None,
    )


def _aligned(inputs: torch.Tensor) -> torch.Tensor:
    """x as bfloat16 with a multiple of eight columns, the last ones zeros. With other widths the products take several
    times as long: 183 instead of 68 microseconds for 367 columns (H200)."""
    rows, columns = inputs.shape
    padded = _padded(columns)
    if padded == columns:
        return inputs.to(torch.bfloat16).contiguous()
    wide = torch.zeros((rows, padded), dtype=torch.bfloat16, device=inputs.device)
    wide[:, :columns].copy_(inputs)
    return wide


def _padded(columns: int) -> int:
    return -(-columns // _ALIGNED_COLUMNS) * _ALIGNED_COLUMNS


def _add_product(left: torch.Tensor, right: torch.Tensor, total: torch.Tensor) -> None:
    """total float32 += left @ right, with float32 sums, for the columns that `total` has. A layer that is used twice
    has two products."""
    if left.device.type != "cuda":
        total.add_((left @ right)[:, : total.shape[1]])
    elif total.shape[1] == right.shape[1]:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    else:
        total.add_(torch.mm(left, right, out_dtype=torch.float32)[:, : total.shape[1]])


class NarrowLinear(nn.Linear):
    """A linear layer of this module. low_weight, low_bias: the bfloat16 copies of its parameters. wide_weight: room for
    a copy with aligned rows; None if the rows of `low_weight` are."""

    low_weight: torch.Tensor
    low_bias: torch.Tensor | None
    wide_weight: torch.Tensor | None
    backward_pass: GradientWriter

    @property
    def writes_gradients(self) -> bool:
        """Whether the backward pass that runs now writes the gradients of this layer, and not autograd."""
        parameters = [self.weight] if self.bias is None else [self.weight, self.bias]
        return self.backward_pass.is_running and not any(
            one._backward_hooks or one._post_accumulate_grad_hooks for one in parameters
        )

    def aligned_weight(self) -> torch.Tensor:
        """The bfloat16 weight [O, I rounded up to a multiple of eight]."""
        if self.wide_weight is None:
            return self.low_weight
        self.wide_weight[:, : self.in_features].copy_(self.low_weight)
        return self.wide_weight

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        """float [..., I] -> bfloat16 [..., O]."""
        return self.product(input, has_relu=False)

    def product(self, inputs: torch.Tensor, *, has_relu: bool) -> torch.Tensor:
        """As `forward`, with ReLU if `has_relu`."""
        if inputs.shape[-1:] != (self.in_features,):
            return super().forward(inputs)  # raises torch's error about the shapes
        given = inputs.reshape(-1, self.in_features)
        with torch.autocast(inputs.device.type, enabled=False):
            output: torch.Tensor = _NarrowProduct.apply(given, self.weight, self.bias, self, has_relu)
        return output.view(*inputs.shape[:-1], self.out_features)


class NarrowPerceptron(Perceptron):
    """torchrec's `Perceptron` whose layer is a `NarrowLinear` and whose activation is ReLU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        layer: NarrowLinear = self._linear
        return layer.product(input, has_relu=True)


def narrow_layers(model: nn.Module, values: torch.Tensor, low: torch.Tensor, backward_pass: GradientWriter) -> None:
    """Replaces the linear layers of a model, in place. values: float32 [n], of which the parameters are views. low:
    bfloat16 [n], the copy of the parameters that the caller keeps up to date."""
    for module in list(model.modules()):
        if type(module) is nn.Linear:
            module.__class__ = NarrowLinear
            object.__setattr__(module, "low_weight", _copy_of(module.weight, values, low))
            padded = _padded(module.in_features)
            is_odd = padded != module.in_features
            wide = low.new_zeros((module.out_features, padded)) if is_odd else None
            object.__setattr__(module, "wide_weight", wide)
            object.__setattr__(module, "backward_pass", backward_pass)
            object.__setattr__(module, "low_bias", None if module.bias is None else _copy_of(module.bias, values, low))
    for module in list(model.modules()):
        is_relu = type(module) is Perceptron and module._activation_fn is torch.relu
        if is_relu and type(module._linear) is NarrowLinear:
            module.__class__ = NarrowPerceptron


def _copy_of(parameter: torch.Tensor, values: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    start = (parameter.data_ptr() - values.data_ptr()) // values.element_size()
    return low[start : start + parameter.numel()].view(parameter.shape)
