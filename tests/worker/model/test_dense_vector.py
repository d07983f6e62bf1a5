"""The dense part as one flat vector: the parameters of the model are views of it, not copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from elastichost.errors import ModelError
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector


class Small(nn.Module):
    """A network with parameters and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x)))).squeeze(1)  # type: ignore[no-any-return]


def flat_of(model: nn.Module) -> FlatDense:
    return FlatDense(model, describe_dense(model), torch.device("cpu"))


def test_parameters_come_first_then_floating_buffers() -> None:
    spec = describe_dense(Small())
    names = [tensor.name for tensor in spec.tensors]
    assert names[-2:] == ["norm.running_mean", "norm.running_var"]
    assert spec.parameters == 3 * 4 + 4 + 4 + 4 + 4 + 1
    assert spec.elements == spec.parameters + 8
    assert [t.is_buffer for t in spec.tensors] == [False] * 6 + [True] * 2


def test_the_flat_vector_is_what_the_model_computes_with() -> None:
    torch.manual_seed(0)
    reference, model = Small(), Small()
    vector = initial_vector(reference, describe_dense(reference))
    flat = flat_of(model)
    flat.values[:] = vector
    flat.loaded()
    x = torch.randn(8, 3)
    assert torch.equal(model(x), reference(x))


def test_gradients_and_buffers_are_pushed_together() -> None:
    torch.manual_seed(0)
    model, reference = Small(), Small()
    flat = flat_of(model)
    flat.values[:] = initial_vector(reference, describe_dense(reference))
    x = torch.randn(8, 3)
    flat.zero_gradients()
    model(x).sum().backward()
    reference(x).sum().backward()
    pushed = np.empty(len(flat.values), dtype=np.float32)
    flat.write_push(pushed)
    expected = torch.cat([p.grad.view(-1) for p in reference.parameters() if p.grad is not None])
    np.testing.assert_array_equal(pushed[: len(expected)], expected.numpy())
    buffers = torch.cat([reference.norm.running_mean, reference.norm.running_var])  # type: ignore[list-item]
    np.testing.assert_array_equal(pushed[len(expected) :], buffers.numpy())


def test_zeroing_keeps_the_views() -> None:
    model = Small()
    flat = flat_of(model)
    model(torch.randn(8, 3)).sum().backward()
    flat.zero_gradients()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_gradient_that_is_not_finite_is_found(bad: float) -> None:
    model = Small()
    flat = flat_of(model)
    flat.zero_gradients()
    assert flat.has_finite_gradients
    assert model.last.weight.grad is not None
    model.last.weight.grad[0, 2] = bad
    assert not flat.has_finite_gradients


def test_sums_of_gradients_that_overflow_are_no_infinities() -> None:
    model = Small()
    flat = flat_of(model)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.fill_(3e38)
    assert flat.has_finite_gradients


def test_a_model_that_changed_since_the_plan_is_refused() -> None:
    with pytest.raises(ModelError, match="differs"):
        FlatDense(nn.Linear(2, 1), describe_dense(Small()), torch.device("cpu"))


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match="'weight' is torch.float64"):
        describe_dense(nn.Linear(2, 1).double())


def test_a_parameter_without_gradient_is_frozen() -> None:
    model = Small()
    model.first.requires_grad_(False)
    spec = describe_dense(model)
    assert [tensor.name for tensor in spec.tensors if tensor.is_frozen] == ["first.weight", "first.bias"]
    assert spec.frozen == ((0, 12), (12, 16))


def test_a_buffer_of_another_precision_is_refused() -> None:
    """The flat vector is float32: the buffer would lose digits without a word."""
    model = Small()
    model.register_buffer("total", torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ModelError, match="buffer 'total' is torch.float64"):
        describe_dense(model)
    model.register_buffer("total", torch.zeros(2, dtype=torch.float64), persistent=False)
    assert describe_dense(model) == describe_dense(Small())
