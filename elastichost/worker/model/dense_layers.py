"""Linear layers in fewer passes over memory, in float32 or bfloat16, with float32 parameters, on a CPU.

Rules
1. Bias and ReLU are part of a layer's product. Its backward pass masks and sums the gradient of the output in one pass,
   and writes the gradient of the weight to its place (`weight_gradient`).
2. Parameters, their gradients and the optimizer's state are float32. With `train.precision = "bfloat16"`, layers
   compute with a bfloat16 copy of the parameters, which is made once for each version of them (`FlatDense.loaded`),
   and not in each step as `torch.autocast` does. Activations stay bfloat16 between layers.
3. With bfloat16, gradients of weights are summed in float32 within a product, rounded once, and written as float32.
4. With bfloat16, a layer with few outputs, such as the one that gives the logits, and a small layer compute in float32
   all the same: they would gain nothing, and scores keep their resolution.
5. Only the worker's backward pass writes gradients. In any other, such as a `torch.autograd.grad` in the user's model,
   a layer computes with torch's own operations, and can be differentiated again. So does a layer whose parameters have
   hooks.

Only layers whose class is exactly `torch.nn.Linear` are changed, wherever they are in the user's model, but for what
the user compiled with `torch.compile`. A ReLU is fused where it follows such a layer in a `torch.nn.Sequential` or in
torchrec's `Perceptron`, and no hook would miss it. With bfloat16, everything else runs under `torch.autocast`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torchrec.modules.mlp import Perceptron

from elastichost.worker.model.dense_kernels import SPARE, add_bias, mask_and_sum, mask_and_transpose
from elastichost.worker.model.kernel_calls import flat_array, untraced
from elastichost.worker.model.weight_gradient import BackwardPass, WeightGradient

__all__ = ["FusedLinear", "FusedPerceptron", "FusedSequential", "fuse_layers"]

FEW_OUTPUTS = 8
SMALL = 64  # a layer with at most so many inputs and outputs is as fast in float32

Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]  # of x, W and b


class _Product(torch.autograd.Function):
    """relu(x W^T + b), or without ReLU: x [B, I] -> [B, O], both float32 or both bfloat16."""

    @staticmethod
    def forward(
        context: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: FusedLinear,
        has_relu: bool,
    ) -> torch.Tensor:
        output = _multiply(inputs, layer, has_relu)
        context.save_for_backward(inputs, weight, output if has_relu else None)
        context.layer, context.has_relu = layer, has_relu
        return output

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        layer: FusedLinear = context.layer
        inputs, weight, output = context.saved_tensors
        if torch.is_grad_enabled() or not layer.writes_gradients:
            found = _returned_gradients(gradients[0], inputs, weight, output, context.needs_input_grad)
        else:
            wanted = context.needs_input_grad[0]
            found = _written_gradients(gradients[0].contiguous(), inputs, output, layer, wanted), None, None
        return (*found, None, None)


def _multiply(inputs: torch.Tensor, layer: FusedLinear, has_relu: bool) -> torch.Tensor:
    """The forward pass of `_Product`."""
    if layer.low_weight is None:
        output = torch.mm(inputs, layer.weight.t())
        bias = layer._parameters["bias"]  # typed as one that may be absent
        if bias is not None:
            add_bias(flat_array(output), flat_array(bias), len(output), layer.out_features, has_relu)
        elif has_relu:
            output.relu_()
        return output
    narrow: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
        inputs, layer.low_weight, layer.low_bias, "relu" if has_relu else "none", [], ""
    )
    return narrow


def _returned_gradients(
    gradient: torch.Tensor,
    inputs: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor | None,
    wanted: Sequence[bool],
) -> Gradients:
    """What autograd receives by rule 5, in operations that autograd can differentiate."""
    masked = gradient if output is None else gradient * (output > 0)
    return (
        masked @ weight.to(masked.dtype) if wanted[0] else None,
        (masked.t() @ inputs).to(weight.dtype) if wanted[1] else None,
        masked.sum(0, dtype=weight.dtype) if wanted[2] else None,
    )


def _written_gradients(
    gradient: torch.Tensor, inputs: torch.Tensor, output: torch.Tensor | None, layer: FusedLinear, wanted: bool
) -> torch.Tensor | None:
    """Writes the gradients of the parameters. Returns that of x if it is `wanted`. gradient: contiguous."""
    rows, columns = gradient.shape
    masked = torch.empty_like(gradient) if output is not None else gradient
    sums = torch.empty(columns)
    arrays = flat_array(gradient), flat_array(gradient if output is None else output), flat_array(masked)
    if layer.low_weight is None:
        mask_and_sum(*arrays, flat_array(sums), rows, columns, output is not None)
        left, weight = masked.t(), layer.weight.detach()
    else:
        transposed = torch.empty((columns, rows + SPARE), dtype=torch.bfloat16)
        mask_and_transpose(
            *arrays, flat_array(transposed), flat_array(sums), rows, columns, rows + SPARE, output is not None
        )
        left, weight = transposed[:, :rows], layer.low_weight
    if layer.weight_gradient is not None:
        layer.weight_gradient.add_product(left, inputs)
    if layer.bias is not None and layer.bias.grad is not None:
        layer.bias.grad.add_(sums)
    return masked @ weight if wanted else None


@untraced
def _product(inputs: torch.Tensor, layer: FusedLinear, has_relu: bool) -> torch.Tensor:
    output: torch.Tensor = _Product.apply(  # type: ignore[no-untyped-call]
        inputs, layer.weight, layer.bias, layer, has_relu
    )
    return output


class FusedLinear(nn.Linear):
    """A linear layer of the rules above. low_weight, low_bias: bfloat16 copies of the parameters; None if it computes
    in float32. weight_gradient: None for a frozen weight. follows_autocast: whether a `torch.autocast` of the user's
    model decides in which precision it computes; with `train.precision = "bfloat16"` there is always one."""

    low_weight: torch.Tensor | None
    low_bias: torch.Tensor | None
    weight_gradient: WeightGradient | None
    backward_pass: BackwardPass
    follows_autocast: bool

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        """float [..., I] -> float32 or bfloat16 [..., O]."""
        return self.product(input, has_relu=False)

    def product(self, inputs: torch.Tensor, *, has_relu: bool) -> torch.Tensor:
        """As `forward`, with ReLU if `has_relu`."""
        if inputs.shape[-1:] != (self.in_features,):
            return super().forward(inputs)  # raises torch's error about the shapes
        if self.follows_autocast and torch.is_autocast_enabled("cpu"):
            plain = super().forward(inputs)
            return plain.relu() if has_relu else plain
        given = inputs.to(torch.float32 if self.low_weight is None else torch.bfloat16)
        with torch.autocast("cpu", enabled=False):
            output = _product(given.reshape(-1, self.in_features).contiguous(), self, has_relu)
        return output.view(*inputs.shape[:-1], self.out_features)

    @property
    def writes_gradients(self) -> bool:
        """Whether the backward pass that runs now writes the gradients of this layer (rule 5)."""
        parameters = [self.weight] if self.bias is None else [self.weight, self.bias]
        return self.backward_pass.is_running and not any(
            one._backward_hooks or one._post_accumulate_grad_hooks for one in parameters
        )


class FusedPerceptron(Perceptron):
    """torchrec's `Perceptron` whose layer is a `FusedLinear` and whose activation is ReLU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        layer: FusedLinear = self._linear
        return layer.product(input, has_relu=True)


class FusedSequential(nn.Sequential):
    """A `Sequential` that fuses each ReLU behind a `FusedLinear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - its name in torch
        inputs, modules, at = input, list(self), 0
        while at < len(modules):
            module = modules[at]
            if isinstance(module, FusedLinear) and _is_fusible(module) and _is_relu(modules[at + 1 : at + 2]):
                inputs, at = module.product(inputs, has_relu=True), at + 2
            else:
                inputs, at = module(inputs), at + 1
        return inputs


def _is_fusible(module: object) -> bool:
    return type(module) is FusedLinear and not _has_hooks(module)


def _is_relu(modules: Sequence[nn.Module]) -> bool:
    """Whether this is one ReLU that no hook observes."""
    return len(modules) == 1 and type(modules[0]) is nn.ReLU and not _has_hooks(modules[0])


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def fuse_layers(
    model: nn.Module, values: torch.Tensor, low: torch.Tensor | None, backward_pass: BackwardPass
) -> list[WeightGradient]:
    """Replaces the linear layers of a model by fused ones, in place. Returns the gradients of their weights, in the
    order of the flat vector: the caller begins and completes them in each step.

    values: float32 [n], of which the parameters are views. low: bfloat16 [n or fewer], the copy of the parameters,
    which the caller keeps up to date; None: layers compute in float32.
    """
    gradients: dict[int, WeightGradient] = {}  # by position: layers may share a weight
    modules = list(_not_compiled(model))
    for module in modules:
        if type(module) is nn.Linear and isinstance(module._parameters.get("weight"), nn.Parameter):
            _fuse_layer(module, values, low, backward_pass, gradients)
    for module in modules:
        if type(module) is nn.Sequential:
            module.__class__ = FusedSequential
        elif type(module) is Perceptron and module._activation_fn is torch.relu and _is_fusible(module._linear):
            module.__class__ = FusedPerceptron
    return [gradients[start] for start in sorted(gradients)]


def _not_compiled(module: nn.Module) -> Iterator[nn.Module]:
    """The module and those within it, without those that the user compiled: torch fuses their layers itself."""
    if module._compiled_call_impl is not None or isinstance(module, torch._dynamo.OptimizedModule):
        return
    yield module
    for child in module.children():
        yield from _not_compiled(child)


def _fuse_layer(
    layer: nn.Linear,
    values: torch.Tensor,
    low: torch.Tensor | None,
    backward_pass: BackwardPass,
    gradients: dict[int, WeightGradient],
) -> None:
    is_small = max(layer.in_features, layer.out_features) <= SMALL
    gradient = low_weight = low_bias = None
    if layer.weight.requires_grad:
        start = _position(layer.weight, values)
        gradient = gradients.setdefault(start, WeightGradient(layer.weight, start))
    if low is not None and layer.out_features > FEW_OUTPUTS and not is_small:
        low_weight = _copy_of(layer.weight, values, low)
        low_bias = None if layer.bias is None else _copy_of(layer.bias, values, low)
    layer.__class__ = FusedLinear
    attributes = {
        "weight_gradient": gradient,
        "low_weight": low_weight,
        "low_bias": low_bias,
        "backward_pass": backward_pass,
        "follows_autocast": low is None,
    }
    for name, attribute in attributes.items():
        object.__setattr__(layer, name, attribute)  # plain attributes, which belong to no state_dict


def _position(parameter: torch.Tensor, values: torch.Tensor) -> int:
    """The position in `values` at which this parameter, a view of it, begins."""
    return (parameter.data_ptr() - values.data_ptr()) // values.element_size()


def _copy_of(parameter: torch.Tensor, values: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """The part of `low` that is the copy of this parameter."""
    offset = _position(parameter, values)
    return low[offset : offset + parameter.numel()].view(parameter.shape)
