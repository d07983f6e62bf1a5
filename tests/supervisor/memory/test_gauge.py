"""The gauge counts rows, indexes and ages of a real arena; grants keep the arena within its budget while tables
grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.host import used_bytes
from elastichost.arena.kernels import SAMPLES_PER_STAMP
from elastichost.arena.layout import plan_layout
from elastichost.arena.least_room import SPARE_BYTES
from elastichost.errors import MemoryBudgetError
from elastichost.ps.rows.store import RowStore
from elastichost.sharding import BUCKETS_PER_TABLE
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.supervisor.memory.gauge import INDEX_PEAK, MemoryGauge, row_costs
from elastichost.supervisor.memory.grants import COPY_ROOM, Granter
from elastichost.tuner.memory.facts import AGE_EDGES

FIXED, DYNAMIC = 0, 1
ROWS = 5000
BUCKETS = [(FIXED, bucket) for bucket in range(5)] + [(DYNAMIC, bucket) for bucket in range(BUCKETS_PER_TABLE)]
MB = 1 << 20


def model() -> ModelSpec:
    """A model with a table of fixed size and a dynamic one."""
    tables = (TableSpec("fixed", FIXED, ("f",), "int", ROWS), TableSpec("grows", DYNAMIC, ("g",), "int", 0))
    optimizer = RowOptimizerSpec("adagrad")
    embeddings = tuple(
        EmbeddingSpec(f"e{table}", table, table, "m", "bag", ("f",), 30, "sum", optimizer, -1.0, 1.0)
        for table in (FIXED, DYNAMIC)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 8, 8), 0, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RowStore]:
    """The rows of a PS that owns all buckets."""
    arena = Arena.create(tmp_path, plan_layout(model(), 7, 1 << 28))
    made = RowStore(arena, 7)
    made.adopt(BUCKETS, initialise=True)
    yield made
    arena.close()


def see(store: RowStore, keys: np.ndarray, clock: int = 0) -> np.ndarray:
    """Looks up ids of the dynamic table; new ones get rows."""
    return store.rows_for(DYNAMIC, keys, True, clock)


def test_rows_of_each_table_are_counted_and_their_cost_is_the_memory_that_they_use(store: RowStore) -> None:
    gauge = MemoryGauge(0, store._arena)
    costs = row_costs(model())
    assert costs.place.tolist() == [2 * 32 * 4, 2 * 32 * 4 + 12]
    assert costs.index[FIXED] == 0
    before = gauge.read()
    assert before.live.tolist() == [ROWS, 0]
    see(store, np.arange(100_000))
    after = gauge.read()
    assert after.live.tolist() == after.places.tolist() == [ROWS, 100_000]
    assert after.used_bytes == used_bytes(store._arena.directory)
    of_rows = after.used_bytes - before.used_bytes - (after.index_bytes - before.index_bytes)
    assert of_rows == pytest.approx(costs.place[DYNAMIC] * after.allocated[DYNAMIC], rel=0.05)
    assert after.index_bytes <= 1.2 * after.index_peak_bytes
    assert after.index_peak_bytes == pytest.approx(costs.index[DYNAMIC] * 100_000, rel=0.3)
    half = np.array([number % 2 == 0 for number in range(len(BUCKETS))])
    assert gauge.read(half).live[DYNAMIC] == pytest.approx(50_000, rel=0.1)


def test_evicted_rows_stay_counted(store: RowStore) -> None:
    store._arena.board.set_horizon(DYNAMIC, 1)
    see(store, np.arange(3000))
    for bucket in range(BUCKETS_PER_TABLE):
        store.evict(DYNAMIC, bucket, 1 << 20)
    see(store, np.arange(1000), 1 << 20)
    found = MemoryGauge(0, store._arena).read()
    assert (found.live[DYNAMIC], found.evicted[DYNAMIC]) == (1000, 3000)


def test_ages_of_rows_come_from_their_stamps(store: RowStore) -> None:
    """A thousand rows are looked up at each of 100 moments, the first thousand again at the end."""
    stamp = SAMPLES_PER_STAMP
    store._arena.board.note_seen()
    for moment in range(100):
        see(store, np.arange(1000 * moment, 1000 * (moment + 1)), moment * stamp)
    now = 99 * stamp
    see(store, np.arange(1000), now)
    ages = MemoryGauge(0, store._arena).ages({DYNAMIC}, now)
    assert ages[FIXED].sum() == 0
    for edge, count in zip(AGE_EDGES, ages[DYNAMIC], strict=True):
        moments = min(99, edge // stamp + 1)
        assert count == pytest.approx(1000 * (moments + 1), rel=0.05)


def test_ages_of_many_rows_are_estimated_from_a_sample(store: RowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store._arena.board.note_seen()
    for moment in range(50):
        see(store, np.arange(2000 * moment, 2000 * (moment + 1)), moment * SAMPLES_PER_STAMP)
    gauge, now = MemoryGauge(0, store._arena), 50 * SAMPLES_PER_STAMP
    whole = gauge.ages({DYNAMIC}, now)[DYNAMIC]
    monkeypatch.setattr("elastichost.supervisor.memory.gauge.SAMPLED_ROWS", 3000)
    some = gauge.ages({DYNAMIC}, now)[DYNAMIC]
    assert some == pytest.approx(whole, rel=0.1)
    assert some[-1] == pytest.approx(100_000)


def test_a_growing_table_stays_within_the_budget(store: RowStore) -> None:
    """Rows, their index at its peak, and the copies of a checkpoint stay below it until it is reported full."""
    arena, private, budget = store._arena, 10 * MB, 100 * MB
    arena.board.begin_anew(is_limited=True)
    arena.allowance = arena.board.allowance(0)
    granter = Granter(MemoryGauge(0, arena), row_costs(model()), budget)
    granter.turn([0], private)
    key, refusals, facts = 0, 0, granter.turn([0], private)
    while refusals < 200 and not facts.shares.is_full:
        try:
            see(store, np.arange(key, key + 500))
            key += 500
        except MemoryBudgetError:
            refusals += 1
        facts = granter.turn([0], private)
        copies = COPY_ROOM * float((facts.reading.allocated * row_costs(model()).copy).sum())
        assert facts.reading.used_bytes + private + copies <= budget
        assert facts.left_bytes >= -SPARE_BYTES, "an index may have grown since the grant"
    assert facts.shares.is_full
    assert facts.left_bytes < 3 * SPARE_BYTES
    look = granter.look(facts, 1.0, may_take=False)
    assert look.budget_bytes == budget
    assert look.used_bytes == pytest.approx(budget, rel=0.1)
    assert look.place_bytes == pytest.approx(row_costs(model()).all[DYNAMIC] * facts.reading.places[DYNAMIC])
    assert INDEX_PEAK > 2


def test_a_full_file_system_limits_the_budget(store: RowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = store._arena
    arena.board.begin_anew(is_limited=True)
    granter = Granter(MemoryGauge(0, arena), row_costs(model()), 1 << 40)
    monkeypatch.setattr("elastichost.supervisor.memory.gauge.free_bytes", lambda path: 5 * MB)
    facts = granter.turn([0], 0)
    words = arena.board.server(0)
    assert words.granted - words.taken <= MB
    assert granter.look(facts, 1.0, may_take=False).budget_bytes < 1 << 30
