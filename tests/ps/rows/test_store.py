"""The row store over a real arena: rows, updates, admission, eviction, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.kernels import SAMPLES_PER_STAMP
from elastichost.arena.layout import plan_layout
from elastichost.arena.tables.dynamic_table import DynamicTable
from elastichost.checkpoint.format import BlockWriter, read_block
from elastichost.errors import ArenaError, CheckpointError, IdOutOfRangeError, ProtocolError
from elastichost.ps.rows.store import RowStore
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, Precision, RowOptimizer, RowOptimizerSpec, TableSpec

FIXED, DYNAMIC = 0, 1
FIXED_BUCKETS = [(FIXED, bucket) for bucket in range(3)]
DYNAMIC_BUCKETS = [(DYNAMIC, bucket) for bucket in range(16)]
ALL = FIXED_BUCKETS + DYNAMIC_BUCKETS
MakeArena = Callable[..., Arena]


def model_of(
    admit_after: int = 1,
    evict_after_samples: int = 0,
    optimizer: RowOptimizer = "adagrad",
    precision: Precision = "float32",
) -> ModelSpec:
    """A fixed table with one embedding (dim 6), and a dynamic table with two embeddings (dims 4 and 1)."""
    tables = (
        TableSpec("fixed", FIXED, ("a",), "int", rows=2500),
        TableSpec("dynamic", DYNAMIC, ("b",), "int", 0, "error", admit_after, evict_after_samples),
    )
    chosen = (RowOptimizerSpec("rowwise_adagrad"), RowOptimizerSpec(optimizer), RowOptimizerSpec("sgd"))
    embeddings = tuple(
        EmbeddingSpec(f"e{i}", i, table, "m", "bag", ("f",), dim, "sum", chosen[i], -0.5, 0.5, precision)
        for i, (table, dim) in enumerate([(FIXED, 6), (DYNAMIC, 4), (DYNAMIC, 1)])
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 0, 0), 0, 1)


def live_rows(arena: Arena) -> int:
    return sum(int(arena.header(*bucket)[index.LIVE_ROWS]) for bucket in ALL)


@pytest.fixture
def make_arena(tmp_path: Path) -> Iterator[MakeArena]:
    made: list[Arena] = []

    def make(**settings: int | str) -> Arena:
        directory = tmp_path / f"arena-{len(made)}"
        directory.mkdir()
        made.append(Arena.create(directory, plan_layout(model_of(**settings), 7, 1 << 24)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for arena in made:
        arena.close()


def adopted(arena: Arena) -> RowStore:
    store = RowStore(arena, 7)
    store.adopt(ALL, initialise=True)
    return store


def bounds_of(embedding: int, rows: int) -> np.ndarray:
    """The bounds of a frame with `rows` rows of the embedding's table."""
    return np.array([0, rows, rows] if embedding == 0 else [0, 0, rows])


def pulled(store: RowStore, embedding: int, rows: np.ndarray, width: int) -> np.ndarray:
    lines = store.lines.pull(rows, bounds_of(embedding, len(rows)))
    if embedding == 0:
        return lines.reshape(-1, 8)
    of_both = lines.reshape(2, len(rows), 4)  # the dynamic table's embeddings are equally wide
    return of_both[embedding - 1]


def push(store: RowStore, embedding: int, rows: np.ndarray, gradients: np.ndarray, scale: float = 1.0) -> None:
    """Applies gradients to one embedding; the other embedding of a dynamic table gets gradients of zero."""
    if embedding:
        both = np.zeros((2, *gradients.shape), np.float32)
        both[embedding - 1] = gradients
        gradients = both
    update(store, rows, bounds_of(embedding, len(rows)), gradients.reshape(-1), scale)


def update(store: RowStore, rows: np.ndarray, bounds: np.ndarray, gradients: np.ndarray, scale: float = 1.0) -> None:
    store.lines.check(rows, bounds, len(gradients))
    store.lines.update(rows, bounds, gradients, scale)


@pytest.mark.parametrize("of", [(FIXED, 1), (DYNAMIC, 3)])
def test_an_owned_bucket_is_neither_copied_into_nor_forgotten(make_arena: MakeArena, of: tuple[int, int]) -> None:
    """An order may be late or wrong. If it were obeyed, the rows would be lost."""
    arena = make_arena()
    store = adopted(arena)
    rows = store.rows_for(DYNAMIC, np.arange(1000), True, 0)
    before = [pulled(store, 0, np.arange(2500), 8), pulled(store, 1, rows, 4)]
    with pytest.raises(ProtocolError, match="no rows are copied in"):
        store.begin_move(*of, 10)
    with pytest.raises(ProtocolError, match="it is not freed"):
        store.forget(*of)
    after = [pulled(store, 0, np.arange(2500), 8), pulled(store, 1, rows, 4)]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    assert arena.header(*of)[index.FILLED] == 1
    assert np.array_equal(store.rows_for(DYNAMIC, np.arange(1000), False, 0), rows)
    store.release([of])
    store.forget(*of)
    assert arena.header(*of)[index.FILLED] == 0, "the bucket is on another host now"


def test_fixed_rows_are_initialised_once_by_any_owner(make_arena: MakeArena) -> None:
    arena, other = make_arena(), make_arena()
    store = adopted(arena)
    rows = np.arange(2500)
    first = pulled(store, 0, rows, 8)
    assert (np.abs(first[:, :6]) <= 0.5).all()
    assert not first[:, 6:].any()
    assert len(np.unique(first[:, 0])) > 2490
    for bucket in FIXED_BUCKETS:
        RowStore(other, 7).adopt([bucket], initialise=True)
    assert np.array_equal(other.rows_view(0), first)
    push(store, 0, np.array([5]), np.ones((1, 8), np.float32))
    trained = pulled(store, 0, rows, 8)
    adopted(Arena.attach(arena.directory))
    assert np.array_equal(pulled(store, 0, rows, 8), trained), "a successor keeps the trained rows"


def test_new_ids_get_the_same_weights_in_any_order(make_arena: MakeArena) -> None:
    keys = np.random.default_rng(0).integers(-(1 << 60), 1 << 60, 3000)
    arena = make_arena()
    first, second = adopted(arena), adopted(make_arena())
    for part in np.array_split(keys[::-1], 7):
        second.rows_for(DYNAMIC, part, True, 0)
    rows, others = first.rows_for(DYNAMIC, keys, True, 0), second.rows_for(DYNAMIC, keys, False, 0)
    assert len(np.unique(rows)) == 3000
    for embedding in (1, 2):
        weights = pulled(first, embedding, rows, 4)
        assert np.array_equal(weights, pulled(second, embedding, others, 4))
        assert weights[:, 0].std() > 0.2
    assert not pulled(first, 2, rows, 4)[:, 1:].any()
    assert live_rows(arena) == 2500 + 3000


def test_unknown_ids_have_no_row_unless_asked_to_create(make_arena: MakeArena) -> None:
    store = adopted(make_arena())
    rows = store.rows_for(DYNAMIC, np.arange(5), False, 0)
    assert (rows == -1).all()
    assert not pulled(store, 1, rows, 4).any()


def test_an_id_is_admitted_at_its_nth_sighting(make_arena: MakeArena) -> None:
    store = adopted(make_arena(admit_after=3))
    for _ in range(2):
        assert (store.rows_for(DYNAMIC, np.arange(100), True, 0) == -1).all()
    store.rows_for(DYNAMIC, np.arange(100), False, 0)
    assert (store.rows_for(DYNAMIC, np.arange(200), True, 0) >= 0).tolist() == [True] * 100 + [False] * 100
    thrice = store.rows_for(DYNAMIC, np.array([999, 999, 999]), True, 0)
    assert thrice[2] >= 0


def test_updates_reach_only_the_rows_named(make_arena: MakeArena) -> None:
    store = adopted(make_arena())
    rows = store.rows_for(DYNAMIC, np.arange(50), True, 0)
    before = pulled(store, 2, rows, 4)
    gradient = np.zeros((1, 4), np.float32)
    gradient[0, 0] = 2.0
    push(store, 2, rows[7:8], gradient, 0.5)
    after = pulled(store, 2, rows, 4)
    assert after[7, 0] == pytest.approx(before[7, 0] - 0.1 * 0.5 * 2.0)
    after[7] = before[7]
    assert np.array_equal(after, before)


def test_received_arrays_are_read_only_and_accepted(make_arena: MakeArena) -> None:
    store = adopted(make_arena())
    keys = np.frombuffer(np.arange(10, dtype=np.int64).tobytes(), np.int64)
    rows = np.frombuffer(store.rows_for(DYNAMIC, keys, True, 0).tobytes(), np.int64)
    update(store, rows, np.array([0, 0, 10]), np.frombuffer(np.ones(80, np.float32).tobytes(), np.float32))
    assert pulled(store, 1, rows, 4).shape == (10, 4)


def test_requests_that_would_change_other_memory_are_refused(make_arena: MakeArena) -> None:
    arena = make_arena()
    store = adopted(arena)
    gradient = np.ones((1, 4), np.float32)
    for row in (-1, 0, arena.layout.row_space(DYNAMIC), 1 << 60):
        with pytest.raises(ProtocolError, match="no row"):
            push(store, 1, np.array([row]), gradient)
    with pytest.raises(ProtocolError, match="'fixed' has no row 2500"):
        push(store, 0, np.array([2499, 2500]), np.ones((2, 8), np.float32))
    rows = store.rows_for(DYNAMIC, np.array([1]), True, 0)
    with pytest.raises(ProtocolError, match="gradients of 1 rows must have 8 floats, not 4"):
        update(store, rows, np.array([0, 0, 1]), np.ones(4, np.float32))
    with pytest.raises(IdOutOfRangeError, match=r"row 2500 of table 'fixed' is out of range \(0 to 2499\)"):
        store.rows_for(FIXED, np.array([3, 2500]), True, 0)
    with pytest.raises(ArenaError, match="seed 7"):
        RowStore(arena, 8)


def test_released_buckets_are_not_written_any_more(make_arena: MakeArena) -> None:
    arena = make_arena()
    store = adopted(arena)
    rows = store.rows_for(DYNAMIC, np.arange(100), True, 0)
    store.release(DYNAMIC_BUCKETS)
    assert np.array_equal(store.rows_for(DYNAMIC, np.arange(100), True, 0), rows), "reading needs no ownership"
    with pytest.raises(ProtocolError, match="not owned"):
        store.rows_for(DYNAMIC, np.arange(200), True, 0)
    with pytest.raises(ProtocolError, match="not owned"):
        store.snapshot_bucket(*DYNAMIC_BUCKETS[0])
    successors = [RowStore(Arena.attach(arena.directory), 7) for _ in range(2)]
    for number, successor in enumerate(successors):
        successor.adopt(DYNAMIC_BUCKETS[number::2], initialise=True)
        assert np.array_equal(successor.rows_for(DYNAMIC, np.arange(100), True, 0), rows)
    assert all(sum(successor.owns(*bucket) for successor in successors) == 1 for bucket in DYNAMIC_BUCKETS)


def test_eviction_drops_ids_that_were_not_seen_and_reuses_rows_after_two_graces(make_arena: MakeArena) -> None:
    arena = make_arena(evict_after_samples=10 * SAMPLES_PER_STAMP)
    store = adopted(arena)
    old = store.rows_for(DYNAMIC, np.arange(100), True, 0)
    push(store, 1, old, np.ones((100, 4), np.float32))
    clock = 11 * SAMPLES_PER_STAMP
    store.rows_for(DYNAMIC, np.arange(50), True, clock)
    assert sum(store.evict(table, bucket, clock - 1) for table, bucket in DYNAMIC_BUCKETS) == 0, "not old enough"
    assert sum(store.evict(table, bucket, clock) for table, bucket in DYNAMIC_BUCKETS) == 50
    kept = store.rows_for(DYNAMIC, np.arange(100), False, clock)
    assert np.array_equal(kept[:50], old[:50])
    assert (kept[50:] == -1).all()
    assert store.needs_grace
    early = store.rows_for(DYNAMIC, np.arange(1000, 1100), True, clock)
    assert not set(early) & set(old.tolist())
    store.confirm_grace()
    store.confirm_grace()
    again = store.rows_for(DYNAMIC, np.arange(50, 100), True, clock)
    assert set(again) == set(old[50:].tolist()), "the same keys fall into the same buckets, so all rows come back"
    fresh = adopted(make_arena(evict_after_samples=10 * SAMPLES_PER_STAMP))
    expected = pulled(fresh, 1, fresh.rows_for(DYNAMIC, np.arange(50, 100), True, 0), 4)
    assert np.array_equal(pulled(store, 1, again, 4), expected), "an id that returns gets initial weights"
    state = arena.state_view(1)
    assert state is not None
    assert not state[again].any()


def test_a_late_stamp_does_not_bring_an_evicted_row_back(make_arena: MakeArena) -> None:
    arena = make_arena(evict_after_samples=1)
    store = adopted(arena)
    old = store.rows_for(DYNAMIC, np.arange(100), True, 0)
    clock = 100 * SAMPLES_PER_STAMP
    for bucket in DYNAMIC_BUCKETS:
        store.evict(*bucket, clock)
    arena.seen_view(DYNAMIC)[old] = 100
    snapshot = [block for bucket in DYNAMIC_BUCKETS for block in store.snapshot_bucket(*bucket)]
    assert not any(block.array.any() for block in snapshot if block.kind == "seen")
    successor = DynamicTable(Arena.attach(arena.directory), DYNAMIC)
    assert sum(successor.open_bucket(bucket) for _, bucket in DYNAMIC_BUCKETS) == 100
    assert live_rows(arena) == 2500


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_snapshots_restore_every_bit(make_arena: MakeArena, optimizer: RowOptimizer, precision: Precision) -> None:
    settings = {"evict_after_samples": 10 * SAMPLES_PER_STAMP, "optimizer": optimizer, "precision": precision}
    source_arena, target_arena = make_arena(**settings), make_arena(**settings)
    source = adopted(source_arena)
    rows = source.rows_for(DYNAMIC, np.arange(2000), True, 0)
    source.rows_for(DYNAMIC, np.arange(1500), True, 20 * SAMPLES_PER_STAMP)
    for embedding, width, touched in ((0, 8, np.arange(2500)), (1, 4, rows), (2, 4, rows)):
        gradient = np.random.default_rng(0).normal(size=(len(touched), width)).astype(np.float32)
        push(source, embedding, touched, gradient)
    for bucket in DYNAMIC_BUCKETS:
        source.evict(*bucket, 20 * SAMPLES_PER_STAMP)
    blocks = {bucket: source.snapshot_bucket(*bucket) for bucket in ALL}
    target = RowStore(target_arena, 7)
    target.adopt(ALL[::2], initialise=False)
    target.rows_for(DYNAMIC, np.arange(9000, 9100), False, 0)
    for bucket in ALL:
        target.restore_bucket(*bucket, blocks[bucket])
    again = {bucket: target.snapshot_bucket(*bucket) for bucket in ALL}
    for bucket in ALL:
        for mine, theirs in zip(blocks[bucket], again[bucket], strict=True):
            assert mine[:2] == theirs[:2]
            assert np.array_equal(mine.array, theirs.array)
    assert np.array_equal(
        target.rows_for(DYNAMIC, np.arange(2000), False, 0), source.rows_for(DYNAMIC, np.arange(2000), False, 0)
    )
    target.confirm_grace()
    target.confirm_grace()
    reused = target.rows_for(DYNAMIC, np.arange(1500, 2000), True, 0)
    assert set(reused) == set(rows[1500:].tolist()), "restored free rows are free"


def test_a_restore_replaces_the_present_rows(make_arena: MakeArena) -> None:
    arena = make_arena()
    store = adopted(arena)
    store.rows_for(DYNAMIC, np.arange(100), True, 0)
    blocks = {bucket: store.snapshot_bucket(*bucket) for bucket in DYNAMIC_BUCKETS}
    before = store.rows_for(DYNAMIC, np.arange(5000), False, 0)
    store.rows_for(DYNAMIC, np.arange(5000), True, 0)
    for bucket in DYNAMIC_BUCKETS:
        store.restore_bucket(*bucket, blocks[bucket])
    assert np.array_equal(store.rows_for(DYNAMIC, np.arange(5000), False, 0), before)
    assert live_rows(arena) == 2500 + 100


def test_blocks_that_do_not_fit_are_refused_by_name(make_arena: MakeArena) -> None:
    store = adopted(make_arena())
    store.rows_for(DYNAMIC, np.arange(100), True, 0)
    blocks = store.snapshot_bucket(DYNAMIC, 2)
    with pytest.raises(CheckpointError, match="table 'dynamic', bucket 2, block seen 1 is missing"):
        store.restore_bucket(DYNAMIC, 2, [block for block in blocks if block.kind != "seen"])
    short = [block if block.kind != "rows" else block._replace(array=block.array[:1]) for block in blocks]
    with pytest.raises(CheckpointError, match=r"block rows 1 is float32 \[1, 4\], not float32"):
        store.restore_bucket(DYNAMIC, 2, short)


def test_bfloat16_rows_go_through_a_checkpoint_of_their_precision_only(make_arena: MakeArena, tmp_path: Path) -> None:
    source, target = (adopted(make_arena(precision="bfloat16")) for _ in range(2))
    rows = source.rows_for(DYNAMIC, np.arange(500), True, 0)
    push(source, 1, rows, np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32))
    with BlockWriter(tmp_path / "server-0.bin") as writer:
        records = [
            writer.add(kind, owner, bucket, array)
            for bucket in range(16)
            for kind, owner, array in source.snapshot_bucket(DYNAMIC, bucket)
        ]
    assert {record.dtype for record in records if record.kind == "rows"} == {"<u2"}
    for _, bucket in DYNAMIC_BUCKETS:
        blocks = [(r.kind, r.owner, read_block(tmp_path, r)) for r in records if r.bucket == bucket]
        target.restore_bucket(DYNAMIC, bucket, blocks)
    again = target.rows_for(DYNAMIC, np.arange(500), False, 0)
    for embedding in (1, 2):
        weights = pulled(source, embedding, rows, 4)
        assert weights.any()
        assert np.array_equal(pulled(target, embedding, again, 4), weights)
    other = adopted(make_arena())
    with pytest.raises(CheckpointError, match="block rows 1 holds bfloat16 rows, but the job has float32") as e:
        other.restore_bucket(DYNAMIC, 0, source.snapshot_bucket(DYNAMIC, 0))
    assert e.value.hint == 'set tables.dynamic.precision = "bfloat16"'


def test_a_bucket_whose_restore_was_cut_off_counts_as_empty(make_arena: MakeArena) -> None:
    arena = make_arena()
    store = adopted(arena)
    store.rows_for(DYNAMIC, np.arange(1000), True, 0)
    for _, bucket in DYNAMIC_BUCKETS:
        arena.header(DYNAMIC, bucket)[index.FILLED] = 0
    successor = adopted(Arena.attach(arena.directory))
    assert (successor.rows_for(DYNAMIC, np.arange(1000), False, 0) == -1).all()
    rows = successor.rows_for(DYNAMIC, np.arange(1000), True, 0)
    assert len(np.unique(rows)) == 1000


def test_heat_counts_the_requested_keys(make_arena: MakeArena) -> None:
    arena = make_arena()
    store = adopted(arena)
    store.rows_for(FIXED, np.array([0, 1, 2, 2499]), True, 0)
    store.rows_for(DYNAMIC, np.arange(30), True, 0)
    heat = {bucket: int(arena.header(*bucket)[index.HEAT]) for bucket in ALL}
    assert [heat[bucket] for bucket in FIXED_BUCKETS] == [3, 0, 1]
    assert sum(heat[bucket] for bucket in DYNAMIC_BUCKETS) == 30


def test_an_age_on_the_board_counts_where_the_job_has_none_or_a_longer_one(make_arena: MakeArena) -> None:
    arena = make_arena()
    store = adopted(arena)
    store.rows_for(DYNAMIC, np.arange(100), True, 0)
    clock = 100 * SAMPLES_PER_STAMP
    assert sum(store.evict(table, bucket, clock) for table, bucket in DYNAMIC_BUCKETS) == 0
    arena.board.note_seen()
    arena.board.set_horizon(DYNAMIC, 10 * SAMPLES_PER_STAMP)
    store.rows_for(DYNAMIC, np.arange(40), True, clock)
    assert sum(store.evict(table, bucket, clock) for table, bucket in DYNAMIC_BUCKETS) == 60
    old = store.rows_for(DYNAMIC, np.arange(40), False, clock)
    assert (old >= 0).all()
    late = 200 * SAMPLES_PER_STAMP
    assert sum(store.evict(table, bucket, late) for table, bucket in DYNAMIC_BUCKETS) == 40
    arena.seen_view(DYNAMIC)[old] = 150
    successor = DynamicTable(Arena.attach(arena.directory), DYNAMIC)
    taken_back = sum(successor.open_bucket(bucket) for _, bucket in DYNAMIC_BUCKETS)
    assert taken_back == 40, "rows that a worker stamps after their eviction must be taken back"
