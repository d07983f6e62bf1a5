"""The model of an emulated job: TABLES tables that are nearly empty, of one bucket each. Pure.

Every batch requests the same keys. The number of keys of a bucket is in proportion to its share of the load. So the
load of a PS is in proportion to the keys of the buckets that it owns, and a hand-over of buckets moves their load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.config.sections.emulate import NewIdsSettings
from elastichost.sharding import bucket_of_hash, mix64
from elastichost.specs import DenseSpec, DenseTensor, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.worker.channels.routing import Directory

__all__ = ["INITIAL", "Keys", "Part", "emulated_model", "hot_keys", "new_ids_of_batch", "owner_of_new", "parts_of"]

TABLES = 192  # three for each of 64 PS; 16, 12 and 8 PS have equal shares, too
ROWS, HOT_ROWS = 4, 1024  # rows of a table, and of table 0, the hot one; with more rows it would have two buckets
NEW_IDS = TABLES  # index of the dynamic table, which gets the new ids
PARAMETERS = 8
INITIAL: npt.NDArray[np.float32] = np.zeros(PARAMETERS, np.float32)

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of every batch that is requested from one PS. counts: number of keys of each table; keys: int64 [n],
    table after table; share: its share of all keys of the batch."""

    server: int
    counts: tuple[int, ...]
    keys: Keys
    share: float


def emulated_model(new_ids: NewIdsSettings) -> ModelSpec:
    """The model of an emulated job. If `new_ids.factor` is above 0, it has one more table, which is dynamic."""
    optimizer = RowOptimizerSpec(name="sgd")
    tables = [
        TableSpec(f"emulated-{index}", index, (f"e{index}",), "int", ROWS if index else HOT_ROWS)
        for index in range(TABLES)
    ]
    dims = [1] * TABLES
    if new_ids.factor > 0:
        tables.append(TableSpec("new-ids", NEW_IDS, ("new",), "int", rows=0))
        dims.append(math.ceil(new_ids.row_bytes / 4))
    embeddings = tuple(
        EmbeddingSpec(t.name, t.index, t.index, "emulated", "bag", t.features, dim, "sum", optimizer, 0.0, 0.0)
        for t, dim in zip(tables, dims, strict=True)
    )
    dense = DenseSpec((DenseTensor("emulated", (PARAMETERS,), 0),), PARAMETERS, PARAMETERS)
    return ModelSpec(tuple(tables), embeddings, dense, num_dense_features=0, num_labels=1)


def hot_keys(skew: float) -> int:
    """The number k of keys of table 0 in a batch; each of the other tables has one key. With b tables, k solves
    k / (k + b - 1) = skew + (1 - skew) / b, rounded: the share `skew` of the load, and a bth part of the rest."""
    share = skew + (1.0 - skew) / TABLES
    return max(1, round(share * (TABLES - 1) / (1.0 - share)))


def parts_of(directory: Directory, skew: float) -> tuple[Part, ...]:
    """The part of each PS that owns a table with load, sorted by index."""
    owners = [int(directory.owners[table][0]) for table in range(TABLES)]
    keys = [np.arange(hot_keys(skew) if table == 0 else 1, dtype=np.int64) for table in range(TABLES)]
    total = sum(map(len, keys))
    parts = []
    for server in sorted(set(owners)):
        asked = [of_table if owner == server else of_table[:0] for owner, of_table in zip(owners, keys, strict=True)]
        counts = tuple(map(len, asked)) + (0,) * (len(directory.owners) - TABLES)
        parts.append(Part(server, counts, np.concatenate(asked), sum(counts) / total))
    return tuple(parts)


def new_ids_of_batch(settings: NewIdsSettings, trained: int, samples: int, generator: np.random.Generator) -> Keys:
    """New random ids, int64 [n], of a batch of `samples` samples when `trained` samples are trained: as many as Heaps'
    law expects (`NewIdsSettings`). A fraction of an id is rounded up with that probability."""
    if settings.factor <= 0:
        return np.zeros(0, np.int64)
    power = settings.exponent
    expected = settings.factor * (float(trained + samples) ** power - float(trained) ** power)
    count = int(expected) + int(generator.random() < expected % 1.0)
    return generator.integers(1 << 62, size=count, dtype=np.int64)


def owner_of_new(key: int, directory: Directory) -> int:
    """The PS that owns the bucket of a new id."""
    owners = directory.owners[NEW_IDS]
    return int(owners[bucket_of_hash(mix64(key), len(owners))])
