"""Gradients of weights that are written straight into the pushed vector: nothing is lost, added twice, or left over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from elastichost.specs import Precision
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from elastichost.worker.model.weight_gradient import WeightGradient
from tests.bfloat16 import both_precisions

Float32 = npt.NDArray[np.float32]


class Net(nn.Module):
    """Two large layers, a small one; `again` is used twice; `penalty` uses a weight outside of its layer."""

    def __init__(self, penalty: float = 0.0) -> None:
        super().__init__()
        self.into, self.again, self.last = nn.Linear(130, 160), nn.Linear(160, 160), nn.Linear(160, 1)
        self.penalty = penalty

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(self.again(self.again(self.into(inputs)).relu()))
        return output.float().sum() + self.penalty * self.into.weight.square().sum()


class Bench:
    """A net with its flat vector."""

    def __init__(self, build: Callable[[], nn.Module], precision: Precision) -> None:
        torch.manual_seed(3)
        self.model = build()
        self.spec = describe_dense(self.model)
        vector = initial_vector(self.model, self.spec)
        self.flat = FlatDense(self.model, self.spec, torch.device("cpu"), precision)
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
        self.flat.values[:] = vector
        self.flat.loaded()
        self.inputs = torch.randn(8, 130)

    def step(self, into: Float32 | None = None) -> None:
        self.flat.zero_gradients()
        if into is not None:
            self.flat.write_into(into)
        with self.autocast:
            loss = self.model(self.inputs)
        with self.flat.backward_pass.running():
            loss.backward()

    def pushed(self, into: Float32 | None = None) -> Float32:
        """The vector that is pushed after one step. into: the array that the backward pass may write."""
        self.step(into)
        out = self.room() if into is None else into
        self.flat.write_push(out)
        return out

    def room(self) -> Float32:
        return np.full(self.spec.elements, np.nan, np.float32)

    def range_of(self, name: str) -> slice:
        (tensor,) = [tensor for tensor in self.spec.tensors if tensor.name == name]
        return slice(tensor.offset, tensor.offset + tensor.elements)


@both_precisions
@pytest.mark.parametrize("build", [Net, lambda: Net(penalty=0.5)], ids=["plain", "penalty"])
def test_written_in_place_or_copied_the_pushed_vector_is_the_same(
    build: Callable[[], nn.Module], precision: Precision
) -> None:
    bench = Bench(build, precision)
    copied = bench.pushed()
    assert np.isfinite(copied).all()
    for _ in range(2):  # a second step finds what the first has left
        assert np.array_equal(bench.pushed(bench.room()), copied)
        assert np.array_equal(bench.pushed(), copied)
    elsewhere = bench.room()
    bench.step(bench.room())
    bench.flat.write_push(elsewhere)
    assert np.array_equal(elsewhere, copied), "a vector that was not announced"


@both_precisions
def test_a_weight_that_is_used_outside_of_its_layer_gets_both_gradients(precision: Precision) -> None:
    plain, penalised = Bench(Net, precision), Bench(lambda: Net(penalty=0.5), precision)
    weight = penalised.range_of("into.weight")
    expected = plain.pushed()[weight] + penalised.flat.values[weight]
    assert np.allclose(penalised.pushed(penalised.room())[weight], expected, rtol=1e-5, atol=1e-5)


@both_precisions
def test_a_layer_that_takes_no_part_in_a_step_has_zeros_and_not_its_last_gradient(precision: Precision) -> None:
    bench = Bench(Net, precision)
    before = bench.pushed(bench.room())
    assert before[bench.range_of("again.weight")].any()
    bench.model.again = nn.Identity()
    after = bench.pushed(bench.room())
    assert not after[bench.range_of("again.weight")].any()
    bench.flat.zero_gradients()  # no backward pass at all
    out = bench.room()
    bench.flat.write_push(out)
    assert not out.any()


@both_precisions
def test_two_layers_that_share_a_weight_have_one_gradient(precision: Precision) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(130, 130), nn.Linear(130, 130)
            self.two.weight = self.one.weight

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(inputs)).float().square().mean()  # type: ignore[no-any-return]

    bench = Bench(Tied, precision)
    gradient = bench.pushed(bench.room())[bench.range_of("one.weight")]
    torch.manual_seed(3)
    exact = Tied()
    exact(bench.inputs).backward()
    assert exact.one.weight.grad is not None
    expected = exact.one.weight.grad.view(-1).numpy()
    assert np.linalg.norm(gradient - expected) < 0.02 * np.linalg.norm(expected)


@both_precisions
def test_what_the_model_differentiates_itself_is_not_taken_for_the_gradient_of_the_loss(precision: Precision) -> None:
    """Feature attribution: the gradient of a score by the inputs, which is a feature of the loss and no part of it."""

    class Attributing(Net):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            plain = super().forward(inputs)
            if not self.penalty:
                return plain
            given = inputs.clone().requires_grad_()
            (found,) = torch.autograd.grad(super().forward(given), given)
            return plain + 0.0 * found.sum()

    vectors = []
    for penalty in (0.0, 1e-30):
        bench = Bench(lambda penalty=penalty: Attributing(penalty), precision)
        vectors.append(bench.pushed(bench.room()))
    assert np.array_equal(*vectors)


@both_precisions
def test_a_gradient_of_a_gradient_is_found_as_torch_finds_it(precision: Precision) -> None:
    """A gradient penalty (Gulrajani et al. 2017)."""

    class Penalised(Net):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            given = inputs.clone().requires_grad_()
            score = super().forward(given)
            (found,) = torch.autograd.grad(score, given, create_graph=True)
            return score + found.square().sum()

    bench = Bench(Penalised, precision)
    pushed = bench.pushed(bench.room())
    torch.manual_seed(3)
    exact = Penalised()
    exact(bench.inputs).backward()
    for name, parameter in exact.named_parameters():
        expected = np.zeros(parameter.numel()) if parameter.grad is None else parameter.grad.view(-1).numpy()
        tolerance = 1e-5 if precision == "float32" else 0.06  # torch's layers under autocast: 0.04
        assert np.linalg.norm(pushed[bench.range_of(name)] - expected) <= tolerance * np.linalg.norm(expected)


@both_precisions
def test_a_hook_of_a_weight_sees_its_gradient_and_may_change_it(precision: Precision) -> None:
    def build(factor: float | None) -> Callable[[], Net]:
        def hooked() -> Net:
            net = Net()
            if factor is not None:
                net.into.weight.register_hook(lambda gradient: factor * gradient)
            return net

        return hooked

    plain, hooked = (Bench(build(factor), precision) for factor in (None, 2.0))
    weight = plain.range_of("into.weight")
    expected = 2 * plain.pushed(plain.room())[weight]
    assert np.allclose(hooked.pushed(hooked.room())[weight], expected, rtol=1e-2, atol=1e-3)


@both_precisions
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_found_wherever_it_was_written(bad: float, precision: Precision) -> None:
    bench = Bench(Net, precision)
    bench.step(bench.room())
    assert bench.flat.has_finite_gradients
    bench.inputs[3, 7] = bad
    bench.step(bench.room())
    assert not bench.flat.has_finite_gradients
    bench.step()
    assert not bench.flat.has_finite_gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_first_product_is_written_and_further_ones_are_added(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.zeros(3, 7))
    gradient, vector = WeightGradient(weight, 2), torch.full((30,), 9.0)
    gradient.begin(vector)
    column, row = torch.ones(3, 1, dtype=dtype), torch.ones(1, 7, dtype=dtype)
    gradient.add_product(column, row)
    assert gradient.complete() == 21.0
    gradient.add_product(column, 2 * row)
    assert gradient.complete() == 63.0
    assert (vector[2:23] == 3.0).all() and (vector[:2] == 9.0).all() and (vector[23:] == 9.0).all()
    gradient.begin(vector)
    assert gradient.complete() == 0.0 and not vector[2:23].any()
