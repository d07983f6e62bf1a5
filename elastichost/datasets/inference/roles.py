"""What each column of a file is used for, and why. Pure.

- Text and lists are categorical: only an embedding can use them. Where nearly every row of the file has its own value
  (a comment, the number of an order), each row would have an embedding that no other row trains; it is left out.
- Numbers with a fraction are dense, but for ids that are written with a fraction of zeros.
- Whole numbers can be ids or amounts. Those named like ids, and those with few values (an hour, a position), are
  categorical. Of the others, amounts are mostly small with a few large ones (clicks, cents); ids are spread over their
  range.
- Left out are times, also seconds since 1970 and dates as 20240501 in columns that are named so; columns without a
  name, with one value or none; and types that no model uses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elastichost.datasets.inference.columns import ColumnFacts
from elastichost.errors import DataError
from elastichost.human_readable import did_you_mean

__all__ = ["Role", "roles_of"]

Use = Literal["label", "dense", "categorical", "left out"]

FEW_VALUES = 100
MOST_LETTERS = 40  # of an example
OWN_VALUES = 0.9  # of the rows with a value
LEAST_ROWS = 1000  # to call values a row's own
AMOUNT = 0.05  # the middle value of amounts is below this share of the largest one
# user_id, itemId, ad_key, Code; not valid, period
CAMEL = re.compile(r"[a-z](?:Id|ID|Ids|Key|Code|Hash)$")
SNAKE = re.compile(r"(?:^|[_\s.-])(?:id|ids|key|code|hash|no)$", re.IGNORECASE)
# timestamp, created_at, eventTime, ts; not format, late
TIME = re.compile(
    r"(?:^|[_\s.-])(?:timestamp|time|datetime|date|ts|at)$|[a-z](?:Timestamp|Time|Date|At)$", re.IGNORECASE
)
# 2000 to 2050 in seconds, milliseconds, microseconds and nanoseconds since 1970; 1900 to 2100 as 20240501
TIMES = (*((0.9e9 * unit, 2.6e9 * unit) for unit in (1, 1e3, 1e6, 1e9)), (19_000_101, 21_001_231))


@dataclass(frozen=True, slots=True)
class Role:
    """The use of one column, and the reason in a few words."""

    column: ColumnFacts
    use: Use
    reason: str


def roles_of(columns: Sequence[ColumnFacts], label: str, file: str) -> tuple[Role, ...]:
    """The role of each column. Raises DataError when the label is missing, or is not 0 or 1 in every row."""
    by_name = {one.name: one for one in columns}
    if label not in by_name:
        names = ", ".join(filter(None, by_name))
        raise DataError(f"{file}: no column {label!r}{did_you_mean(label, by_name)}", hint=f"its columns: {names}")
    _check_label(by_name[label], columns, file)
    return tuple(
        Role(one, "label", "named by --label") if one.name == label else Role(one, *_use_of(one)) for one in columns
    )


def _check_label(label: ColumnFacts, columns: Sequence[ColumnFacts], file: str) -> None:
    if label.type in ("int", "float", "bool") and not label.nulls and _is_binary(label):
        return
    others = [one.name for one in columns if _is_binary(one) and not one.nulls and one.name not in ("", label.name)]
    hint = f"columns with 0 and 1: {', '.join(others)}" if others else "make a column of numbers that are 0 or 1"
    if label.type not in ("int", "float", "bool"):
        raise DataError(f"{file}: the label {label.name!r} holds {label.type}, for example {_shown(label)}", hint=hint)
    if label.nulls:
        raise DataError(f"{file}: the label {label.name!r} has no value in {label.nulls:,} rows", hint=hint)
    if label.distinct == 1:
        raise DataError(
            f"{file}: the label {label.name!r} is {_shown(label)} in all of the first {label.rows:,} rows",
            hint="shuffle the rows of the file, or name another label",
        )
    raise DataError(f"{file}: the label {label.name!r} is not 0 or 1: for example {_shown(label)}", hint=hint)


def _is_binary(column: ColumnFacts) -> bool:
    if column.type == "bool":
        return column.distinct == 2
    return column.type in ("int", "float") and column.distinct == 2 and (column.least, column.most) == (0.0, 1.0)


def _shown(column: ColumnFacts) -> str:
    return ", ".join(f"{one[:MOST_LETTERS]}..." if len(one) > MOST_LETTERS else one for one in column.examples)


def _use_of(one: ColumnFacts) -> tuple[Use, str]:
    if not one.name:  # a job file uses columns by name; pandas and R write the numbers of rows without one
        return "left out", "has no name"
    if one.distinct == 0:
        return "left out", f"type {one.type} has no use" if one.type == "other" else "has no values"
    if one.distinct == 1 and not one.nulls:
        return "left out", f"is {_shown(one)} in every row"
    match one.type:
        case "time":
            return "left out", "is a time"
        case "string":
            return _unless_own(one, "text")
        case "list[int]" | "list[string]":
            return "categorical", "lists"
        case "float":
            return _use_of_fractions(one)
        case "bool":
            return "categorical", "true or false"
        case _:
            return _use_of_integers(one)


def _unless_own(one: ColumnFacts, reason: str) -> tuple[Use, str]:
    """Categorical, unless nearly every row of the file has a value of its own.

    Where the sample is a part of the file, a value that occurs once in it may occur again outside. Good and Turing: in
    n rows, those values are met 2 f2 / f1 times in the mean if f1 values occur once and f2 twice; so in N further rows
    2 (f2 / f1) (N / n) times. (I. J. Good, Biometrika 40, 1953, equation 2.)"""
    known = one.rows - one.nulls
    if known >= LEAST_ROWS and one.distinct > OWN_VALUES * known:
        further = one.file_rows / one.rows - 1
        if further <= 0 or 2 * one.twice * further < one.once:
            return "left out", "nearly every row has its own value"
    return "categorical", reason


def _use_of_fractions(one: ColumnFacts) -> tuple[Use, str]:
    if one.is_whole and _is_time(one):
        return "left out", "is a time"
    if one.is_whole and _is_named_like_id(one.name):
        if one.are_words:
            return _unless_own(one, "named like an id")
        return "left out", "named like an id, but its type is a fraction: write it as int64"
    return "dense", "numbers"


def _use_of_integers(one: ColumnFacts) -> tuple[Use, str]:
    if _is_named_like_id(one.name):
        return _unless_own(one, "named like an id")
    if _is_time(one):
        return "left out", "is a time"
    if one.distinct <= FEW_VALUES:
        return "categorical", f"{one.distinct} values"
    assert one.least is not None and one.middle is not None and one.most is not None
    if one.least < 0:
        return "dense", "whole numbers, some below 0"
    if one.middle < AMOUNT * one.most:
        return "dense", "whole numbers, most of them small"
    return _unless_own(one, f"{one.distinct:,} whole numbers, spread evenly")


def _is_named_like_id(name: str) -> bool:
    return bool(CAMEL.search(name) or SNAKE.search(name))


def _is_time(one: ColumnFacts) -> bool:
    """Whether whole numbers are times: by their name and their size."""
    if one.least is None or one.most is None or not TIME.search(one.name):
        return False
    return any(low <= one.least and one.most <= high for low, high in TIMES)
