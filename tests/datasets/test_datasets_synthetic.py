"""Synthetic data: every range of samples has the same bits, and the true probabilities have a useful AUC."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from elastichost.datasets import open_reader
from elastichost.datasets.settings import DataSettings, data_settings
from elastichost.datasets.synthetic.reader import TEST_FIRST_INDEX, SyntheticReader, SyntheticShape, synthetic_shape
from elastichost.errors import DataError
from tests.effort import examples

from .conftest import all_batches, assert_same_samples, ids_of, load, only_unit


def synthetic(limit_rows: int = 0, **changes: Any) -> SyntheticReader:
    base: dict[str, Any] = {
        "first_index": 0,
        "samples": 300,
        "tables": 4,
        "table_rows": 50,
        "zipf": 1.05,
        "dense": 3,
        "multi_valued": 1,
        "list_length": 3,
        "interactions": 2,
        "seed": 0,
        "unit_rows": 1000,
    }
    shape = SyntheticShape(**(base | changes))
    return SyntheticReader(
        shape,
        DataSettings(
            split="train",
            patterns=(),
            format="synthetic",
            labels=("label",),
            dense=tuple(f"d{index}" for index in range(shape.dense)),
            categorical=tuple(f"c{index}" for index in range(shape.tables)),
            limit_rows=limit_rows,
        ),
    )


def area_under_curve(labels: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> float:
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    positive = labels > 0.5
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(labels) - count)))


@hypothesis_settings(max_examples=examples(30), deadline=None)
@given(
    start=st.integers(0, 300),
    length=st.integers(0, 300),
    batch_size=st.integers(1, 301),
    shuffle_seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    multi_valued=st.integers(0, 4),
)
def test_a_range_that_is_read_alone_has_the_same_bits(
    start: int, length: int, batch_size: int, shuffle_seed: int | None, multi_valued: int
) -> None:
    stop = min(300, start + length)
    reader = synthetic(multi_valued=multi_valued)
    unit = only_unit(reader)
    (whole,) = reader.batches(unit, 0, 300, 300, shuffle_seed)
    parts = list(synthetic(multi_valued=multi_valued).batches(unit, start, stop, batch_size, shuffle_seed))
    assert [position for part in parts for position in range(part.start, part.stop)] == list(range(start, stop))
    if start == stop:
        return
    assert [column[start:stop] for column in ids_of([whole], 4)] == ids_of(parts, 4)
    for name in ("dense", "labels", "truth"):
        np.testing.assert_array_equal(
            getattr(whole, name)[start:stop], np.concatenate([getattr(p, name) for p in parts])
        )


def test_units_do_not_change_the_samples() -> None:
    assert_same_samples(all_batches(synthetic()), all_batches(synthetic(unit_rows=37)), 4)
    assert_same_samples(all_batches(synthetic(limit_rows=150)), all_batches(synthetic(samples=150)), 4)


def test_a_shuffled_unit_has_the_same_samples_in_another_order() -> None:
    reader = synthetic(multi_valued=0)
    in_order, shuffled = (all_batches(reader, 300, seed)[0] for seed in (None, 5))
    assert not np.array_equal(in_order.dense, shuffled.dense)
    assert sorted(map(tuple, in_order.dense.tolist())) == sorted(map(tuple, shuffled.dense.tolist()))


def test_the_seed_and_the_split_change_the_samples() -> None:
    (first,) = all_batches(synthetic(), 300)
    for other in (synthetic(seed=1), synthetic(first_index=TEST_FIRST_INDEX)):
        (second,) = all_batches(other, 300)
        assert not np.array_equal(first.dense, second.dense)


@pytest.mark.parametrize(
    "changes",
    [{}, {"zipf": 0.0}, {"zipf": 1.0}, {"multi_valued": 5}, {"table_rows": 10}, {"seed": 3}, {"dense": 0}],
    ids=str,
)
def test_the_true_probabilities_have_an_auc_of_about_four_fifths(changes: dict[str, Any]) -> None:
    shape = {"samples": 20_000, "tables": 26, "table_rows": 100_000, "dense": 13, "multi_valued": 0, "interactions": 8}
    batches = all_batches(synthetic(**(shape | {"unit_rows": 20_000} | changes)), 20_000)
    labels = batches[0].labels[:, 0]
    truth = batches[0].truth
    assert truth is not None
    assert 0.78 < area_under_curve(labels, truth) < 0.83
    assert 0.2 < labels.mean() < 0.3
    assert abs(float(labels.mean()) - float(truth.mean())) < 0.015


def test_ids_are_in_range_and_their_frequencies_follow_the_exponent() -> None:
    (batch,) = all_batches(
        synthetic(samples=20_000, unit_rows=20_000, tables=2, table_rows=1000, multi_valued=1), 20_000
    )
    columns = ids_of([batch], 2)
    assert {len(ids) for ids in columns[0]} == {1}
    assert {len(ids) for ids in columns[1]} == {0, 1, 2, 3}
    for column in columns:
        keys, counts = np.unique([key for ids in column for key in ids], return_counts=True)
        assert keys.min() >= 0
        assert keys.max() < 1000
        assert counts.max() > 50 * np.median(counts)


def test_a_job_with_synthetic_data(tmp_path: Path) -> None:
    job = load(
        tmp_path,
        'format = "synthetic"\nlimit_rows = 500\n'
        "[data.synthetic]\nrows = 1000\ntest_rows = 30\ntables = 3\ntable_rows = 10\ndense = 2\nunit_rows = 400",
    )
    train, test = open_reader(job, "train").describe(), open_reader(job, "test").describe()
    assert [unit.samples for unit in train.units] == [400, 100]
    assert (test.samples, test.num_dense, test.key_kinds) == (30, 2, {"c0": "int", "c1": "int", "c2": "int"})


def test_columns_that_are_not_generated_are_refused(tmp_path: Path) -> None:
    job = load(tmp_path, 'format = "synthetic"')
    asked = replace(data_settings(job, "train"), categorical=("item",))
    with pytest.raises(DataError, match="the columns of format synthetic are fixed"):
        synthetic_shape(job.data.synthetic, asked)
