"""What fits a column: no value is changed into another kind of value, and the first that does not fit is found."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets.spool.column_fit import array_of, first_misfit, fitted, plain_type, type_words


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1], pa.int32()), pa.int64()),
        (pa.array([3.0, None]), pa.int64()),
        (pa.array([3]), pa.float64()),
        (pa.nulls(2), pa.string()),
        (pa.array([None], pa.int8()), pa.string()),
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array([[1]], pa.list_(pa.int8())), pa.list_(pa.int64())),
        (pa.array([[], None]), pa.list_(pa.string())),
        (pa.array([True]), pa.bool_()),
    ],
)
def test_types_of_one_kind_fit(values: pa.Array, expected: pa.DataType) -> None:
    made = fitted(pa.chunked_array([values]), expected)
    assert made is not None and made.type == expected
    assert made.to_pylist() == values.to_pylist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.5], pa.int64()),
        ([float("nan")], pa.int64()),
        ([2**60 + 1], pa.float64()),
        ([300], pa.int8()),
        (["3"], pa.int64()),
        ([3], pa.string()),
        ([True], pa.int64()),
        ([1], pa.bool_()),
        ([True], pa.float64()),
        ([1], pa.null()),
        ([[1]], pa.int64()),
        ([[1]], pa.list_(pa.string())),
        ([datetime.date(2026, 1, 1)], pa.int32()),
    ],
)
def test_other_kinds_and_rounded_values_do_not_fit(values: list[object], expected: pa.DataType) -> None:
    assert fitted(pa.chunked_array([pa.array(values)]), expected) is None


@pytest.mark.parametrize("values", [[1, "a"], [True, 1], [2**70], [object()], [[1], ["a"]], ["\ud800"]])
def test_values_without_a_common_type_have_none(values: list[object]) -> None:
    assert array_of(values) is None


def test_nan_is_a_missing_value_in_a_frame_only() -> None:
    found = array_of(pd.Series([1.0, np.nan]))
    assert found is not None and found.null_count == 1
    found = array_of([1.0, float("nan")])
    assert found is not None and found.null_count == 0


@given(st.lists(st.sampled_from([1, 2, None, "a", 2.5, True]), min_size=1))
def test_the_first_misfit_is_that_of_a_search_one_by_one(values: list[object]) -> None:
    def fits(part: object) -> bool:
        column = array_of(part)
        return column is not None and fitted(column, pa.int64()) is not None

    if not fits(values):
        assert first_misfit(values, fits) == next(at for at in range(len(values)) if not fits(values[: at + 1]))


def test_types_in_words() -> None:
    assert plain_type(pa.dictionary(pa.int8(), pa.string())) == pa.string()
    assert type_words(pa.list_(pa.int64())) == "lists of int64"
