"""The table of each feature, and the settings of each table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elastichost.arena.rows.row_kernels import initialise_rows
from elastichost.config.job import JobSpec
from elastichost.config.tables import parse_init, resolve_tables, table_settings
from elastichost.config.values import LARGEST_INITIAL
from elastichost.errors import ConfigError
from elastichost.specs import KeyKind

COLUMNS = ("customer", "item", "word", "recent_items")
KINDS: dict[str, KeyKind] = {"customer": "int", "item": "int", "word": "string", "recent_items": "int"}


def job_with(tables: dict[str, Any], train: dict[str, Any] | None = None) -> JobSpec:
    data = {"train": ["/t.parquet"], "label": "label", "categorical": list(COLUMNS)}
    return JobSpec.model_validate({"model": {"build": "m:b"}, "data": data, "tables": tables, "train": train or {}})


def accepted(rule: str) -> str:
    """An init rule as a job has it. Raises ValidationError for one that the job file refuses."""
    init = job_with({"item": {"init": rule}}).tables["item"].init
    assert init is not None
    return init


def test_every_unnamed_column_gets_its_own_table() -> None:
    tables = resolve_tables(job_with({"shop": {"features": ["item", "recent_items"], "rows": 10}}), KINDS)
    assert [(table.name, table.features, table.key_kind, table.rows) for table in tables] == [
        ("customer", ("customer",), "int", 0),
        ("shop", ("item", "recent_items"), "int", 10),
        ("word", ("word",), "string", 0),
    ]
    assert [table.index for table in tables] == [0, 1, 2]


def test_tables_come_in_the_order_of_their_first_feature() -> None:
    job = job_with({"z": {"features": ["recent_items"]}, "a": {"features": ["word", "customer"]}}, {})
    with pytest.raises(ConfigError):
        resolve_tables(job, KINDS)
    same = dict.fromkeys(COLUMNS, KINDS["item"])
    assert [table.name for table in resolve_tables(job, same)] == ["a", "item", "z"]


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"item": {"rows": 10, "admit_after": 2}}, "tables.item: admit_after is for dynamic tables, and rows = 10"),
        ({"default": {"rows": 10, "evict_after_samples": 9}}, "tables.default: evict_after_samples is for dynamic"),
        ({"item": {"out_of_range": "modulo"}}, "tables.item: out_of_range is for tables with a number of rows"),
        ({"item": {"rows": "dynamic", "out_of_range": "error"}, "default": {"rows": 5}}, "tables.item: out_of_range"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(tables: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match="1 validation error") as caught:
        job_with(tables)
    assert problem in str(caught.value)


def test_a_default_is_for_the_tables_that_it_fits() -> None:
    tables = {"default": {"out_of_range": "modulo", "admit_after": 2}, "item": {"rows": 10}}
    assert [table.rows for table in resolve_tables(job_with(tables), KINDS)] == [0, 10, 0, 0]
    dynamic = {"default": {"rows": "dynamic", "out_of_range": "modulo"}}
    assert [table.rows for table in resolve_tables(job_with(dynamic), KINDS)] == [0, 0, 0, 0]


def test_a_table_has_one_kind_of_ids() -> None:
    job = job_with({"mixed": {"features": ["item", "word"]}})
    with pytest.raises(ConfigError) as caught:
        resolve_tables(job, KINDS)
    assert caught.value.problems == (
        "tables.mixed: int ids and string ids are different keys and need separate tables: "
        "item holds int ids, word holds string ids",
    )


def test_a_column_of_unknown_kind_is_named() -> None:
    with pytest.raises(ConfigError, match=r"tables.word: the reader of the data reports no kind of ids"):
        resolve_tables(job_with({}), {name: kind for name, kind in KINDS.items() if name != "word"})


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"a": {"features": ["item"]}, "b": {"features": ["item"]}}, "named in tables.a already"),
        ({"a": {"features": ["item", "item"]}}, "named twice"),
        ({"a": {"features": []}}, "at least one feature"),
        ({"itm": {"dim": 4}}, 'did you mean "item"?'),
        ({"item": {"features": ["recent_items"]}}, "column 'item' is not in it"),
        ({"item": {"features": ["recent_items"]}, "b": {"features": ["item"]}}, "belongs to tables.b"),
    ],
)
def test_tables_that_do_not_fit_their_columns(tables: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match="tables") as caught:
        job_with(tables)
    assert expected in str(caught.value)


def test_own_settings_win_over_the_default_table_over_the_built_in() -> None:
    default = {"dim": 8, "rows": 100, "pooling": "mean", "optimizer": {"lr": 0.5}}
    own = {"features": ["item"], "rows": "dynamic", "optimizer": {"eps": 0.25}, "admit_after": 3}
    train = {"optimizer_rows": {"name": "adagrad", "lr": 0.1, "eps": 1e-3}}
    job = job_with({"default": default, "shop": own}, train)
    shop, word = table_settings(job, "shop"), table_settings(job, "word")
    assert (shop.dim, shop.rows, shop.is_dynamic, shop.pooling, shop.admit_after) == (8, 0, True, "mean", 3)
    assert (shop.optimizer.name, shop.optimizer.lr, shop.optimizer.eps) == ("adagrad", 0.5, 0.25)
    assert (word.features, word.rows, word.optimizer.lr, word.optimizer.eps) == (("word",), 100, 0.5, 1e-3)


def test_unknown_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no table 'wrod' in this job; did you mean \"word\"\?"):
        table_settings(job_with({}), "wrod")


@given(st.data())
def test_every_feature_is_in_exactly_one_table(data: st.DataObject) -> None:
    owner = data.draw(st.lists(st.sampled_from(["t0", "t1", ""]), min_size=len(COLUMNS), max_size=len(COLUMNS)))
    tables: dict[str, Any] = {}
    for column, name in zip(COLUMNS, owner, strict=True):
        if name:
            tables.setdefault(name, {"features": []})["features"].append(column)
    resolved = resolve_tables(job_with(tables), dict.fromkeys(COLUMNS, "int"))
    assert sorted(column for table in resolved for column in table.features) == sorted(COLUMNS)
    first = [COLUMNS.index(table.features[0]) for table in resolved]
    assert first == sorted(first)


@given(st.floats(-LARGEST_INITIAL, LARGEST_INITIAL), st.floats(-LARGEST_INITIAL, LARGEST_INITIAL))
def test_parsed_init_rules_have_the_same_numbers(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert parse_init(accepted(f"uniform({low!r}, {high!r})")) == (low, high)
    assert parse_init(accepted(f" uniform ( {low!r},{high!r} ) ")) == (low, high)
    assert parse_init(accepted(f"constant({one!r})")) == (one, one)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "uniform",
        "uniform(1)",
        "uniform(2, 1)",
        "constant(1, 2)",
        "constant()",
        "zeros()",
        "constant(1",
        "constant(1_0)",
        "constant(nan)",
        "uniform(0, inf)",
    ],
)
def test_a_job_file_with_another_init_rule_is_refused(rule: str) -> None:
    with pytest.raises(ValidationError, match=r'"uniform\(low, high\)" with low <= high, or "constant\(value\)"'):
        accepted(rule)


@pytest.mark.parametrize("rule", ["constant(1e999)", "uniform(-1e999, 1e999)", "constant(1e39)", "uniform(0, 1e39)"])
def test_a_job_file_with_initial_values_that_rows_cannot_hold_is_refused(rule: str) -> None:
    with pytest.raises(ValidationError, match=r"numbers from -3\.38e\+38 to 3\.38e\+38, which rows can hold"):
        accepted(rule)


def test_rows_of_both_precisions_hold_the_largest_initial_value() -> None:
    rows, keys = np.arange(2), np.arange(2)
    for low, high in (parse_init("constant(3.38e38)"), parse_init("uniform(-3.38e38, 3.38e38)")):
        exact, rounded = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.uint16)
        initialise_rows(exact, rows, keys, 4, low, high, np.uint64(1))
        initialise_rows(rounded, rows, keys, 4, low, high, np.uint64(1))
        for values in (exact, (rounded.astype(np.uint32) << 16).view(np.float32)):
            assert np.isfinite(values).all() and np.abs(values).max() > 1e37


def test_a_column_may_be_named_as_the_section_for_all_tables() -> None:
    data = {"train": ["/t.parquet"], "label": "label", "categorical": ["default", "item"]}
    job = JobSpec.model_validate({"model": {"build": "m:b"}, "data": data, "tables": {"default": {"dim": 8}}})
    tables = resolve_tables(job, {"default": "string", "item": "int"})
    assert [(table.name, table.features) for table in tables] == [("default", ("default",)), ("item", ("item",))]
    assert table_settings(job, "default").dim == 8
