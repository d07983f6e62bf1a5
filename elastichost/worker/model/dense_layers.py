"""Linear layers that compute in bfloat16 with float32 parameters (`train.precision = "bfloat16"`, on a CPU).

Rules
1. Parameters, their gradients and the optimizer's state are float32. Layers compute with a bfloat16 copy of the
   parameters, which is made once for each version of them (`FlatDense.loaded`), and not in each step as
   `torch.autocast` does.
2. Activations stay bfloat16 between layers. Bias and ReLU are part of the matrix product's kernel.
3. Gradients of weights are summed in float32 within a product, rounded once, and written as float32
   (`weight_gradient`).
4. A layer with few outputs, such as the one that gives the logits, and a small layer compute in float32: they would
   gain nothing, and scores keep their resolution.

Only layers whose class is exactly `torch.nn.Linear` are changed, wherever they are in the user's model. A ReLU is fused
where it follows such a layer in a `torch.nn.Sequential` or in torchrec's `Perceptron`, and no hook would miss it.
Everything else runs under `torch.autocast`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torchrec.modules.mlp import Perceptron

from elastichost.worker.model.dense_kernels import SPARE, mask_and_transpose
from elastichost.worker.model.kernel_calls import flat_array, untraced
from elastichost.worker.model.weight_gradient import WeightGradient

__all__ = ["BfloatLinear", "BfloatPerceptron", "BfloatSequential", "use_bfloat16"]

FEW_OUTPUTS = 8
SMALL = 64  # a layer with at most so many inputs and outputs is as fast in float32


class _Product(torch.autograd.Function):
    """relu(x W^T + b), or without ReLU: x bfloat16 [B, I] -> bfloat16 [B, O]. The gradient of the weight goes to its
    `WeightGradient`, that of the bias is added to its `grad`; autograd sees the gradient of x only. Cannot be
    differentiated again."""

    @staticmethod
    def forward(
        context: Any, inputs: torch.Tensor, weight: torch.Tensor, layer: BfloatLinear, has_relu: bool
    ) -> torch.Tensor:
        # `weight` is an argument so that autograd calls `backward` although x may need no gradient
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, layer.low_weight, layer.low_bias, "relu" if has_relu else "none", [], ""
        )
        context.save_for_backward(inputs, output if has_relu else None)
        context.layer, context.has_relu = layer, has_relu
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        inputs, output = context.saved_tensors
        layer: BfloatLinear = context.layer
        gradient = gradients[0].contiguous()
        rows, columns = gradient.shape
        masked = torch.empty_like(gradient) if context.has_relu else gradient
        transposed = torch.empty((columns, rows + SPARE), dtype=torch.bfloat16)
        sums = torch.empty(columns)
        mask_and_transpose(
            flat_array(gradient),
            flat_array(output) if context.has_relu else flat_array(gradient),
            flat_array(masked),
            flat_array(transposed),
            flat_array(sums),
            rows,
            columns,
            rows + SPARE,
            context.has_relu,
        )
        if layer.weight_gradient is not None:
            layer.weight_gradient.add(transposed[:, :rows] @ inputs)
        if layer.bias is not None and layer.bias.grad is not None:
            layer.bias.grad.add_(sums)
        return (masked @ layer.low_weight if context.needs_input_grad[0] else None), None, None, None


@untraced
def _product(inputs: torch.Tensor, layer: BfloatLinear, has_relu: bool) -> torch.Tensor:
    output: torch.Tensor = _Product.apply(inputs, layer.weight, layer, has_relu)  # type: ignore[no-untyped-call]
    return output


class BfloatLinear(nn.Linear):
    """A linear layer of rules 1 to 4. low_weight, low_bias: bfloat16 copies of the parameters. weight_gradient: None
    for a frozen weight, and for a layer that computes in float32."""

    low_weight: torch.Tensor
    low_bias: torch.Tensor | None
    weight_gradient: WeightGradient | None

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        """float [..., I] -> bfloat16 [..., O]; float32 with few outputs, or if it is small."""
        return self.product(input, has_relu=False)

    @property
    def is_float32(self) -> bool:
        """Rule 4."""
        return self.out_features <= FEW_OUTPUTS or max(self.in_features, self.out_features) <= SMALL

    def product(self, inputs: torch.Tensor, *, has_relu: bool) -> torch.Tensor:
        """As `forward`, with ReLU if `has_relu`."""
        if self.is_float32:
            with torch.autocast("cpu", enabled=False):
                few = functional.linear(inputs.float(), self.weight, self.bias)
            return few.relu() if has_relu else few
        flat = inputs.to(torch.bfloat16).reshape(-1, self.in_features).contiguous()
        output = _product(flat, self, has_relu)
        return output.view(*inputs.shape[:-1], self.out_features)


class BfloatPerceptron(Perceptron):
    """torchrec's `Perceptron` whose layer is a `BfloatLinear` and whose activation is ReLU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        layer: BfloatLinear = self._linear
        return layer.product(input, has_relu=True)


class BfloatSequential(nn.Sequential):
    """A `Sequential` that fuses each ReLU behind a `BfloatLinear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        inputs, modules, at = input, list(self), 0
        while at < len(modules):
            module = modules[at]
            if isinstance(module, BfloatLinear) and _is_fusible(module) and _is_relu(modules[at + 1 : at + 2]):
                inputs, at = module.product(inputs, has_relu=True), at + 2
            else:
                inputs, at = module(inputs), at + 1
        return inputs


def _is_fusible(module: object) -> bool:
    return type(module) is BfloatLinear and not _has_hooks(module)


def _is_relu(modules: Sequence[nn.Module]) -> bool:
    """Whether this is one ReLU that no hook observes."""
    return len(modules) == 1 and type(modules[0]) is nn.ReLU and not _has_hooks(modules[0])


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def use_bfloat16(model: nn.Module, values: torch.Tensor, low: torch.Tensor) -> list[WeightGradient]:
    """Makes the linear layers of a model compute in bfloat16, in place. Returns the gradients of their weights, in the
    order of the flat vector: the caller begins and completes them in each step.

    values: float32 [n], of which the parameters are views. low: bfloat16 [n or fewer], the copy of the parameters,
    which the caller keeps up to date.
    """
    gradients: dict[int, WeightGradient] = {}  # by position: layers may share a weight
    layers = [
        module
        for module in model.modules()
        if type(module) is nn.Linear and isinstance(module._parameters.get("weight"), nn.Parameter)
    ]
    for layer in layers:
        layer.__class__ = BfloatLinear
        # plain attributes, which belong to no state_dict
        object.__setattr__(layer, "low_weight", _copy_of(layer.weight, values, low))
        bias = None if layer.bias is None else _copy_of(layer.bias, values, low)
        object.__setattr__(layer, "low_bias", bias)
        gradient = None
        if isinstance(layer, BfloatLinear) and layer.weight.requires_grad and not layer.is_float32:
            start = _position(layer.weight, values)
            gradient = gradients.setdefault(start, WeightGradient(layer.weight, start))
        object.__setattr__(layer, "weight_gradient", gradient)
    for module in model.modules():
        if type(module) is nn.Sequential:
            module.__class__ = BfloatSequential
        elif type(module) is Perceptron and module._activation_fn is torch.relu and _is_fusible(module._linear):
            module.__class__ = BfloatPerceptron
    return [gradients[start] for start in sorted(gradients)]


def _position(parameter: torch.Tensor, values: torch.Tensor) -> int:
    """The position in `values` at which this parameter, a view of it, begins."""
    return (parameter.data_ptr() - values.data_ptr()) // values.element_size()


def _copy_of(parameter: torch.Tensor, values: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """The part of `low` that is the copy of this parameter."""
    offset = _position(parameter, values)
    return low[offset : offset + parameter.numel()].view(parameter.shape)
