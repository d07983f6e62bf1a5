"""What makes two descriptions of a model the same."""

from __future__ import annotations

import msgspec

from elastichost.specs import DenseSpec, ModelSpec, TableSpec

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
