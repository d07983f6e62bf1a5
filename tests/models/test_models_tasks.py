"""MMoE, DIN and the two towers against the formulas of their papers, computed with loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.datasets.utils import Batch

from elastichost import models
from elastichost.models.networks.two_towers import _ids, in_batch_loss

DIM, BATCH = 4, 4
IDS = {
    "item": [[3], [], [5], [1]],
    "recent": [[0, 4, 4], [2], [], [1, 5]],
    "user": [[0], [1], [2], [3]],
    "words": [[1, 2], [], [0], [3]],
}


def tables(dim: int = DIM) -> list[EmbeddingBagConfig]:
    """`item` and `recent` share a table, which stands between two others."""
    return [
        EmbeddingBagConfig(name="users", embedding_dim=dim, num_embeddings=4, feature_names=["user"]),
        EmbeddingBagConfig(
            name="goods",
            embedding_dim=dim,
            num_embeddings=6,
            feature_names=["item", "recent"],
            pooling=PoolingType.MEAN,
        ),
        EmbeddingBagConfig(name="words", embedding_dim=dim + 1, num_embeddings=4, feature_names=["words"]),
    ]


def sparse(samples: slice = slice(None)) -> KeyedJaggedTensor:
    """The keys in another order than in the tables."""
    bags = [bag for ids in IDS.values() for bag in ids[samples]]
    return KeyedJaggedTensor(
        keys=list(IDS),
        values=torch.tensor([one for bag in bags for one in bag], dtype=torch.int64),
        lengths=torch.tensor([len(bag) for bag in bags]),
    )


def randomised(model: nn.Module) -> Any:
    """Sets large random values, because small initial values would hide mistakes."""
    torch.manual_seed(4)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """The weights of each column's table."""
    found = {}
    for table in tables():
        name = f"{table.name}.weight"
        found |= {
            feature: weight
            for feature in table.feature_names
            for path, weight in model.named_parameters()
            if path.endswith(name)
        }
    return found


def pooled(weights: dict[str, torch.Tensor], feature: str, sample: int) -> torch.Tensor:
    rows = [weights[feature][one] for one in IDS[feature][sample]]
    if not rows:
        return torch.zeros(weights[feature].shape[1])
    total = torch.stack(rows).sum(dim=0)
    return total / len(rows) if feature in ("item", "recent") else total


def test_mmoe_formula() -> None:
    model = randomised(models.mmoe(tables(), 2, num_labels=3, experts=2, hidden=[5, 3], tower=[2]))
    dense, weights = torch.rand(BATCH, 2), weights_of(model)
    logits = model(dense, sparse())
    assert logits.shape == (BATCH, 3)
    for sample in range(BATCH):
        x = torch.cat([*(pooled(weights, name, sample) for name in ("user", "item", "recent", "words")), dense[sample]])
        for task in range(3):
            shares = torch.exp(model.gates[task].weight @ x)
            shares = shares / shares.sum()
            mixed = sum((shares[i] * model.experts[i](x) for i in range(2)), torch.zeros(3))
            torch.testing.assert_close(logits[sample, task], model.towers[task](mixed)[0])


def din(**more: Any) -> Any:
    return models.din(tables(), 2, attention={"recent": "item"}, attention_hidden=[5], hidden=[6], **more)


def test_din_formula() -> None:
    """The second sample has no target, the third no sequence."""
    model = randomised(din())
    dense, weights = torch.rand(BATCH, 2), weights_of(model)
    logits = model(dense, sparse())
    for sample in range(BATCH):
        target = sum((weights["item"][one] for one in IDS["item"][sample]), torch.zeros(DIM))
        interest = torch.zeros(DIM)
        for one in IDS["recent"][sample]:
            e = weights["recent"][one]
            interest = interest + model.units[0].weight(torch.cat([e, target, e - target, e * target])) * e
        others = [pooled(weights, name, sample) for name in ("user", "words")]
        inputs = torch.cat([dense[sample], *others, target, interest])
        torch.testing.assert_close(logits[sample], model.head(model.over(inputs))[0])


def test_din_sees_the_sequence_of_the_sample_alone() -> None:
    model = randomised(din(num_labels=2))
    dense = torch.rand(BATCH, 2)
    together = model(dense, sparse())
    for sample in range(BATCH):
        alone = model(dense[sample : sample + 1], sparse(slice(sample, sample + 1)))
        torch.testing.assert_close(together[sample], alone.view(-1))


def test_din_has_gradients_and_takes_a_batch_without_any_id() -> None:
    model = randomised(din())
    model(torch.rand(BATCH, 2), sparse()).sum().backward()
    assert [name for name, one in model.named_parameters() if one.grad is None or not bool(one.grad.abs().sum())] == []
    nothing = KeyedJaggedTensor(keys=list(IDS), values=torch.empty(0, dtype=torch.int64), lengths=torch.zeros(8).int())
    assert torch.isfinite(model(torch.rand(2, 2), nothing)).all()


TOWERS: dict[str, Any] = {"user": ["user", "recent"], "item": ["item", "words"], "user_dense": [1], "item_dense": [0]}


def batch(dense: torch.Tensor, labels: torch.Tensor) -> Batch:
    return Batch(dense_features=dense, sparse_features=sparse(), labels=labels)


def test_two_towers_formula() -> None:
    model = randomised(models.two_towers(tables(), 3, **TOWERS, log_q=2, hidden=[5, 3], temperature=0.5))
    dense, labels, weights = torch.rand(BATCH, 3), torch.tensor([1.0, 1.0, 0.0, 1.0]), weights_of(model)
    loss, (same, logits, given) = model(batch(dense, labels))
    vectors = {}
    for side, columns, number in (("user", ("user", "recent"), 1), ("item", ("item", "words"), 0)):
        tower, lines = model.get_submodule(f"{side}_tower").layers, []
        for sample in range(BATCH):
            inputs = torch.cat([*(pooled(weights, name, sample) for name in columns), dense[sample, number].view(1)])
            line = tower[1].weight @ torch.relu(tower[0][0].weight @ inputs + tower[0][0].bias) + tower[1].bias
            lines.append(line / line.norm())
        vectors[side] = torch.stack(lines)
        torch.testing.assert_close(model.vectors(side, dense, sparse()), vectors[side])
    products = vectors["user"] @ vectors["item"].T / 0.5
    torch.testing.assert_close(logits, products.diagonal())
    corrected = products - dense[:, 2]
    losses = [-torch.log(torch.softmax(corrected[sample], dim=0)[sample]) for sample in (0, 1, 3)]
    torch.testing.assert_close(loss, sum(losses, torch.tensor(0.0)) / 3)
    assert same == loss and not same.requires_grad and given is labels
    evaluated, (_, again, _) = model.eval()(batch(dense, labels))
    assert evaluated == 0 and torch.equal(again, logits)


def test_the_item_of_a_sample_is_no_negative_of_it() -> None:
    users, items = torch.randn(2, 3, 4)
    ids, labels = torch.tensor([7, 8, 7]), torch.ones(3)
    loss = in_batch_loss(users, items, ids, labels, None)
    logits = users @ items.T
    first, third = (functional.cross_entropy(logits[i][[i, 1]], torch.tensor(0)) for i in (0, 2))
    second = functional.cross_entropy(logits[1], torch.tensor(1))
    torch.testing.assert_close(loss, (first + second + third) / 3)


def test_two_towers_read_no_length_on_the_host() -> None:
    """The step of a GPU is one CUDA graph, in which the host reads nothing. Values behind the last offset are room."""
    model = randomised(models.two_towers(tables(), 3, **TOWERS, log_q=2, hidden=[5, 3]))
    dense, labels, given = torch.rand(BATCH, 3), torch.tensor([1.0, 1.0, 0.0, 1.0]), sparse()
    wanted = model(batch(dense, labels))[0]
    embedded = model.embeddings(given).detach()
    model.embeddings.forward = lambda _: embedded  # `DeviceLookup` stands there on a GPU
    values = torch.cat([given.values(), torch.tensor([5, 5, 5])])
    on_gpu = KeyedJaggedTensor(given.keys(), values, offsets=given.offsets(), stride=BATCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "tolist", lambda _: pytest.fail("reads a tensor on the host"))
        patch.setattr(torch.Tensor, "item", lambda _: pytest.fail("reads a number on the host"))
        found = model(Batch(dense, on_gpu, labels))[0]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("item", [[[3], [], [3], []], [[], [], [], []], [[0], [3], [1, 3], [2]]])
def test_samples_with_one_item_have_one_number(item: list[list[int]]) -> None:
    every = [[1], [2], [], [4, 5], *item]
    given = KeyedJaggedTensor(
        keys=["user", "item"],
        values=torch.tensor([one for bag in every for one in bag], dtype=torch.int32),
        lengths=torch.tensor([len(bag) for bag in every]),
    )
    expected = [bag[-1] if bag else -1 - sample for sample, bag in enumerate(item)]
    assert _ids(given, "item", 4).tolist() == expected


def test_a_constant_of_log_q_and_a_batch_without_positives_change_nothing() -> None:
    users, items = torch.randn(2, 3, 4).requires_grad_()
    ids, log_q = torch.arange(3), torch.rand(3)
    losses = [in_batch_loss(users, items, ids, torch.ones(3), log_q + shift) for shift in (0.0, 5.0)]
    torch.testing.assert_close(*losses)
    nothing = in_batch_loss(users, items, ids, torch.zeros(3), log_q)
    assert nothing == 0 and nothing.requires_grad


def test_vectors_of_another_column() -> None:
    model: Any = models.two_towers(tables(), 3, **TOWERS)
    with pytest.raises(ValueError, match="vectors of user and item, not of words"):
        model.vectors("words", torch.rand(BATCH, 3), sparse())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.mmoe(tables(), 2, experts=0), "experts = 0"),
        (lambda: models.mmoe(tables(), 2, tower=[]), "tower = \\[\\]"),
        (lambda: models.din(tables(), 2, attention={}), "attention is empty"),
        (lambda: models.din(tables(), 2, attention={"recents": "item"}), "'recents', which is no categorical feature"),
        (lambda: models.din(tables(), 2, attention={"recent": "user"}), "two features of one table"),
        (lambda: models.din(tables(), 2, attention={"recent": "recent"}), "two features of one table"),
        (
            lambda: models.din([*tables()[:2], _wide()], 2, attention={"many": "one"}),
            "'wide' has the feature 'third', which attention does not name",
        ),
        (lambda: models.two_towers(tables(), 3, **{**TOWERS, "user": []}), "user = \\[\\]"),
        (lambda: models.two_towers(tables(), 3, **{**TOWERS, "user": ["user"]}), "'recent' must be in one of"),
        (lambda: models.two_towers(tables(), 3, **{**TOWERS, "item": ["itm"]}), "'itm', which is no categorical"),
        (lambda: models.two_towers(tables(), 3, **TOWERS, log_q=3), "log_q names the dense feature 3"),
        (lambda: models.two_towers(tables(), 3, **TOWERS, temperature=0), "temperature = 0"),
        (lambda: models.two_towers(tables(), 3, **TOWERS, num_labels=2), "one label, not 2"),
    ],
)
def test_errors_name_the_argument(build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def _wide() -> EmbeddingBagConfig:
    return EmbeddingBagConfig(name="wide", embedding_dim=4, num_embeddings=3, feature_names=["one", "many", "third"])
