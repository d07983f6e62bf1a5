"""What makes two descriptions of a model the same."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.arena.rows.bag_updates import OPTIMIZER_CODES, state_floats
from elastichost.specs import (
    DenseSpec,
    DenseTensor,
    EmbeddingSpec,
    ModelSpec,
    RowOptimizer,
    RowOptimizerSpec,
    TableSpec,
)

TABLES = (TableSpec("user", 0, ("user",), "int", rows=0),)
MODEL = ModelSpec(TABLES, (), DenseSpec((), 8, 8), 2, 1, list_features=("user",))


def test_a_checkpoint_that_does_not_say_which_columns_hold_lists_is_of_the_same_model() -> None:
    written = msgspec.to_builtins(MODEL)
    del written["list_features"]  # as an earlier version wrote it
    before = msgspec.convert(written, ModelSpec)
    assert before.list_features is None
    assert before != MODEL
    assert before.is_same_model(MODEL)
    assert MODEL.is_same_model(before)


def test_other_tables_or_columns_are_another_model() -> None:
    assert not MODEL.is_same_model(msgspec.structs.replace(MODEL, tables=()))
    assert not MODEL.is_same_model(msgspec.structs.replace(MODEL, num_dense_features=3))


@pytest.mark.parametrize(
    ("name", "expected"), [("sgd", 0), ("adagrad", 8), ("rowwise_adagrad", 1), ("adam", 2 * 8 + 1)]
)
def test_the_state_of_a_row_is_what_the_kernels_use(name: RowOptimizer, expected: int) -> None:
    spec = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), 6, "sum", RowOptimizerSpec(name), 0, 0)
    assert spec.state_floats_per_row == expected == state_floats(OPTIMIZER_CODES[name], spec.padded_dim)


def test_an_optimizer_of_an_earlier_version_is_the_same_one() -> None:
    """Checkpoints that were written before rows had betas and weight decay can be resumed."""
    older = {"name": "adagrad", "learning_rate": 0.3, "eps": 1e-6}
    assert msgspec.convert(older, RowOptimizerSpec) == RowOptimizerSpec("adagrad", 0.3, 1e-6)


def test_a_parameter_that_is_frozen_or_trained_is_the_same_parameter() -> None:
    """A run may begin from a checkpoint with a part of the network frozen."""
    tensors = (DenseTensor("a", (2, 2), 0), DenseTensor("b", (4,), 4))
    trained = msgspec.structs.replace(MODEL, dense=DenseSpec(tensors, 8, 8))
    frozen = (msgspec.structs.replace(tensors[0], is_frozen=True), tensors[1])
    other = msgspec.structs.replace(MODEL, dense=DenseSpec(frozen, 8, 8))
    assert trained.is_same_model(other)
    assert other.is_same_model(trained)
    assert (trained.dense.frozen, other.dense.frozen) == ((), ((0, 4),))


def test_embeddings_of_one_name_have_initial_weights_of_their_own() -> None:
    facts = ("bag", ("f",), 4, "sum", RowOptimizerSpec("sgd"), 0, 1)
    embeddings = tuple(EmbeddingSpec(name, i, 0, f"m{i}", *facts) for i, name in enumerate(["user", "item", "user"]))
    model = msgspec.structs.replace(MODEL, embeddings=embeddings)
    assert [model.initial_name(e) for e in embeddings] == ["m0/user", "item", "m2/user"]
