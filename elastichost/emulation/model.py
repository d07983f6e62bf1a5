"""The model of an emulated job: tables that are nearly empty, of one bucket each, so that any number of PS has about
the same number of them. Pure.

Every batch asks for the same keys: as many of each bucket as its share of the load says. So a PS has the share of the
load that it has of the keys, whichever buckets it owns, and buckets that change hands take their load with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.config.emulate import NewIdsSettings
from elastichost.sharding import bucket_of_hash, mix64
from elastichost.specs import DenseSpec, DenseTensor, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.worker.channels.routing import Directory

__all__ = ["INITIAL", "Keys", "Part", "emulated_model", "hot_keys", "new_ids_of_batch", "owner_of_new", "parts_of"]

TABLES = 192  # of one bucket each: three for each of 64 PS; 16, 12 and 8 PS have equal shares
ROWS, HOT_ROWS = 4, 1024  # of a table, and of the first, which the skew is with; with more rows it were two buckets
NEW_IDS = TABLES  # index of the table that grows
PARAMETERS = 8
INITIAL: npt.NDArray[np.float32] = np.zeros(PARAMETERS, np.float32)

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """What one PS is asked for in every batch. counts: keys of each table; keys: int64, table after table; share: of
    all keys."""

    server: int
    counts: tuple[int, ...]
    keys: Keys
    share: float


def emulated_model(new_ids: NewIdsSettings) -> ModelSpec:
    """With new ids there is one table more, which is dynamic."""
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
    """Keys of the hot table, where every other one has one: k / (k + b - 1) = skew + (1 - skew) / b of b tables."""
    share = skew + (1.0 - skew) / TABLES
    return max(1, round(share * (TABLES - 1) / (1.0 - share)))


def parts_of(directory: Directory, skew: float) -> tuple[Part, ...]:
    """One for each PS that owns some of the load, in order of their index."""
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
    """Ids that nobody has seen, as many as `samples` more than `trained` bring by Heaps' law; a fraction by chance."""
    if settings.factor <= 0:
        return np.zeros(0, np.int64)
    power = settings.exponent
    expected = settings.factor * (float(trained + samples) ** power - float(trained) ** power)
    count = int(expected) + int(generator.random() < expected % 1.0)
    return generator.integers(1 << 62, size=count, dtype=np.int64)


def owner_of_new(key: int, directory: Directory) -> int:
    """The PS that has the row of a new id, or makes it."""
    owners = directory.owners[NEW_IDS]
    return int(owners[bucket_of_hash(mix64(key), len(owners))])
