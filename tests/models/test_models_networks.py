"""The five models against the formulas of their papers, computed with loops."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor, PoolingType

from elastichost import models
from elastichost.models.networks.layers import CompressedInteraction, CrossNetwork, factorization_machine

NAMES = ("dcn", "deepfm", "dlrm", "wide_deep", "xdeepfm")
FEATURES = ["item", "recent", "user"]
BATCH = 3


def tables(dim: int = 4, user_dim: int | None = None) -> list[EmbeddingBagConfig]:
    """Two tables: `item` for two features, `user` for one."""
    return [
        EmbeddingBagConfig(
            name="item", embedding_dim=dim, num_embeddings=6, feature_names=["item", "recent"], pooling=PoolingType.MEAN
        ),
        EmbeddingBagConfig(name="user", embedding_dim=user_dim or dim, num_embeddings=5, feature_names=["user"]),
    ]


def sparse() -> KeyedJaggedTensor:
    """Bags of 0 to 3 ids, with keys in another order than the tables."""
    return KeyedJaggedTensor(
        keys=["user", "recent", "item"],
        values=torch.tensor([0, 4, 1, 1, 2, 5, 3, 3, 0]),
        lengths=torch.tensor([1, 1, 1, 2, 0, 1, 1, 1, 1]),
    )


def pooled(model: Any, collection: str, feature: str, sample: int) -> torch.Tensor:
    """The vector of one bag, computed from the weights."""
    bags = model.get_submodule(collection)
    config = next(c for c in bags.embedding_bag_configs() if feature in c.feature_names)
    weights = bags.embedding_bags[config.name].weight
    ids = sparse()[feature].to_dense()[sample].long()
    total: torch.Tensor = torch.zeros(config.embedding_dim)
    for i in ids:
        total = total + weights[i]
    return total / len(ids) if config.pooling == PoolingType.MEAN and len(ids) else total


def fields_of(model: Any, collection: str, sample: int) -> list[torch.Tensor]:
    return [pooled(model, collection, feature, sample) for feature in FEATURES]


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, elastichost.models as m; assert 'dlrm' in dir(m); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_is_its_build_function_after_any_import() -> None:
    from elastichost.models.networks import dlrm as module

    assert models.dlrm is module.build


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'dlrn'"):
        models.dlrn  # noqa: B018


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("num_labels", [1, 3])
def test_shapes_and_gradients(name: str, num_dense: int, num_labels: int) -> None:
    torch.manual_seed(1)
    model = getattr(models, name)(tables(), num_dense, num_labels=num_labels)
    logits = model(torch.rand(BATCH, num_dense), sparse())
    assert logits.shape == ((BATCH,) if num_labels == 1 else (BATCH, num_labels))
    nn.functional.binary_cross_entropy_with_logits(logits, torch.ones_like(logits)).backward()  # type: ignore[no-untyped-call]
    without = [n for n, p in model.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert without == []


@pytest.mark.parametrize("name", NAMES)
def test_one_step_lowers_the_loss(name: str) -> None:
    torch.manual_seed(2)
    model = getattr(models, name)(tables(), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dense, labels = torch.rand(BATCH, 2), torch.tensor([1.0, 0.0, 1.0])
    losses = []
    for _ in range(2):
        loss = nn.functional.binary_cross_entropy_with_logits(model(dense, sparse()), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]


def randomised(model: nn.Module) -> Any:
    """Sets large random values, because zeros and small initial values would hide mistakes."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def first_order(model: Any, part: str, dense: torch.Tensor, sample: int) -> torch.Tensor:
    first = model.get_submodule(part)
    total: torch.Tensor = first.bias[0] + (first.dense.weight[0] * dense[sample]).sum()
    for feature in FEATURES:
        suffix_bags = first.collection.embedding_bags
        name = next(n for n in suffix_bags if n.startswith("item" if feature != "user" else "user"))
        for i in sparse()[feature].to_dense()[sample].long():
            total = total + suffix_bags[name].weight[i, 0]
    return total


def test_wide_deep_formula() -> None:
    torch.manual_seed(3)
    model, dense = randomised(models.wide_deep(tables(), 2, hidden=[5, 3])), torch.rand(BATCH, 2)
    logits = model(dense, sparse())
    for sample in range(BATCH):
        activations = torch.cat([*fields_of(model, "embeddings.collection", sample), dense[sample]])
        for layer in (model.deep[0], model.deep[2]):
            activations = torch.relu(layer.weight @ activations + layer.bias)
        expected = first_order(model, "wide", dense, sample) + model.head.weight[0] @ activations
        torch.testing.assert_close(logits[sample], expected)
    assert sorted(model.wide.collection.embedding_bags) == ["item_wide", "user_wide"]


def test_deepfm_formula() -> None:
    torch.manual_seed(4)
    model, dense = randomised(models.deepfm(tables(), 2, hidden=[5])), torch.rand(BATCH, 2)
    logits = model(dense, sparse())
    for sample in range(BATCH):
        fields = fields_of(model, "embeddings.collection", sample)
        fields += [dense[sample, j] * model.dense_factors[j] for j in range(2)]
        second = sum((a @ b for a, b in itertools.combinations(fields, 2)), torch.tensor(0.0))
        deep = torch.relu(model.deep[0].weight @ torch.cat(fields) + model.deep[0].bias)
        expected = first_order(model, "first_order", dense, sample) + second + model.head.weight[0] @ deep
        torch.testing.assert_close(logits[sample], expected)
    assert sorted(model.first_order.collection.embedding_bags) == ["item_first", "user_first"]


def test_factorization_machine_is_the_sum_of_all_pairs() -> None:
    fields = torch.randn(2, 5, 3)
    expected = [sum(float(v[i] @ v[j]) for i in range(5) for j in range(i)) for v in fields]
    torch.testing.assert_close(factorization_machine(fields), torch.tensor(expected))


@pytest.mark.parametrize("rank", [None, 2])
def test_cross_network_formula(rank: int | None) -> None:
    torch.manual_seed(5)
    network: Any = CrossNetwork(4, layers=3, rank=rank)
    start = torch.randn(2, 4)
    crossed = network(start)
    for sample in range(2):
        x = start[sample]
        for layer in network.layers:
            if isinstance(layer, nn.Linear):
                product = layer.weight @ x + layer.bias
            else:
                product = layer[1].weight @ (layer[0].weight @ x) + layer[1].bias
            x = torch.stack([start[sample][i] * product[i] + x[i] for i in range(4)])
        torch.testing.assert_close(crossed[sample], x)


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
def test_dcn_formula(structure: str) -> None:
    torch.manual_seed(6)
    model = randomised(models.dcn(tables(user_dim=8), 2, hidden=[5], cross_layers=2, structure=structure))
    dense = torch.rand(BATCH, 2)
    logits = model(dense, sparse())
    for sample in range(BATCH):
        start = torch.cat([*fields_of(model, "embeddings.collection", sample), dense[sample]])
        crossed = model.cross(start.unsqueeze(0))[0]
        deep = torch.relu(model.deep[0].weight @ (crossed if structure == "stacked" else start) + model.deep[0].bias)
        final = deep if structure == "stacked" else torch.cat([crossed, deep])
        torch.testing.assert_close(logits[sample], model.head.weight[0] @ final + model.head.bias[0])


def test_compressed_interaction_formula() -> None:
    torch.manual_seed(7)
    fields, dim, sizes = 3, 4, (5, 2)
    network: Any = CompressedInteraction(fields, sizes)
    start = torch.randn(2, fields, dim)
    result = network(start)
    for sample in range(2):
        first = [start[sample, j] for j in range(fields)]
        previous, pooled_sums = first, []
        for size, convolution in zip(sizes, network.convolutions, strict=True):
            weights = convolution.weight.view(size, len(previous), fields)
            current = []
            for h in range(size):
                vector = torch.zeros(dim)
                for i, j in itertools.product(range(len(previous)), range(fields)):
                    vector = vector + weights[h, i, j] * previous[i] * first[j]
                current.append(vector)
            pooled_sums += [vector.sum() for vector in current]
            previous = current
        torch.testing.assert_close(result[sample], torch.stack(pooled_sums))


def test_xdeepfm_formula() -> None:
    torch.manual_seed(8)
    model, dense = randomised(models.xdeepfm(tables(), 2, interactions=[3], hidden=[5])), torch.rand(BATCH, 2)
    logits = model(dense, sparse())
    for sample in range(BATCH):
        fields = fields_of(model, "embeddings.collection", sample)
        interaction = model.interaction(torch.stack(fields).unsqueeze(0))[0]
        deep = torch.relu(model.deep[0].weight @ torch.cat([*fields, dense[sample]]) + model.deep[0].bias)
        expected = first_order(model, "linear", dense, sample)
        expected = expected + model.interaction_head.weight[0] @ interaction + model.deep_head.weight[0] @ deep
        torch.testing.assert_close(logits[sample], expected)


@pytest.mark.parametrize("num_dense", [0, 2])
def test_dlrm_formula(num_dense: int) -> None:
    torch.manual_seed(9)
    arguments: dict[str, Any] = {"bottom": [3, 4]} if num_dense else {}
    model, dense = randomised(models.dlrm(tables(), num_dense, top=[5, 1], **arguments)), torch.rand(BATCH, num_dense)
    logits = model(dense, sparse())
    network = model.network if num_dense else model
    prefix = "network." if num_dense else ""
    for sample in range(BATCH):
        fields = fields_of(model, f"{prefix}sparse_arch.embedding_bag_collection", sample)
        if num_dense:
            bottom = network.dense_arch(dense[sample : sample + 1])[0]
            every = [bottom, *fields]
            # torchrec takes the upper triangle, row by row
            products = [every[i] @ every[j] for i in range(len(every)) for j in range(i + 1, len(every))]
            top = torch.cat([bottom, torch.stack(products)])
        else:
            top = torch.stack([fields[i] @ fields[j] for i in range(len(fields)) for j in range(i)])
        torch.testing.assert_close(logits[sample], network.over_arch(top.unsqueeze(0))[0, 0])


def test_dlrm_default_sizes_follow_the_tables() -> None:
    assert models.dlrm(tables(dim=16), 2, num_labels=2)(torch.rand(BATCH, 2), sparse()).shape == (BATCH, 2)


Build = Callable[[], nn.Module]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.dlrm(tables(user_dim=8), 2), "table 'user' has dim 8"),
        (lambda: models.deepfm(tables(user_dim=8), 2), "table 'user' has dim 8"),
        (lambda: models.xdeepfm(tables(user_dim=8), 2), "table 'user' has dim 8"),
        (lambda: models.dlrm(tables(), 2, bottom=[8, 3]), "must end in the embedding dimension 4"),
        (lambda: models.dlrm(tables(), 2, top=[8, 2]), "must end in the number of labels, 1"),
        (lambda: models.dlrm(tables(), 2, top=[1]), "at least 2"),
        (lambda: models.dlrm(tables()[1:], 0), "at least two categorical features"),
        (lambda: models.dcn(tables(), 2, structure="serial"), "'stacked', 'parallel'"),
        (lambda: models.dcn(tables(), 2, rank=0), "rank = 0"),
        (lambda: models.dcn(tables(), 2, cross_layers=0), "cross_layers = 0"),
        (lambda: models.wide_deep(tables(), 2, hidden=[]), "hidden = \\[\\]"),
        (lambda: models.wide_deep(tables(), 2, hidden=[4, -1]), "must be positive"),
        (lambda: models.wide_deep(tables(), 2, dropout=1.0), "dropout = 1.0"),
        (lambda: models.wide_deep([], 2), "at least one table"),
    ],
)
def test_errors_name_the_argument_or_the_table(build: Build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
