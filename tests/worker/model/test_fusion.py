"""Fused modules give the same outputs and gradients as torchrec's own modules; no other modules are replaced."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torchrec.models.dlrm import DLRM, InteractionArch, SparseArch
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.worker.model.fusion import FusedInteractionArch, FusedSparseArch, fuse_modules


def _dlrm(tables: list[EmbeddingBagConfig], dim: int) -> DLRM:
    torch.manual_seed(5)
    collection = EmbeddingBagCollection(tables=tables, device=torch.device("cpu"))
    return DLRM(collection, 3, [8, dim], [8, 1])


def _tables(dim: int, features: list[list[str]]) -> list[EmbeddingBagConfig]:
    return [
        EmbeddingBagConfig(name=f"t{number}", embedding_dim=dim, num_embeddings=11, feature_names=names)
        for number, names in enumerate(features)
    ]


def _features(names: list[str], samples: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(0, 4, (len(names) * samples,), generator=generator)
    values = torch.randint(0, 11, (int(lengths.sum()),), generator=generator)
    return KeyedJaggedTensor(keys=names, values=values, lengths=lengths)


def _gradients(model: nn.Module, dense: torch.Tensor, features: KeyedJaggedTensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    output = model(dense, features)
    (output * torch.arange(1.0, len(output) + 1).view(-1, 1)).sum().backward()
    return {"output": output, **{name: p.grad for name, p in model.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("dim", [4, 10, 16, 32])
@pytest.mark.parametrize("features", [[["a"]], [["a"], ["b", "c"]], [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]])
def test_a_whole_dlrm_gives_the_same_outputs_and_gradients(dim: int, features: list[list[str]]) -> None:
    original = _dlrm(_tables(dim, features), dim)
    fused = copy.deepcopy(original)
    assert fuse_modules(fused) == 2
    names = [name for group in features for name in group]
    dense = torch.randn(13, 3, generator=torch.Generator().manual_seed(1))
    expected = _gradients(original, dense, _features(names, 13))
    found = _gradients(fused, dense, _features(names, 13))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_gradients_against_finite_differences() -> None:
    """The gradient is that of this function, independently of torchrec. In float32, so with a coarse tolerance."""
    module = InteractionArch(3)
    fuse_modules(module)
    torch.manual_seed(0)
    dense, sparse = torch.randn(2, 5, requires_grad=True), torch.randn(2, 3, 5, requires_grad=True)
    weights = torch.randn(2, 5 + 6)
    (module(dense, sparse) * weights).sum().backward()
    for tensor in (dense, sparse):
        assert tensor.grad is not None
        flat, gradient = tensor.detach().view(-1), tensor.grad.view(-1)
        for position in range(flat.numel()):
            sides = []
            for step in (0.5, -0.5):
                flat[position] += step
                sides.append(float((module(dense, sparse) * weights).sum().detach()))
                flat[position] -= step
            # A quadratic function: the central difference is exact up to rounding.
            assert float(gradient[position]) == pytest.approx(sides[0] - sides[1], rel=1e-3, abs=1e-3)


def test_a_feature_of_two_tables_has_other_names_and_still_its_order() -> None:
    tables = _tables(4, [["b", "a"], ["a"]])
    original = _dlrm(tables, 4)
    fused = copy.deepcopy(original)
    fuse_modules(fused)
    sparse_arch = fused.sparse_arch
    assert isinstance(sparse_arch, FusedSparseArch)
    assert list(sparse_arch.embedding_bag_collection(_features(["a", "b"], 2)).keys()) == ["b", "a@t0", "a@t1"]
    with pytest.raises(KeyError):  # torchrec's own module fails, too: the fused one must not invent an order
        original.sparse_arch(_features(["a", "b"], 2))
    with pytest.raises(KeyError):
        fused.sparse_arch(_features(["a", "b"], 2))


def test_subclasses_and_other_types_are_left_alone() -> None:
    class Mine(InteractionArch):
        def forward(self, dense_features: torch.Tensor, sparse_features: torch.Tensor) -> torch.Tensor:
            return dense_features

    model = nn.ModuleList([Mine(2), InteractionArch(2), nn.Linear(2, 2)])
    assert fuse_modules(model) == 1
    assert [type(module) for module in model] == [Mine, FusedInteractionArch, nn.Linear]
    assert fuse_modules(model) == 0
    double = model[1](torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 2, 3, dtype=torch.float64))
    assert double.dtype == torch.float64 and double.tolist() == [[1.0, 1.0, 1.0, 3.0, 3.0, 3.0]] * 2


def test_shapes_that_do_not_fit_fail_as_torchrecs_do() -> None:
    module = InteractionArch(2)
    fuse_modules(module)
    with pytest.raises(RuntimeError):
        module(torch.ones(2, 3), torch.ones(2, 2, 4))
    assert SparseArch is not FusedSparseArch


def test_an_empty_batch_is_an_empty_result() -> None:
    module = InteractionArch(2)
    fuse_modules(module)
    dense = torch.ones(0, 4, requires_grad=True)
    result = module(dense, torch.ones(0, 2, 4))
    assert result.shape == (0, 4 + 3)
    result.sum().backward()
    assert dense.grad is not None and dense.grad.shape == (0, 4)


def test_small_bottom_layers_in_float32_do_not_leave_the_fast_interaction() -> None:
    """Regression: with rows of 32 elements and small layers, torchrec's own interaction took twice the time."""
    fused = InteractionArch(3)
    fuse_modules(nn.Sequential(fused))
    torch.manual_seed(2)
    dense, sparse = torch.randn(5, 32, requires_grad=True), torch.randn(5, 3, 32).bfloat16().requires_grad_()
    output = fused(dense, sparse)
    assert output.dtype == torch.bfloat16 and "_Interaction" in type(output.grad_fn).__name__
    exact = InteractionArch(3)(dense.detach().bfloat16().float(), sparse.detach().float())
    torch.testing.assert_close(output.float(), exact, rtol=2**-8, atol=1e-5)
    output.float().sum().backward()
    assert dense.grad is not None and dense.grad.dtype == torch.float32
    assert sparse.grad is not None and sparse.grad.dtype == torch.bfloat16
