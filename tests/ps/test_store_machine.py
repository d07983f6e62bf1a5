"""The store compared with a dictionary, for any sequence of operations on a dynamic table."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.kernels import SAMPLES_PER_STAMP, mix64
from elastichost.arena.layout import plan_layout
from elastichost.ps.rows.store import BucketBlock, RowStore
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from tests.effort import examples

BUCKETS = [(0, bucket) for bucket in range(16)]
AGE_STAMPS = 3
KEYS = st.lists(st.one_of(st.integers(0, 60), st.integers(-(1 << 63), (1 << 63) - 1)), min_size=1, max_size=40)
Contents = dict[int, np.ndarray]


def model_of(admit_after: int) -> ModelSpec:
    table = TableSpec("t", 0, ("f",), "int", 0, "error", admit_after, AGE_STAMPS * SAMPLES_PER_STAMP)
    embedding = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), 2, "sum", RowOptimizerSpec("sgd", 1.0), -1.0, 1.0)
    return ModelSpec((table,), (embedding,), DenseSpec((), 0, 0), 0, 1)


class StoreMachine(RuleBasedStateMachine):
    """A store and its expected content. weights, stamp: of ids with a row. sightings: counts of other ids."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="elastichost-test-"))
        self.weights: Contents = {}
        self.stamp: dict[int, int] = {}
        self.sightings: dict[int, int] = {}
        self.now = 0
        # Row -> grace periods until it may be used again, because a reader could still use it.
        self.cooling: dict[int, int] = {}
        self.saved: tuple[list[tuple[int, list[BucketBlock]]], Contents, dict[int, int]] | None = None

    @initialize(admit_after=st.integers(1, 3))
    def begin(self, admit_after: int) -> None:
        self.admit_after = admit_after
        self.arena = Arena.create(self.root, plan_layout(model_of(admit_after), 0, 1 << 20))
        self.attach()

    def attach(self) -> None:
        self.store = RowStore(self.arena, 0)
        self.store.adopt(BUCKETS, initialise=True)

    def rows(self, keys: list[int]) -> np.ndarray:
        return self.store.rows_for(0, np.array(keys, dtype=np.int64), False, 0)

    def read(self, rows: np.ndarray) -> np.ndarray:
        return self.store.lines.pull(rows, np.array([0, len(rows)])).reshape(-1, 4)

    @rule(keys=KEYS)
    def see(self, keys: list[int]) -> None:
        keys = list(dict.fromkeys(keys))
        rows = self.store.rows_for(0, np.array(keys, dtype=np.int64), True, self.now * SAMPLES_PER_STAMP)
        for key, row, weights in zip(keys, rows.tolist(), self.read(rows), strict=True):
            if key not in self.weights:
                self.sightings[key] = self.sightings.get(key, 0) + 1
                assert (row >= 0) == (self.sightings[key] >= self.admit_after)
            if row >= 0:
                self.stamp[key] = self.now
                if key not in self.weights:
                    del self.sightings[key]
                    assert self.cooling.get(row, 0) == 0, "a row that readers may still use was given to another id"
                    self.weights[key] = weights.copy()

    @rule(keys=KEYS, step=st.floats(-4, 4, width=32))
    def train(self, keys: list[int], step: float) -> None:
        known = [key for key in dict.fromkeys(keys) if key in self.weights]
        gradient = np.zeros((len(known), 4), np.float32)
        gradient[:, :2] = step
        self.store.lines.update(self.rows(known), np.array([0, len(known)]), gradient.reshape(-1), 1.0)
        for key in known:
            self.weights[key][:2] -= np.float32(step)

    @rule(stamps=st.integers(1, 3))
    def time_passes(self, stamps: int) -> None:
        self.now += stamps

    @rule()
    def evict(self) -> None:
        gone = [key for key, seen in self.stamp.items() if seen + 1 <= self.now - AGE_STAMPS]
        for row in self.rows(gone).tolist():
            self.cooling[row] = 2
        assert sum(self.store.evict(0, b, self.now * SAMPLES_PER_STAMP) for _, b in BUCKETS) == len(gone)
        for key in gone:
            del self.weights[key], self.stamp[key]

    @rule()
    def grace(self) -> None:
        self.store.confirm_grace()
        self.cooling = {row: left - 1 for row, left in self.cooling.items() if left > 1}

    @rule()
    def killed_and_succeeded(self) -> None:
        """The writer's memory is lost; the arena stays."""
        self.arena.close()  # as the kernel does when a process ends
        self.arena = Arena.attach(self.root)
        self.attach()

    @rule()
    def save(self) -> None:
        blocks = [(bucket, self.store.snapshot_bucket(0, bucket)) for _, bucket in BUCKETS]
        self.saved = blocks, {key: w.copy() for key, w in self.weights.items()}, dict(self.stamp)

    @rule()
    def restore(self) -> None:
        if self.saved is None:
            return
        blocks, weights, stamp = self.saved
        for bucket, content in blocks:
            self.store.restore_bucket(0, bucket, content)
        self.weights, self.stamp = {key: w.copy() for key, w in weights.items()}, dict(stamp)
        self.sightings, self.cooling = {}, {}

    @invariant()
    def the_store_is_the_dictionary(self) -> None:
        keys = list(self.weights)
        rows = self.rows(keys)
        assert len(set(rows.tolist())) == len(keys)
        assert (rows // self.arena.layout.bucket_capacity(0)).tolist() == [int(mix64(key)) >> 60 for key in keys]
        assert np.array_equal(self.arena.ids_view(0)[rows], np.array(keys, dtype=np.int64))
        assert np.array_equal(self.read(rows), np.array([self.weights[key] for key in keys]).reshape(-1, 4))
        live = [int(self.arena.header(0, bucket)[index.LIVE_ROWS]) for bucket in range(16)]
        assert sum(live) == len(keys)
        assert (self.rows(list(self.sightings)) == -1).all()

    def teardown(self) -> None:
        self.arena.close()
        shutil.rmtree(self.root)


StoreMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
TestStore = StoreMachine.TestCase
