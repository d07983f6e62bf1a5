"""Layers with bfloat16 products, compared with torch's in float64."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torchrec.modules.mlp import MLP


class _Twice(nn.Module):
    """Uses one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(13, 13)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(self.layer(x))
        return y


@dataclass
class Writer:
    is_running: bool


MODELS = {
    "perceptrons of odd widths": lambda: MLP(13, [24, 9], activation=torch.relu),
    "a plain layer": lambda: nn.Sequential(nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 1)),
    "without bias": lambda: nn.Linear(13, 8, bias=False),
    "used twice": _Twice,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [1, 300])
def test_outputs_and_gradients_equal_torchs(device: torch.device, name: str, rows: int) -> None:
    from elastichost.gpu.dense_layers import narrow_layers

    torch.manual_seed(3)
    model = MODELS[name]()
    plain = copy.deepcopy(model).double()
    parameters = list(model.parameters())
    values = torch.cat([one.detach().reshape(-1) for one in parameters]).to(device)
    gradients, at = torch.zeros_like(values), 0
    for one in parameters:
        one.data = values[at : at + one.numel()].view(one.shape)
        one.grad = gradients[at : at + one.numel()].view(one.shape)
        at += one.numel()
    writer = Writer(is_running=True)
    narrow_layers(model, values, values.to(torch.bfloat16), writer)
    columns = next(layer for layer in plain.modules() if isinstance(layer, nn.Linear)).in_features
    inputs = torch.randn(rows, columns)
    given, expected = inputs.to(device, copy=True).requires_grad_(), inputs.double().requires_grad_()
    output, wanted = model(given), plain(expected)
    gradient = torch.randn(wanted.shape)
    output.backward(gradient.to(device, output.dtype))
    wanted.backward(gradient.double())
    found = [one.grad for one in parameters]
    for mine, theirs in zip(
        [output, given.grad, *found], [wanted, expected.grad, *(one.grad for one in plain.parameters())], strict=True
    ):
        assert mine is not None and theirs is not None
        # by norms: a ReLU may be open in one of the two where its input is nearly zero
        distance = (mine.detach().cpu().double() - theirs.detach()).norm()
        assert float(distance) < 0.1 * float(theirs.norm()) + 1e-6


def test_another_backward_pass_gets_its_gradients_from_autograd(device: torch.device) -> None:
    """As a gradient penalty does, which also differentiates twice."""
    from elastichost.gpu.dense_layers import narrow_layers

    torch.manual_seed(4)
    layer = nn.Linear(13, 6)
    plain = copy.deepcopy(layer)
    layer.to(device)
    values = torch.cat([layer.weight.detach().reshape(-1), layer.bias.detach()])
    layer.weight.data, layer.bias.data = values[:78].view(6, 13), values[78:]
    layer.weight.grad, layer.bias.grad = torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)
    narrow_layers(layer, values, values.to(torch.bfloat16), Writer(is_running=False))
    given = torch.randn(9, 13)
    mine, theirs = given.to(device, copy=True).requires_grad_(), given.clone().requires_grad_()
    found = torch.autograd.grad(layer(mine).float().square().sum(), mine, create_graph=True)[0]
    wanted = torch.autograd.grad(plain(theirs).square().sum(), theirs, create_graph=True)[0]
    torch.testing.assert_close(found.detach().cpu(), wanted.detach(), rtol=0.05, atol=0.1)
    assert not layer.weight.grad.any()
    found.square().sum().backward()
    wanted.square().sum().backward()
    assert plain.weight.grad is not None
    distance = (layer.weight.grad.cpu() - plain.weight.grad).norm()
    assert float(distance) < 0.05 * float(plain.weight.grad.norm())
