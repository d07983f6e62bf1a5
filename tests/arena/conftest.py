"""Small models and arenas over real files (in the test's own directory, not in shared memory)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import SLOT_BYTES, plan_layout
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizer, RowOptimizerSpec, TableSpec

MakeModel = Callable[..., ModelSpec]
MakeArena = Callable[..., Arena]


def build_model(
    rows: tuple[int, ...] = (0,),
    dims: tuple[int, ...] = (6,),
    optimizer: RowOptimizer = "rowwise_adagrad",
    elements: int = 10,
    parameters: int = 8,
    admit_after: int = 1,
    evict_after_samples: int = 0,
) -> ModelSpec:
    """One table per entry of `rows` (0: dynamic), each with one embedding per entry of `dims`."""
    tables = tuple(
        TableSpec(
            name=f"table_{i}",
            index=i,
            features=(f"feature_{i}",),
            key_kind="int",
            rows=count,
            admit_after=1 if count else admit_after,
            evict_after_samples=0 if count else evict_after_samples,
        )
        for i, count in enumerate(rows)
    )
    embeddings = tuple(
        EmbeddingSpec(
            name=f"table_{table.index}_dim_{dim}",
            index=table.index * len(dims) + number,
            table=table.index,
            module="sparse",
            kind="bag",
            features=table.features,
            dim=dim,
            pooling="sum",
            optimizer=RowOptimizerSpec(name=optimizer),
            init_low=-0.5,
            init_high=0.5,
        )
        for table in tables
        for number, dim in enumerate(dims)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), parameters, elements), 1, 1)


@pytest.fixture
def make_model() -> MakeModel:
    return build_model


@pytest.fixture
def make_arena(tmp_path: Path) -> Iterator[MakeArena]:
    made: list[Arena] = []

    def make(model: ModelSpec | None = None, *, seed: int = 7, memory_bytes: int = 1 << 24) -> Arena:
        directory = tmp_path / f"elastichost-arena-{len(made)}"
        directory.mkdir(mode=0o700)
        made.append(Arena.create(directory, plan_layout(model or build_model(), seed, memory_bytes)))
        return made[-1]

    yield make
    for arena in made:
        arena.close()


def index_view(arena: Arena, table: int, bucket: int) -> np.ndarray:
    """int64 [region_slots, 2]: (key, value) slots of a bucket's whole region, all generations."""
    offset = SLOT_BYTES * arena.layout.slot_offset(table, bucket)
    region_slots = arena.layout.tables[table].region_slots
    return arena.files.index.array(np.int64, offset, 2 * region_slots).reshape(-1, 2)
