"""Generates files in formats that users have: a shop's click log as Parquet, Criteo's columns as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

__all__ = [
    "CLICK_CATEGORICAL",
    "CLICK_DENSE",
    "CLICK_ITEM",
    "CLICK_LIST",
    "criteo_table",
    "write_clicks",
    "write_text",
]

CLICK_DENSE = ("log_price", "log_popularity", "log_history")
CLICK_ITEM, CLICK_LIST = "item", "recent_items"
CLICK_CATEGORICAL = ("customer", CLICK_ITEM, "country", "word", "hour", "weekday", "price_bucket", CLICK_LIST)
MOST_RECENT_ITEMS = 10
ROW_GROUP_SAMPLES = 65_536

CRITEO_IDS = 100_000
CRITEO_NULL_INTEGERS, CRITEO_NULL_IDS = 0.1, 0.03
ZIPF = 1.1

Int64 = npt.NDArray[np.int64]


def _zipf(random: np.random.Generator, most: int, count: int) -> Int64:
    """Draws ranks int64 [count] in [0, most); low ranks are frequent."""
    popularity = np.cumsum(np.arange(1, most + 1, dtype=np.float64) ** -ZIPF)
    ranks: Int64 = np.searchsorted(popularity, random.random(count) * popularity[-1]).astype(np.int64)
    return ranks


def _words(random: np.random.Generator, names: list[str], count: int) -> pa.Array:
    return pa.array(names, type=pa.large_string()).take(pa.array(_zipf(random, len(names), count)))


def write_clicks(path: Path, rows: int, seed: int) -> None:
    """Writes a label, three float, four int and three string columns, and a list of 1 to 10 strings (mean 6.5)."""
    random = np.random.default_rng(seed)
    items = [f"{random.integers(10_000, 99_999)}{chr(65 + n % 26)}" for n in range(3_600)]
    lengths = np.minimum(random.geometric(0.1, rows), MOST_RECENT_ITEMS)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    columns: dict[str, pa.Array] = {
        "label": pa.array((random.random(rows) < 0.2).astype(np.int8)),
        **{name: pa.array(random.standard_normal(rows, dtype=np.float32)) for name in CLICK_DENSE},
        "customer": pa.array(12_000 + _zipf(random, 4_200, rows)),
        CLICK_ITEM: _words(random, items, rows),
        "country": _words(random, [f"Country {n}" for n in range(37)], rows),
        "word": _words(random, [f"WORD{n * n}" for n in range(840)], rows),
        "hour": pa.array(random.integers(6, 21, rows)),
        "weekday": pa.array(random.integers(0, 6, rows)),
        "price_bucket": pa.array(random.integers(0, 15, rows)),
        CLICK_LIST: pa.ListArray.from_arrays(
            pa.array(offsets), _words(random, items, int(offsets[-1])).cast(pa.string())
        ),
    }
    pq.write_table(pa.table(columns), path, row_group_size=ROW_GROUP_SAMPLES)


def criteo_table(rows: int, seed: int) -> pa.Table:
    """A table of label, I1..I13 (int64, 1/10 null), C1..C26 (eight hexadecimal digits, 1/30 null)."""
    random = np.random.default_rng(seed)
    names = pa.array([f"{word:08x}" for word in random.integers(0, 1 << 32, CRITEO_IDS).tolist()])
    columns: dict[str, pa.Array] = {"label": pa.array((random.random(rows) < 0.25).astype(np.int8))}
    for number in range(1, 14):
        integers = np.exp(1.5 * random.standard_normal(rows)).astype(np.int64)
        columns[f"I{number}"] = pa.array(integers, mask=random.random(rows) < CRITEO_NULL_INTEGERS)
    for number in range(1, 27):
        ranks = pa.array(_zipf(random, CRITEO_IDS, rows), mask=random.random(rows) < CRITEO_NULL_IDS)
        columns[f"C{number}"] = names.take(ranks)
    return pa.table(columns)


def write_text(table: pa.Table, path: Path, *, delimiter: str, header: bool) -> None:
    """Writes a table as text; nulls become empty fields."""
    options = pa.csv.WriteOptions(include_header=header, delimiter=delimiter, quoting_style="none")
    pa.csv.write_csv(table, path, options)
