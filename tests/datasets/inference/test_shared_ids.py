"""Columns of lists share a table with the column whose ids they hold."""

from __future__ import annotations

import pyarrow as pa

from elastichost.datasets.inference.columns import facts_of
from elastichost.datasets.inference.roles import roles_of
from elastichost.datasets.inference.sample import FileSample
from elastichost.datasets.inference.shared_ids import shared_ids

ITEMS = [f"item {number}" for number in range(200)]
LABEL = [number % 2 for number in range(200)]


def shared(**columns: object) -> dict[str, str]:
    sample = FileSample("parquet", pa.table({"label": LABEL, **columns}))
    return shared_ids(sample, roles_of(facts_of(sample), "label", "f"))


def test_lists_of_items_share_the_table_of_the_items() -> None:
    seen = [ITEMS[number : number + 2] for number in range(200)]
    others = [f"word {number}" for number in range(200)]
    assert shared(item=ITEMS, word=others, seen=seen) == {"seen": "item"}


def test_lists_with_other_values_have_their_own_table() -> None:
    assert shared(item=ITEMS, tags=[[f"tag {number}", "x"] for number in range(200)]) == {}


def test_ids_beyond_int64_and_bytes_that_are_no_text() -> None:
    large = pa.array([2**63 + number for number in range(200)], pa.uint64())
    lists = pa.array([[2**63 + number] for number in range(200)], pa.list_(pa.uint64()))
    raw = pa.array([b"\xff" + bytes([number]) for number in range(200)])
    assert shared(user=large, seen=lists, uuid=raw) == {"seen": "user"}


def test_small_numbers_are_not_compared() -> None:
    numbers = [number % 24 for number in range(200)]
    assert shared(hour=numbers, genres=[[number, number + 1] for number in numbers]) == {}


def test_numbers_are_not_the_ids_of_strings() -> None:
    strings = [str(number) for number in range(200)]
    assert shared(item=strings, seen=[[number] for number in range(200)]) == {}
