"""The dense part of a model as one flat float32 vector: parameters first, then floating-point buffers.

Every parameter becomes a view of one flat tensor, and every gradient a view of another one. So the dense part is
exchanged with one copy, without a loop over tensors. With direct access on a CPU, gradients of the weights of fused
layers need no copy: they are written straight into the mailbox (`write_into`, `weight_gradient`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from elastichost.errors import ModelError
from elastichost.gpu.availability import has_triton
from elastichost.specs import DenseSpec, DenseTensor, Precision
from elastichost.worker.model.dense_layers import fuse_layers
from elastichost.worker.model.weight_gradient import BackwardPass, WeightGradient

__all__ = ["FlatDense", "describe_dense", "initial_vector"]


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in model.named_parameters():
        if not parameter.is_meta:
            yield name, parameter


def _buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    persistent = set(model.state_dict(keep_vars=True))
    for name, buffer in model.named_buffers():
        if buffer is not None and buffer.is_floating_point() and not buffer.is_meta and name in persistent:
            yield name, buffer


def describe_dense(model: nn.Module) -> DenseSpec:
    """The names, shapes and offsets of the dense tensors, in module order. Raises ModelError for a parameter or a
    buffer that is not float32."""
    tensors: list[DenseTensor] = []
    offset = 0
    for name, parameter in _trained(model):
        if parameter.dtype != torch.float32:
            raise ModelError(f"parameter {name!r} is {parameter.dtype}; dense parameters must be float32")
        is_frozen = not parameter.requires_grad
        tensors.append(DenseTensor(name=name, shape=tuple(parameter.shape), offset=offset, is_frozen=is_frozen))
        offset += parameter.numel()
    parameters = offset
    for name, buffer in _buffers(model):
        if buffer.dtype != torch.float32:
            raise ModelError(
                f"buffer {name!r} is {buffer.dtype}; persistent buffers of floating point must be float32",
                hint="convert it with .float(), or register it with persistent=False",
            )
        tensors.append(DenseTensor(name=name, shape=tuple(buffer.shape), offset=offset, is_buffer=True))
        offset += buffer.numel()
    return DenseSpec(tensors=tuple(tensors), parameters=parameters, elements=offset)


def initial_vector(model: nn.Module, spec: DenseSpec) -> npt.NDArray[np.float32]:
    """The model's own initial values, float32 [spec.elements]."""
    values = {**dict(_trained(model)), **dict(_buffers(model))}
    vector = np.empty(spec.elements, dtype=np.float32)
    for tensor in spec.tensors:
        source = values[tensor.name].detach().to("cpu", torch.float32).contiguous().view(-1)
        vector[tensor.offset : tensor.offset + tensor.elements] = source.numpy()
    return vector


class FlatDense:
    """A model's dense part as flat host vectors.

    values: float32 [elements], parameters and buffers. On the CPU the model computes with this memory; for a GPU
    `loaded` copies it to the device. fused_layers: the precision in which fused linear layers compute; with "bfloat16"
    they use a copy, `low`, that `loaded` makes. None, or float32 on a GPU: the layers stay torch's. `write_push` gives
    float32 [elements]: gradients, then the buffers' values.
    """

    def __init__(
        self, model: nn.Module, spec: DenseSpec, device: torch.device, fused_layers: Precision | None = None
    ) -> None:
        if describe_dense(model) != spec:
            raise ModelError(
                "the model that was built in this process differs from the model that the probe of the job described",
                hint="build() must return the same parameters each time it is called",
            )
        self._spec = spec
        self._device = device
        model.to(device)
        self._values = torch.zeros(spec.elements, device=device)
        self._gradients = torch.zeros(spec.parameters, device=device)
        self._host = self._values if device.type == "cpu" else torch.zeros(spec.elements, pin_memory=True)
        parameters, buffers = dict(_trained(model)), dict(_buffers(model))
        for tensor in spec.tensors:
            view = self._values[tensor.offset : tensor.offset + tensor.elements].view(tensor.shape)
            if tensor.is_buffer:
                buffers[tensor.name].set_(view)  # type: ignore[call-overload]
                continue
            parameter = parameters[tensor.name]
            parameter.data = view
            if parameter.requires_grad:  # autograd adds to it in place
                parameter.grad = self._gradients[tensor.offset : tensor.offset + tensor.elements].view(tensor.shape)
        self.values: npt.NDArray[np.float32] = self._host.numpy()
        self.low: torch.Tensor | None = None
        self._weights: list[WeightGradient] = []  # gradients that `_gradients` holds only if there is no `_target`
        self.backward_pass = BackwardPass()  # the caller runs `loss.backward()` while this is running
        if fused_layers == "bfloat16" and (device.type == "cpu" or has_triton()):
            self.low = torch.zeros(spec.parameters, dtype=torch.bfloat16, device=device)
        if device.type == "cpu" and fused_layers is not None:
            self._weights = fuse_layers(model, self._values, self.low, self.backward_pass)
        elif self.low is not None:
            from elastichost.gpu.dense_layers import narrow_layers  # needs Triton

            narrow_layers(model, self._values, self.low, self.backward_pass)
        self._others = list(_between(self._weights, spec.parameters))
        self._target: torch.Tensor | None = None
        self._pushed = 0  # address of the vector that holds this step's gradients already; 0: none

    def loaded(self) -> None:
        """Call after writing into `values`: copies them to the GPU if there is one, and makes the bfloat16 copy if
        there is to be one."""
        if self._device.type != "cpu":
            # the host's copy is page-locked, and is not written again before the step has ended
            self._values.copy_(self._host, non_blocking=True)
        self.narrow()

    def narrow(self) -> None:
        """Makes the bfloat16 copy of `device_values`, if there is to be one."""
        if self.low is not None:
            self.low.copy_(self._values[: self._spec.parameters])

    def zero_gradients(self) -> None:
        """Begins a step: what the next backward pass finds are its gradients."""
        for start, stop in self._others:
            self._gradients[start:stop].zero_()
        self._begin(None)

    def write_into(self, out: npt.NDArray[np.float32]) -> None:
        """Lets the next backward pass write into `out`, float32 [elements], what it can, so that `write_push` need not
        copy it. Call it after `zero_gradients` and before the backward pass; `out` must stay as it is until
        `write_push`."""
        self._begin(torch.from_numpy(out) if self._weights else None)

    def _begin(self, target: torch.Tensor | None) -> None:
        self._target = target
        for weight in self._weights:
            weight.begin(self._gradients if target is None else target)

    @property
    def device_values(self) -> torch.Tensor:
        """Parameters and buffers on the model's device, float32 [elements]."""
        return self._values

    def pushed_into(self, out: npt.NDArray[np.float32]) -> None:
        """Notes that the step has already written what `write_push` would write to `out`."""
        self._pushed = out.ctypes.data

    @property
    def has_finite_gradients(self) -> bool:
        """Whether no gradient is NaN or infinite. Sums decide; when they overflow, every element is checked."""
        totals = [weight.complete() for weight in self._weights]
        totals += [float(self._gradients[start:stop].sum()) for start, stop in self._others]
        return all(map(math.isfinite, totals)) or bool(torch.isfinite(self.gradients).all())

    @property
    def gradients(self) -> torch.Tensor:
        """The gradients, float32 [parameters], on the model's device."""
        for weight in self._weights:
            weight.complete()
            if self._target is not None:
                part = slice(weight.start, weight.stop)
                self._gradients[part].copy_(self._target[part])
        return self._gradients

    def write_push(self, out: npt.NDArray[np.float32]) -> None:
        """Writes the gradients, then the buffer values, into `out` float32 [elements]."""
        parameters = self._spec.parameters
        if out.ctypes.data == self._pushed:
            self._pushed = 0
            return
        target = torch.from_numpy(out)
        if self._target is not None and target.data_ptr() == self._target.data_ptr():
            for weight in self._weights:
                weight.complete()
            for start, stop in self._others:
                target[start:stop].copy_(self._gradients[start:stop])
        else:
            target[:parameters].copy_(self.gradients)
        if self._spec.elements > parameters:
            target[parameters:].copy_(self._values[parameters:])


def _between(weights: Sequence[WeightGradient], parameters: int) -> Iterator[tuple[int, int]]:
    """The ranges of the flat vector, up to `parameters`, that belong to none of the weights."""
    start = 0
    for weight in weights:
        if weight.start > start:
            yield start, weight.start
        start = weight.stop
    if start < parameters:
        yield start, parameters
