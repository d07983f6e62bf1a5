"""The use of columns by type, name and values; labels that are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastichost.datasets.inference.columns import ColumnFacts
from elastichost.datasets.inference.roles import roles_of
from elastichost.errors import DataError

LABEL = ColumnFacts("clicked", "int", 5000, 0, 2, 0.0, 0.5, 1.0, ("0", "1"))


def use_of(column: ColumnFacts) -> str:
    return roles_of((LABEL, column), "clicked", "f")[1].use


def integers(name: str, distinct: int, least: float, middle: float, most: float) -> ColumnFacts:
    return ColumnFacts(name, "int", 5000, 0, distinct, least, middle, most, (str(least),))


@pytest.mark.parametrize("name", ["id", "user_id", "itemId", "AD_KEY", "ad key", "zipCode", "order_no"])
def test_integers_named_like_ids_are_categorical(name: str) -> None:
    assert use_of(integers(name, 4000, 0, 3, 900_000)) == "categorical"


@pytest.mark.parametrize("name", ["valid", "period", "monkey", "mode", "piano"])
def test_a_name_that_only_ends_in_these_letters_is_not_an_id(name: str) -> None:
    assert use_of(integers(name, 4000, 0, 3, 900_000)) == "dense"


def test_integers_by_their_values() -> None:
    assert use_of(integers("hour", 24, 0, 12, 23)) == "categorical"
    assert use_of(integers("clicks", 900, 0, 3, 40_000)) == "dense"
    assert use_of(integers("user", 4000, 1, 48_000, 100_000)) == "categorical"
    assert use_of(integers("change", 900, -40, 3, 60)) == "dense"


def test_other_types() -> None:
    assert use_of(ColumnFacts("price", "float", 5000, 10, 900, 0.1, 4.0, 90.0)) == "dense"
    assert use_of(ColumnFacts("country", "string", 5000, 0, 40)) == "categorical"
    assert use_of(ColumnFacts("seen", "list[int]", 5000, 0, 900)) == "categorical"
    assert use_of(ColumnFacts("is_new", "bool", 5000, 0, 2)) == "categorical"
    assert use_of(ColumnFacts("at", "time", 5000, 0, 5000)) == "left out"
    assert use_of(ColumnFacts("nested", "other", 5000, 0, 0)) == "left out"


def test_columns_that_tell_nothing_are_left_out() -> None:
    assert use_of(ColumnFacts("comment", "string", 5000, 0, 4900)) == "left out"
    assert use_of(ColumnFacts("comment", "string", 50, 0, 50)) == "categorical", "50 rows tell too little"
    assert use_of(ColumnFacts("country", "string", 5000, 0, 1, examples=("de",))) == "left out"
    assert use_of(ColumnFacts("coupon", "string", 5000, 4000, 1, examples=("yes",))) == "categorical", "some have none"
    assert use_of(ColumnFacts("empty", "string", 5000, 5000, 0)) == "left out"


def refused(label: ColumnFacts, *others: ColumnFacts) -> DataError:
    with pytest.raises(DataError) as caught:
        roles_of((label, *others), label.name, "clicks.csv")
    return caught.value


def test_labels_that_are_none_name_the_columns_that_could_be() -> None:
    five = ColumnFacts("rating", "int", 5000, 0, 5, 1.0, 3.0, 5.0, ("1", "2", "3"))
    error = refused(five, LABEL)
    assert "'rating' is not 0 or 1: for example 1, 2, 3" in error.message
    assert error.hint == "columns with 0 and 1: clicked"
    assert "holds string" in refused(ColumnFacts("bought", "string", 9, 0, 2, examples=("yes", "no"))).message
    assert "no value in 12 rows" in refused(ColumnFacts("y", "float", 99, 12, 2, 0.0, 0.0, 1.0)).message
    assert "in all of the first 9 rows" in refused(ColumnFacts("y", "int", 9, 0, 1, 0.0, 0.0, 0.0, ("0",))).message


def test_a_label_that_is_missing_may_be_misspelt() -> None:
    with pytest.raises(DataError, match="no column 'clickd'; did you mean \"clicked\""):
        roles_of((LABEL,), "clickd", "clicks.csv")


def test_a_column_without_a_name_is_left_out() -> None:
    numbers = ColumnFacts("", "int", 2, 0, 2, 0.0, 0.5, 1.0, ("0", "1"))
    assert roles_of((numbers, LABEL), "clicked", "f")[0].use == "left out"
    assert refused(ColumnFacts("y", "string", 9, 0, 2), numbers, LABEL).hint == "columns with 0 and 1: clicked"
    with pytest.raises(DataError) as caught:
        roles_of((numbers, LABEL), "y", "clicks.csv")
    assert caught.value.hint == "its columns: clicked"


def test_a_number_of_its_own_for_nearly_each_row_is_left_out() -> None:
    assert use_of(integers("order_id", 4900, 1, 2500, 5000)) == "left out"
    assert use_of(integers("row", 5000, 0, 2500, 4999)) == "left out"


@pytest.mark.parametrize("kind", ["string", "int"])
def test_ids_of_a_large_file_may_repeat_outside_of_the_sample(kind: str) -> None:
    """Of 100,000 users with 50 rows each, 5,000 rows have 120 users twice."""
    sample = ColumnFacts("user", kind, 5000, 0, 4880, 1, 50_000, 100_000, ("7",), once=4760, twice=120)  # type: ignore[arg-type]
    assert use_of(sample) == "left out"
    assert use_of(replace(sample, file_rows=5_000_000)) == "categorical"
    assert use_of(replace(sample, file_rows=50_000)) == "left out", "most users have one row there"
    assert use_of(replace(sample, file_rows=5_000_000, distinct=5000, once=5000, twice=0)) == "left out"


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("timestamp", 1.5e9, 1.7e9),
        ("created_at", 1.5e12, 1.7e12),
        ("eventTime", 1.5e18, 1.7e18),
        ("date", 20_230_101, 20_240_630),
    ],
)
def test_times_as_numbers_are_left_out(name: str, least: float, most: float) -> None:
    column = integers(name, 4000, least, (least + most) / 2, most)
    assert use_of(column) == "left out"
    assert use_of(replace(column, type="float", is_whole=True)) == "left out"
    assert use_of(replace(column, name="late")) == "categorical", "its name says nothing of a time"
    assert use_of(replace(column, least=0.0)) == "categorical", "these are no times"


def test_ids_that_are_written_with_a_fraction() -> None:
    ids = ColumnFacts("user_id", "float", 5000, 10, 900, 1.0, 400.0, 900.0, is_whole=True)
    role = roles_of((LABEL, ids), "clicked", "f")[1]
    assert role.use == "left out" and "write it as int64" in role.reason
    assert use_of(replace(ids, are_words=True)) == "categorical", "the words of a text file can be read as integers"
    assert use_of(replace(ids, name="price")) == "dense"
    assert use_of(replace(ids, is_whole=False)) == "dense"
