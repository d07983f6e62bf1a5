"""The types of the columns of a text file, which has none, from their texts. Pure."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from elastichost.datasets.text.csv_block import TRUE, are_booleans, floats_of, without_missing

__all__ = ["LIST_DELIMITERS", "are_times", "decimal_of", "list_delimiter_of", "typed_column"]

LIST_DELIMITERS = ("|", ";", " ")
LEAST_LISTS = 0.01  # of the values: fewer with a delimiter in them are taken for an accident
LEADING_ZERO = r"^-?0[0-9]"  # 007 is the name of something, and as a number it would be 7
INTEGER = r"^-?[0-9]{1,18}$"  # within int64
DIGITS = r"^-?[0-9]+$"
THOUSANDS = r"^-?[1-9][0-9]{0,2},[0-9]{3}$"  # 1,234 is either number
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?$"

TextType = Literal["int", "float", "bool", "string", "list[int]", "list[string]", "time"]


def typed_column(texts: pa.ChunkedArray, list_delimiter: str, decimal: str = ".") -> tuple[TextType, pa.ChunkedArray]:
    """(type, values) of a column of strings; a null stays null. list_delimiter: separates the items of lists, "" if
    the file has no lists; empty texts, and words for a missing value, are null but in text and lists of text. decimal:
    before the fraction of a number."""
    texts = texts.combine_chunks() if texts.num_chunks != 1 else texts.chunk(0)
    words, texts = texts, without_missing(texts)
    known = texts.drop_null()
    if not len(known):
        return "string", pa.chunked_array([words])
    if list_delimiter and _has_lists(known, list_delimiter):
        items = pc.split_pattern(texts, list_delimiter)
        inner = items.flatten()
        if _all_match(inner.filter(pc.not_equal(inner, "")), INTEGER):
            return "list[int]", pa.chunked_array([_lists_of_integers(items)])
        return "list[string]", pa.chunked_array([pc.split_pattern(words, list_delimiter)])
    if _all_match(known, INTEGER):
        if pc.any(pc.match_substring_regex(known, LEADING_ZERO)).as_py():
            return "string", pa.chunked_array([words])
        return "int", pa.chunked_array([texts.cast(pa.int64())])
    if _all_match(known, DIGITS):  # of 19 digits some fit into int64; through a float they would be rounded
        has_names = pc.any(pc.match_substring_regex(known, LEADING_ZERO)).as_py()
        return ("string", pa.chunked_array([words])) if has_names else _long_integers(texts, words)
    if are_booleans(known):
        return "bool", pa.chunked_array(
            [pc.if_else(pc.is_valid(texts), pc.is_in(texts, value_set=pa.array(TRUE)), None)]
        )
    if are_times(known):
        return "time", pa.chunked_array([texts])
    try:
        return "float", pa.chunked_array([floats_of(texts, decimal)])
    except pa.ArrowInvalid:
        return "string", pa.chunked_array([words])


def _lists_of_integers(items: pa.ListArray) -> pa.ListArray:
    """Lists of int64 of lists of texts; an empty item is null."""
    values = pc.if_else(pc.equal(items.values, ""), None, items.values).cast(pa.int64())
    return pa.ListArray.from_arrays(items.offsets, values, mask=items.is_null())


def _long_integers(texts: pa.Array, words: pa.Array) -> tuple[TextType, pa.ChunkedArray]:
    try:
        return "int", pa.chunked_array([texts.cast(pa.int64())])
    except pa.ArrowInvalid:
        return "string", pa.chunked_array([words])


def are_times(known: pa.ChunkedArray | pa.Array) -> bool:
    """Whether texts, or bytes, without nulls are dates, or dates with a time."""
    if not len(known):
        return False
    is_text = pa.types.is_string(known.type) or pa.types.is_large_string(known.type)
    return is_text and _all_match(known, TIME)


def list_delimiter_of(columns: list[pa.ChunkedArray]) -> str:
    """The character that separates the items of lists in these columns of strings; "" if none has lists.

    A space separates words of a text as well; it counts only if what it separates are integers."""
    for delimiter in LIST_DELIMITERS:
        for column in columns:
            known = column.drop_null()
            if not len(known) or not _has_lists(known, delimiter):
                continue
            if delimiter != " " or _all_match(pc.list_flatten(pc.split_pattern(known, " ")), INTEGER):
                return delimiter
    return ""


def decimal_of(columns: list[pa.ChunkedArray]) -> str:
    """ "," if a column of strings has numbers with a decimal comma and none has some with a decimal point, else ".".

    A column whose commas all stand as in 1,234 decides nothing: they may separate thousands."""
    found = "."
    for column in columns:
        known = without_missing(column).drop_null()
        if _are_fractions(known, "."):
            return "."
        if _are_fractions(known, ","):
            commas = known.filter(pc.match_substring(known, ","))
            found = found if _all_match(commas, THOUSANDS) else ","
    return found


def _are_fractions(known: pa.ChunkedArray, decimal: str) -> bool:
    """Whether the texts are numbers, of which at least one has the decimal character."""
    if not pc.any(pc.match_substring(known, decimal)).as_py():
        return False
    try:
        floats_of(known, decimal)
    except pa.ArrowInvalid:
        return False
    return True


def _has_lists(known: pa.Array, delimiter: str) -> bool:
    return bool(pc.mean(pc.match_substring(known, delimiter)).as_py() >= LEAST_LISTS)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(len(texts)) and bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())
