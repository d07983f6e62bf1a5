"""An index that grows in small steps, compared with a dictionary over random sequences of operations."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.index.table import buckets_of
from elastichost.arena.layout import plan_layout
from elastichost.arena.tables import growth as index_growth
from elastichost.arena.tables.dynamic_table import DynamicTable
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from tests.effort import examples

POOL = np.arange(-30_000, 30_000)
KEYS = POOL[buckets_of(POOL, 60) == 3]  # of one bucket: about 3,750
BUCKET = 3


def model_of(admit_after: int) -> ModelSpec:
    table = TableSpec("t", 0, ("f",), "int", 0, "error", admit_after, 1)
    embedding = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), 2, "sum", RowOptimizerSpec("sgd", 1.0), -1.0, 1.0)
    return ModelSpec((table,), (embedding,), DenseSpec((), 0, 0), 0, 1)


class IndexMachine(RuleBasedStateMachine):
    """An index and its expected content. rows, stamps: of keys with a row. sightings: counts of keys without a row."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="elastichost-test-"))
        self.rows: dict[int, int] = {}
        self.stamps: dict[int, int] = {}
        self.sightings: dict[int, int] = {}
        self.now = 1
        self.step_slots, index_growth._STEP_SLOTS = index_growth._STEP_SLOTS, 1

    @initialize(admit_after=st.integers(1, 2))
    def begin(self, admit_after: int) -> None:
        self.admit_after = admit_after
        self.arena = Arena.create(self.root, plan_layout(model_of(admit_after), 0, 1 << 20))
        self.open()

    def open(self) -> None:
        self.writer = DynamicTable(self.arena, 0)
        self.writer.open_bucket(BUCKET)

    def lookup(self, keys: list[int]) -> list[int]:
        out = np.empty(len(keys), np.int64)
        self.arena.lookup(0, np.array(keys, np.int64), out)
        return out.tolist()

    @rule(start=st.integers(0, len(KEYS) - 1), count=st.integers(1, 150))
    def see(self, start: int, count: int) -> None:
        keys = KEYS[start : start + count]
        rows = np.array(self.lookup(keys.tolist()))
        self.writer.create(keys, rows, self.now)
        for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
            if key not in self.rows:
                self.sightings[key] = self.sightings.get(key, 0) + 1
                assert (row >= 0) == (self.sightings[key] >= self.admit_after)
                if row >= 0:
                    self.rows[key], self.stamps[key] = row, self.now
                    del self.sightings[key]
            assert row == self.rows.get(key, -1)

    @rule(age=st.integers(0, 3))
    def evict(self, age: int) -> None:
        gone = [key for key, stamp in self.stamps.items() if stamp <= self.now - age]
        assert self.writer.evict(BUCKET, self.now - age) == len(gone)
        for key in gone:
            del self.rows[key], self.stamps[key]
        self.now += 1

    @rule()
    def grace(self) -> None:
        self.writer.confirm_grace()

    @rule()
    def killed_and_succeeded(self) -> None:
        self.arena.close()  # as the kernel does it
        self.arena = Arena.attach(self.root)
        self.open()

    @rule()
    def restored(self) -> None:
        ids, seen = self.writer.copy_ids(BUCKET)
        self.writer.begin_restore(BUCKET, len(ids))
        self.writer.restore_ids(BUCKET, ids, seen)
        self.sightings = {}

    @invariant()
    def the_index_is_the_dictionary(self) -> None:
        assert self.lookup(list(self.rows)) == list(self.rows.values())
        gone = [key for key in KEYS.tolist() if key not in self.rows]
        assert set(self.lookup(gone)) <= {-1}
        header = self.arena.header(0, BUCKET)
        assert header[index.LIVE_ROWS] == len(self.rows)
        assert header[index.USED_SLOTS] <= 0.7 * index.capacity_of(int(header[index.GENERATION]))

    def teardown(self) -> None:
        index_growth._STEP_SLOTS = self.step_slots
        self.arena.close()
        shutil.rmtree(self.root)


IndexMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
TestIndex = IndexMachine.TestCase


@pytest.fixture
def one_bucket(tmp_path: Path) -> DynamicTable:
    writer = DynamicTable(Arena.create(tmp_path, plan_layout(model_of(1), 0, 1 << 26)), 0)
    writer.open_bucket(BUCKET)
    return writer


def test_growth_is_spread_over_the_calls_that_need_it(
    one_bucket: DynamicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During growth readers find every key, and growth ends before the published generation is full."""
    monkeypatch.setattr(index_growth, "_STEP_SLOTS", 1)
    arena, header = one_bucket._arena, one_bucket._headers[BUCKET]
    calls: dict[int, list[int]] = {}  # generation -> remaining slots after each call
    for start in range(0, len(KEYS), 10):
        keys = KEYS[start : start + 10]
        one_bucket.create(keys, np.full(len(keys), -1, np.int64), 1)
        if one_bucket._index._growths[BUCKET, index_growth.GROWTH_CAPACITY]:
            calls.setdefault(int(header[index.GENERATION]), []).append(one_bucket._index._remaining(BUCKET))
        out: np.ndarray = np.empty(start + len(keys), np.int64)
        assert arena.lookup(0, KEYS[: start + len(keys)], out) == 0
        assert len(np.unique(out)) == len(out)
    assert len(calls) >= 5
    assert all(left == sorted(left, reverse=True) for left in calls.values())
    assert max(map(len, calls.values())) > 5, "a large generation takes many calls"


def test_a_generation_under_construction_is_freed_after_its_writer_ends(
    one_bucket: DynamicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_growth, "_STEP_SLOTS", 1)
    arena = one_bucket._arena
    for start in range(0, len(KEYS), 10):
        keys = KEYS[start : start + 10]
        one_bucket.create(keys, np.full(len(keys), -1, np.int64), 1)
        if start > 1000 and one_bucket._index._growths[BUCKET, index_growth.GROWTH_COPIED]:
            break
    before = arena.files.index.touched_bytes()
    one_bucket.close_bucket(BUCKET)
    successor = DynamicTable(arena, 0)
    successor.open_bucket(BUCKET)
    while successor.needs_grace:
        successor.confirm_grace()
    capacity = index.capacity_of(int(arena.header(0, BUCKET)[index.GENERATION]))
    assert arena.files.index.touched_bytes() <= 16 * capacity + 4096 < before
