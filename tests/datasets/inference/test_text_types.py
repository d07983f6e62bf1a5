"""Types of text columns: what must stay text, and what lists are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elastichost.datasets.inference.text_types import decimal_of, list_delimiter_of, typed_column


def texts(*values: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.string())])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("1", "-20", None), "int"),
        (("1", "2.5", None), "float"),
        (("1e3", "nan"), "float"),
        (("01203", "11000"), "string"),  # a postal code
        (("0", "10"), "int"),
        (("1234567890123456789", "1"), "int"),  # 19 digits
        (("12345678901234567890", "1"), "string"),  # not an int64, and as a float it would be rounded
        (("0234567890123456789", "1"), "string"),
        (("a", "1"), "string"),
        (("true", "False", None), "bool"),
        (("true", "maybe"), "string"),
        ((None, None), "string"),
        (("NA", "3", "NULL"), "int"),
        (("3.25", "\\N", "N/A"), "float"),
        (("true", "NA"), "bool"),
        (("NA", "null"), "string"),
        (("NA", "DE"), "string"),  # Namibia, perhaps
        (("2024-05-01", "2024-05-02 10:00:00"), "time"),
        (("2024-05-01T10:00:00Z",), "time"),
    ],
)
def test_the_type_of_single_values(values: tuple[str | None, ...], kind: str) -> None:
    assert typed_column(texts(*values), "")[0] == kind


def test_lists_of_integers_and_of_strings() -> None:
    """Read as one integer or one string, 776|583 would be one id."""
    kind, items = typed_column(texts("776|583", "12", None), "|")
    assert kind == "list[int]"
    assert items.to_pylist() == [[776, 583], [12], None]
    kind, items = typed_column(texts("776|", "NA", "", "5"), "|")
    assert (kind, items.to_pylist()) == ("list[int]", [[776, None], None, None, [5]])
    assert typed_column(texts("a|7", "b"), "|")[0] == "list[string]"


def test_a_delimiter_in_one_of_many_values_is_an_accident() -> None:
    column = texts(*["a name"] * 500, "one|other")
    assert list_delimiter_of([column]) == ""
    assert typed_column(column, "|")[0] == "string"


def test_the_delimiter_of_lists() -> None:
    assert list_delimiter_of([texts("a", "b"), texts("1|2", "3")]) == "|"
    assert list_delimiter_of([texts("red;blue", "green")]) == ";"
    assert list_delimiter_of([texts("12 7 9", "3")]) == " "
    assert list_delimiter_of([texts("words of a text", "more")]) == "", "words are not items"
    assert list_delimiter_of([texts(None)]) == ""


@pytest.mark.parametrize(
    ("columns", "decimal"),
    [
        ([texts("1541,87", "12", None)], ","),
        ([texts("1541,87", "NA")], ","),
        ([texts("-0,5", ",25"), texts("a.b", "c")], ","),
        ([texts("1541,87"), texts("2.5", "1")], "."),  # a list of two numbers, perhaps
        ([texts("1,234", "12,000", "7")], "."),  # thousands, perhaps
        ([texts("1,234", "0,125")], ","),
        ([texts("1,234"), texts("7,5")], ","),
        ([texts("1e-05", "1,5e-05")], ","),  # pandas and R write so
        ([texts("1.541,87", "2,5")], "."),  # thousands and fractions
        ([texts("1,2,3", "4")], "."),
        ([texts("1", "2"), texts(None)], "."),
    ],
)
def test_the_decimal_character(columns: list[pa.ChunkedArray], decimal: str) -> None:
    assert decimal_of(columns) == decimal


def test_numbers_with_a_decimal_comma() -> None:
    kind, values = typed_column(texts("1541,87", "12", None), "", ",")
    assert (kind, values.to_pylist()) == ("float", [1541.87, 12, None])
    assert typed_column(texts("1541,87", "1.5"), "", ",")[0] == "string"
    assert typed_column(texts("1541,87"), "")[0] == "string"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("1", "", None), ("int", [1, None, None])),
        (("1.5", ""), ("float", [1.5, None])),
        (("true", ""), ("bool", [True, None])),
        (("a", ""), ("string", ["a", ""])),
        (("", None), ("string", ["", None])),
    ],
)
def test_missing_numbers_of_a_file_whose_fields_are_all_quoted(
    values: tuple[str | None, ...], found: tuple[str, list[object]]
) -> None:
    kind, typed = typed_column(texts(*values), "")
    assert (kind, typed.to_pylist()) == found
