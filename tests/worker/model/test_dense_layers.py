"""A model with fused layers learns what torch's layers learn, up to rounding; what is not fused works too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torchrec.modules.mlp import MLP, Perceptron

from elastichost.specs import Precision
from elastichost.worker.model.dense_layers import (
    FEW_OUTPUTS,
    FusedLinear,
    FusedPerceptron,
    FusedSequential,
)
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.bfloat16 import both_precisions, needs_bfloat16


class Prepared:
    """A model with its flat dense part, loaded with its own initial values. precision: of fused layers; None: the
    layers are torch's."""

    def __init__(self, build: Callable[[], nn.Module], precision: Precision | None) -> None:
        torch.manual_seed(1)
        self.model = build()
        spec = describe_dense(self.model)
        vector = initial_vector(self.model, spec)
        self.flat = FlatDense(self.model, spec, torch.device("cpu"), precision)
        self.flat.values[:] = vector
        self.flat.loaded()
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")

    def trained(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(output, gradient of the inputs, gradients of the parameters) of a weighted mean of the output."""
        given = inputs.clone().requires_grad_()
        self.flat.zero_gradients()
        with self.autocast:
            output = self.model(given)
        weights = torch.linspace(-1.0, 2.0, output.numel()).view(output.shape)
        with self.flat.backward_pass.running():
            (output.float() * weights).mean().backward()
        assert given.grad is not None
        return output.detach().float(), given.grad, self.flat.gradients.clone()


def mlp() -> nn.Module:
    return nn.Sequential(MLP(130, [256, 128], activation="relu"), nn.Linear(128, 1))


def plain_sequence() -> nn.Module:
    return nn.Sequential(
        nn.Linear(130, 248), nn.ReLU(), nn.Linear(248, 133), nn.Tanh(), nn.Linear(133, 144, bias=False)
    )


class Shared(nn.Module):
    """One layer that is used twice, and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.again, self.norm = nn.Linear(130, 160), nn.Linear(160, 160), nn.LayerNorm(160)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.norm(self.again(self.again(self.into(inputs)).relu()))


@pytest.mark.parametrize("build", [mlp, plain_sequence, Shared])
@pytest.mark.parametrize("samples", [1, 37, 256])
def test_results_in_float32_are_those_of_torch(build: Callable[[], nn.Module], samples: int) -> None:
    inputs = torch.randn(samples, 130, generator=torch.Generator().manual_seed(2))
    plain, fused = Prepared(build, None), Prepared(build, "float32")
    assert any(type(module) is FusedLinear for module in fused.model.modules())
    for theirs, ours in zip(plain.trained(inputs), fused.trained(inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@needs_bfloat16
@pytest.mark.parametrize("build", [mlp, plain_sequence, Shared])
@pytest.mark.parametrize("samples", [1, 37, 256])
def test_results_are_as_near_to_float32_as_those_of_autocast(build: Callable[[], nn.Module], samples: int) -> None:
    inputs = torch.randn(samples, 130, generator=torch.Generator().manual_seed(2))
    exact, low = (Prepared(build, precision).trained(inputs) for precision in (None, "bfloat16"))
    autocast = Prepared(build, None)
    autocast.autocast = torch.autocast("cpu", torch.bfloat16)
    for one, ours, theirs in zip(exact, low, autocast.trained(inputs), strict=True):
        assert ours.dtype == torch.float32
        assert distance(one, ours) < 1.5 * distance(one, theirs) + 2**-8


def distance(exact: torch.Tensor, other: torch.Tensor) -> float:
    return float((exact - other).norm() / exact.norm())


@both_precisions
@pytest.mark.parametrize("shape", [(), (5,), (5, 7), (0,)])
def test_inputs_with_more_or_fewer_dimensions(shape: tuple[int, ...], precision: Precision) -> None:
    output = Prepared(plain_sequence, precision).trained(torch.randn(*shape, 130))[0]
    assert output.shape == (*shape, 144)


@both_precisions
@pytest.mark.parametrize("columns", [2, 3, 8])
def test_inputs_of_a_wrong_size_raise_torchs_error(precision: Precision, columns: int) -> None:
    """Two columns are half of what the layer takes: as one row for two samples they would fit."""
    prepared = Prepared(lambda: nn.Sequential(nn.Linear(4, 200), nn.ReLU()), precision)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied|size mismatch"):
        prepared.model(torch.ones(512, columns))


@both_precisions
def test_layers_and_activations_are_fused_where_they_can_be(precision: Precision) -> None:
    model = Prepared(mlp, precision).model
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(FusedPerceptron) == 2 and kinds.count(FusedLinear) == 3
    assert FusedSequential in kinds


@needs_bfloat16
@pytest.mark.parametrize(("inputs", "outputs"), [(4096, FEW_OUTPUTS), (64, 64)])
def test_a_layer_with_few_outputs_or_weights_computes_in_float32(inputs: int, outputs: int) -> None:
    prepared = Prepared(lambda: nn.Linear(inputs, outputs), "bfloat16")
    with prepared.autocast:
        assert prepared.model(torch.randn(4, inputs)).dtype == torch.float32


@both_precisions
def test_a_subclass_and_an_activation_with_a_hook_stay_as_they_are(precision: Precision) -> None:
    class Scaled(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(inputs)

    seen: list[torch.Tensor] = []

    def build() -> nn.Module:
        relu = nn.ReLU()
        relu.register_forward_hook(lambda module, inputs, output: seen.append(output))
        return nn.Sequential(Scaled(130, 128), nn.Linear(128, 128), relu)

    model = Prepared(build, precision)
    assert type(model.model[0]) is Scaled
    model.trained(torch.randn(4, 130))
    assert len(seen) == 1, "the hook must be called"


@both_precisions
def test_another_activation_of_a_perceptron_is_kept(precision: Precision) -> None:
    prepared = Prepared(lambda: Perceptron(130, 128, activation=torch.sigmoid), precision)
    assert type(prepared.model) is Perceptron
    output = prepared.trained(torch.randn(4, 130))[0]
    assert ((output > 0) & (output < 1)).all()


@both_precisions
def test_a_frozen_layer_gets_no_gradient_and_passes_its_own_on(precision: Precision) -> None:
    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(130, 128), nn.Linear(128, 128))
        for parameter in model[1].parameters():
            parameter.requires_grad = False
        return model

    prepared = Prepared(build, precision)
    gradients = prepared.trained(torch.randn(8, 130))[2]
    first = 130 * 128 + 128
    assert gradients[:first].abs().sum() > 0 and (gradients[first:] == 0).all()


@needs_bfloat16
def test_the_copy_is_made_when_values_are_loaded_and_not_before() -> None:
    prepared = Prepared(lambda: nn.Linear(130, 128), "bfloat16")
    inputs = torch.randn(4, 130)
    before = prepared.trained(inputs)[0]
    prepared.flat.values[:] = 0
    assert torch.equal(prepared.trained(inputs)[0], before)
    prepared.flat.loaded()
    assert (prepared.trained(inputs)[0] == 0).all()


def test_without_fused_layers_nothing_changes() -> None:
    model = Prepared(mlp, None).model
    assert not any(isinstance(module, (FusedLinear, FusedSequential)) for module in model.modules())


def test_layers_that_the_user_compiled_stay_as_they_are() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.compiled = torch.compile(mlp(), backend="eager")
            self.in_place, self.plain = nn.Linear(1, 70), nn.Linear(70, 1)
            self.in_place.compile(backend="eager")

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.plain(self.in_place(self.compiled(inputs)))  # type: ignore[no-any-return]

    prepared = Prepared(Partly, "float32")
    assert [name for name, module in prepared.model.named_modules() if isinstance(module, FusedLinear)] == ["plain"]
    assert prepared.trained(torch.randn(4, 130))[2].abs().sum() > 0


@needs_bfloat16
def test_a_layer_under_the_autocast_of_the_users_model_computes_in_its_type() -> None:
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = plain_sequence()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                output: torch.Tensor = self.body(inputs)
            assert output.dtype == torch.bfloat16
            return output

    inputs = torch.randn(16, 130)
    for theirs, ours in zip(
        Prepared(Casting, None).trained(inputs), Prepared(Casting, "float32").trained(inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@both_precisions
def test_a_compiled_model_trains_as_before(precision: Precision) -> None:
    """torch.compile leaves the products out."""
    inputs = torch.randn(16, 130)
    plain, compiled = Prepared(mlp, precision), Prepared(mlp, precision)
    compiled.model = torch.compile(compiled.model, backend="eager")  # type: ignore[assignment]
    for one, other in zip(plain.trained(inputs), compiled.trained(inputs), strict=True):
        assert torch.equal(one, other)
