"""Facts about columns of each type of Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elastichost.datasets.inference.columns import ColumnFacts, facts_of
from elastichost.datasets.inference.sample import FileSample


def fact(values: pa.Array) -> ColumnFacts:
    return facts_of(FileSample("parquet", pa.table({"c": values})))[0]


def test_numbers() -> None:
    found = fact(pa.array([3, None, 9, 3]))
    assert (found.type, found.rows, found.nulls, found.distinct) == ("int", 4, 1, 2)
    assert (found.least, found.middle, found.most, found.examples) == (3.0, 3.0, 9.0, ("3", "9"))
    assert (found.once, found.twice) == (1, 1)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_ids_of_64_bits(kind: pa.DataType) -> None:
    """They are exact; only what is told of their size is rounded."""
    ids = pa.array([2**62 + 1, 2**62 + 3, 2**62 + 3], kind)
    (found,) = facts_of(FileSample("parquet", pa.table({"user": ids})))
    assert (found.type, found.distinct) == ("int", 2)
    assert found.most == pytest.approx(2.0**62)


def test_nan_counts_as_no_value() -> None:
    found = fact(pa.array([0.5, float("nan"), None]))
    assert (found.type, found.nulls, found.distinct) == ("float", 2, 1)


@pytest.mark.parametrize(
    ("values", "kind", "distinct"),
    [
        (pa.array(["a", "b", "a"]), "string", 2),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", 2),
        (pa.array(["a", "b", "a"]).cast(pa.string_view()), "string", 2),
        (pa.array([[1, 2], [2], None]), "list[int]", 2),
        (pa.array([["a"], [], ["b", "c"]], pa.large_list(pa.string())), "list[string]", 3),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)), "list[int]", 4),
        (pa.array([True, False, None]), "bool", 2),
        (pa.array([1, 2], pa.timestamp("us")), "time", 2),
        (pa.array([[0.5], [1.5]]), "other", 0),
        (pa.array([{"a": 1}, {"a": 2}]), "other", 0),
    ],
)
def test_types(values: pa.Array, kind: str, distinct: int) -> None:
    found = fact(values)
    assert (found.type, found.distinct) == (kind, distinct)
    assert found.least is None


def test_a_column_without_values() -> None:
    found = fact(pa.array([None, None], pa.float64()))
    assert (found.type, found.nulls, found.distinct, found.least) == ("float", 2, 0, None)


def test_dates_in_text_are_times_and_need_no_python_value() -> None:
    assert fact(pa.array(["2024-05-01", None, "2024-05-02 10:00:00"])).type == "time"
    assert fact(pa.array([b"2024-05-01"])).type == "string"
    found = fact(pa.array([1_700_000_000_000_000_001, None], pa.timestamp("ns")))  # Python has no nanoseconds
    assert (found.type, found.nulls, found.distinct, found.examples) == ("time", 1, 1, ())


def test_whole_numbers_with_a_type_for_fractions() -> None:
    assert fact(pa.array([17.0, None, float("nan"), 18.0])).is_whole
    assert not fact(pa.array([17.0, 17.5])).is_whole
    assert fact(pa.array([[1, None], [2]])).distinct == 2, "a null is no item"
