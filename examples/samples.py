"""Writes samples for the jobs mmoe.toml, din.toml and two_towers.toml, which lie beside this file.

    python examples/samples.py              # into the folder `samples` beside this file
    python examples/samples.py FOLDER --rows 150000 --seed 1

The samples have the shape of public click logs, and a structure is planted in them that each model can find:

mmoe        clicked, bought: two labels with partly the same cause, what a group of users likes. user, item, price
din         clicked: depends on how many of the items that were seen last have the item's topic. item, recent_items,
            country, price
two_towers  label, user, item, category, log_frequency. In the training data each row is an item that a user took
            (label 1). In the test data as many random items are added (label 0). users.parquet and items.parquet have
            one row for each user and item
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["write"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
USERS, ITEMS, TOPICS, FACTORS = 500, 200, 8, 4
COUNTRIES = ("de", "fr", "it", "nl", "pl")
TEST_SHARE = 0.25
ROW_GROUP = 8192


def write(folder: Path, rows: int, seed: int) -> None:
    """Writes three folders with `rows` training rows each, and a quarter as many test rows. Raises OSError."""
    for name, make in (("mmoe", _clicked_and_bought), ("din", _clicked_after), ("two_towers", _taken)):
        for part, table in make(rows, np.random.default_rng(seed)).items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(table, folder / name / f"{part}.parquet", row_group_size=ROW_GROUP)


def _drawn(logits: Floats, random: np.random.Generator) -> Ints:
    """A label for each logit: 1 with probability sigmoid(logit)."""
    return (random.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(np.int64)


def _divided(table: pa.Table, rows: int) -> dict[str, pa.Table]:
    return {"train": table.slice(0, rows), "test": table.slice(rows)}


def _clicked_and_bought(rows: int, random: np.random.Generator) -> dict[str, pa.Table]:
    count = rows + int(rows * TEST_SHARE)
    users, items = random.integers(0, USERS, count), random.integers(0, ITEMS, count)
    price = random.normal(0, 1, count)
    groups, topics = random.integers(0, TOPICS, USERS)[users], random.integers(0, TOPICS, ITEMS)[items]
    liked, needed = (random.normal(0, 1.5, (TOPICS, TOPICS))[groups, topics] for _ in range(2))
    columns = {
        "clicked": _drawn(liked - 0.3 * price - 0.5, random),
        "bought": _drawn(0.8 * liked + 0.8 * needed - 0.8 * price - 1.5, random),
        "price": price.astype(np.float32),
        "user": users,
        "item": items,
    }
    return _divided(pa.table(columns), rows)


def _clicked_after(rows: int, random: np.random.Generator) -> dict[str, pa.Table]:
    count = rows + int(rows * TEST_SHARE)
    topics = random.integers(0, TOPICS, ITEMS)
    by_topic = [np.flatnonzero(topics == topic) for topic in range(TOPICS)]
    quality = random.normal(0, 0.5, ITEMS)
    items = random.integers(0, ITEMS, count)
    lengths = random.integers(0, 11, count)
    lengths[random.random(count) < 0.05] = 0  # new visitors
    interests = random.integers(0, TOPICS, (count, 3))  # of the session that the row belongs to
    interests[random.random(count) < 0.5, 0] = -1
    interests[:, 0] = np.where(interests[:, 0] < 0, topics[items], interests[:, 0])
    sample = np.repeat(np.arange(count), lengths)
    seen_topics = interests[sample, random.integers(0, 3, len(sample))]
    recent = np.array([by_topic[topic][random.integers(len(by_topic[topic]))] for topic in seen_topics], dtype=np.int64)
    same = np.bincount(sample, weights=topics[recent] == topics[items[sample]], minlength=count)
    price = random.normal(0, 1, count)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    columns = {
        "clicked": _drawn(1.5 * same + quality[items] - 0.3 * price - 2.0, random),
        "price": price.astype(np.float32),
        "item": items,
        "recent_items": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(recent)),
        "country": pa.array(random.choice(COUNTRIES, count).tolist()),
    }
    return _divided(pa.table(columns), rows)


def _taken(rows: int, random: np.random.Generator) -> dict[str, pa.Table]:
    tests = int(rows * TEST_SHARE) // 2
    categories = random.integers(0, TOPICS, ITEMS)
    centres = random.normal(0, 1, (TOPICS, FACTORS))
    factors = centres[categories] + random.normal(0, 0.5, (ITEMS, FACTORS))
    wishes = random.normal(0, 1, (USERS, FACTORS))
    logits = 1.5 * wishes @ factors.T + random.normal(0, 1, ITEMS)  # and some items are popular with all
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    edges = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    users = random.integers(0, USERS, rows + tests)
    items = (random.random((len(users), 1)) > edges[users]).sum(axis=1).clip(max=ITEMS - 1)
    counts = np.bincount(items[:rows], minlength=ITEMS)
    log_frequency = np.log(np.maximum(counts, 1) / rows).astype(np.float32)

    def table(labels: Ints, of_users: Ints, of_items: Ints) -> pa.Table:
        columns = {"label": labels, "user": of_users, "item": of_items, "category": categories[of_items]}
        return pa.table({**columns, "log_frequency": log_frequency[of_items]})

    others = random.integers(0, ITEMS, tests)
    labels = np.repeat(np.array([1, 0]), tests)
    known = np.arange(ITEMS)[counts > 0]
    return {
        "train": table(np.ones(rows, dtype=np.int64), users[:rows], items[:rows]),
        "test": table(labels, np.tile(users[rows:], 2), np.concatenate((items[rows:], others))),
        "items": table(np.zeros(len(known), dtype=np.int64), known, known).drop_columns(["label", "user"]),
        "users": pa.table({"user": np.unique(users[:rows])}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "samples")
    parser.add_argument("--rows", type=int, default=150_000, help="training rows of each job")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    write(given.folder, given.rows, given.seed)
    print(f"samples are in {given.folder}")


if __name__ == "__main__":
    main()
