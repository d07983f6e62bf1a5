"""A PS allocates at most what it was granted, and its successor continues the counts after a kill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.host import used_bytes
from elastichost.arena.index import table as index
from elastichost.arena.memory_board import UNLIMITED, MemoryBoard, pages_bytes
from elastichost.arena.recovery import reserve
from elastichost.arena.recovery.staging import StagingArea
from elastichost.arena.recovery.undo import UndoRecord
from elastichost.arena.tables.dynamic_table import LEFT_OUT, DynamicTable
from elastichost.errors import ArenaError, MemoryBudgetError
from elastichost.host.machine import PAGE_BYTES
from elastichost.specs import ModelSpec

MakeModel = Callable[..., ModelSpec]
MakeArena = Callable[..., Arena]
PLENTY = 1 << 40
BUCKETS = range(16)


@pytest.fixture
def board(tmp_path: Path) -> MemoryBoard:
    MemoryBoard.create(tmp_path, 3)
    return MemoryBoard(tmp_path, 3)


def server_of(arena: Arena, granted: int = PLENTY, spare: int = 0) -> DynamicTable:
    """The writer of all buckets of table 0, with a limited allowance."""
    arena.board.server(0).grant(granted, spare)
    arena.allowance = arena.board.allowance(0)
    writer = DynamicTable(arena, 0)
    for bucket in BUCKETS:
        writer.open_bucket(bucket)
    return writer


def create(writer: DynamicTable, keys: np.ndarray) -> np.ndarray:
    rows = np.full(len(keys), -1, np.int64)
    writer.create(keys, rows, 1)
    return rows


def test_words_are_shared_by_all_mappings_and_tables_have_separate_ones(board: MemoryBoard, tmp_path: Path) -> None:
    board.server(63).grant(10, 5)
    board.set_horizon(2, 4000)
    board.set_admit_after(0, 3)
    board.note_seen()
    other = MemoryBoard(tmp_path, 3)
    words = other.server(63)
    assert (words.granted, words.spare, words.taken) == (10, 5, 0)
    assert [other.horizon(table) for table in range(3)] == [0, 0, 4000]
    assert [other.admit_after(table) for table in range(3)] == [3, 0, 0]
    assert other.notes_seen and not other.leaves_out
    words.note_taken(7)
    words.note_evicted(3)
    words.note_left_out(2)
    words.note_copies(9)
    known = board.server(63)
    assert (known.taken, known.evicted, known.rounds, known.left_out, known.copies) == (7, 3, 1, 2, 9)
    assert board.server(62).taken == board.server(0).granted == 0
    with pytest.raises(IndexError):
        board.horizon(3)


@pytest.mark.parametrize("index", [-1, 64])
def test_a_ps_beyond_the_last_one_has_no_words(board: MemoryBoard, index: int) -> None:
    """They would be the words of a table."""
    with pytest.raises(IndexError, match=rf"PS {index} is out of range \(0 to 63\)"):
        board.server(index)
    with pytest.raises(IndexError):
        board.allowance(index)


def test_a_board_for_another_number_of_tables_is_refused(board: MemoryBoard, tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="the layout requires"):
        MemoryBoard(tmp_path, 4000)


def test_a_supervisor_begins_with_no_grant_or_with_no_limit(board: MemoryBoard) -> None:
    words, allowance = board.server(1), board.allowance(1)
    words.note_taken(500)
    words.grant(9000, 100)
    board.begin_anew(is_limited=True)
    with pytest.raises(MemoryBudgetError):
        allowance.require(1, "a row")
    board.begin_anew(is_limited=False)
    allowance.require(1 << 50, "a row")


def test_a_ps_can_take_its_grant_and_no_more(board: MemoryBoard) -> None:
    words, allowance = board.server(0), board.allowance(0)
    words.grant(100, 50)
    allowance.require(100, "rows")
    allowance.spend(80)
    allowance.require(20, "rows")
    with pytest.raises(MemoryBudgetError, match="rows needs 21 more bytes"):
        allowance.require(21, "rows")
    assert (words.refused, words.wanted) == (1, 21)
    allowance.require(70, "an index", is_spare=True)
    with pytest.raises(MemoryBudgetError):
        allowance.require(71, "an index", is_spare=True)
    words.grant(60, 0)
    with pytest.raises(MemoryBudgetError):
        allowance.require(1, "rows")
    UNLIMITED.require(1 << 60, "whatever has no PS")


def test_a_waiting_request_gets_a_later_grant(board: MemoryBoard) -> None:
    """A waiting PS repeats its request: the supervisor grants over several turns, and only reads new refusals."""
    words, allowance = board.server(0), board.allowance(0)

    def grant_when_asked_again() -> None:
        while words.refused < 3:
            pause.wait(0.005)
        words.grant(1000, 0)

    pause = threading.Event()
    supervisor = threading.Thread(target=grant_when_asked_again, daemon=True)
    supervisor.start()
    allowance.require(1000, "a bucket that is taken over", patience_s=60.0)
    supervisor.join()
    assert words.refused >= 3
    assert words.wanted == 1000


@pytest.mark.parametrize(
    ("offset", "length", "pages"), [(0, 0, 0), (0, 1, 1), (4095, 2, 2), (4096, 4096, 1), (100, 8192, 3)]
)
def test_pages_count_whole(offset: int, length: int, pages: int) -> None:
    assert pages_bytes(offset, length) == pages * PAGE_BYTES


def test_an_arena_never_occupies_more_than_the_taken_count(make_arena: MakeArena, make_model: MakeModel) -> None:
    arena = make_arena(make_model(dims=(16, 3), optimizer="adagrad"), memory_bytes=1 << 26)
    before = used_bytes(arena.directory)
    writer = server_of(arena)
    for start in range(0, 60_000, 7_000):
        create(writer, np.arange(start, start + 7_000))
    taken = arena.board.server(0).taken
    # Ranges share pages with their neighbours, and old generations of an index are freed.
    assert 0 < used_bytes(arena.directory) - before <= taken


def test_refused_rows_are_not_half_made_and_are_created_after_a_grant(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = server_of(arena)
    known = create(writer, np.arange(1000))
    words = arena.board.server(0)
    words.grant(words.taken, 0)
    more = np.arange(1000, 60_000)
    with pytest.raises(MemoryBudgetError, match="table 'table_0'"):
        create(writer, more)
    assert words.refused > 0
    found: np.ndarray = np.empty(len(more), np.int64)
    arena.lookup(0, more, found)
    assert len(np.unique(found[found >= 0])) == np.count_nonzero(found >= 0)
    assert np.array_equal(create(writer, np.arange(1000)), known), "ids that have a row keep it"
    words.grant(PLENTY, 0)
    assert (create(writer, more) >= 0).all()


def test_without_memory_ids_get_no_row_and_freed_rows_are_reused(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = server_of(arena)
    create(writer, np.arange(20_000))
    words = arena.board.server(0)
    words.grant(words.taken, 1 << 24)
    arena.board.leave_out(is_full=True)
    allocated = sum(int(arena.header(0, bucket)[index.ALLOCATED_ROWS]) for bucket in BUCKETS)
    rows = create(writer, np.arange(20_000, 80_000))
    assert 0 < np.count_nonzero(rows >= 0) <= allocated - 20_000
    assert words.left_out == np.count_nonzero(rows == LEFT_OUT) == np.count_nonzero(rows < 0)
    assert sum(int(arena.header(0, bucket)[index.NEXT_ROW]) for bucket in BUCKETS) <= allocated
    dropped = sum(writer.evict(bucket, 1) for bucket in BUCKETS)
    for _ in range(2):
        writer.confirm_grace()
    used = used_bytes(arena.directory)
    again = create(writer, np.arange(100_000, 100_000 + dropped // 2))
    assert np.count_nonzero(again >= 0) > 0.9 * len(again)
    assert len(np.unique(again[again >= 0])) == np.count_nonzero(again >= 0)
    words.grant(words.taken, 0)
    assert used_bytes(arena.directory) <= used + (1 << 24)


def test_an_index_that_may_not_grow_is_used_to_its_end(make_arena: MakeArena) -> None:
    """There is memory for rows but not for slots: rows that fit are created; other ids get no row or are refused."""
    arena = make_arena()
    writer = server_of(arena)
    create(writer, np.arange(12_000))
    writer._allocate_rows(0, 3000)
    for bucket in BUCKETS:
        writer._allocate_rows(bucket, 3000)
    words = arena.board.server(0)
    words.grant(words.taken, 0)
    keys = np.arange(12_000, 40_000)
    with pytest.raises(MemoryBudgetError, match="the index of table 'table_0'"):
        create(writer, keys)
    arena.board.leave_out(is_full=True)
    rows = create(writer, keys)
    assert np.count_nonzero(rows >= 0) > 0
    assert words.left_out == np.count_nonzero(rows == LEFT_OUT) == np.count_nonzero(rows < 0) > 0
    found: np.ndarray = np.empty(len(keys), np.int64)
    arena.lookup(0, keys, found)
    assert np.array_equal(found, np.maximum(rows, -1))
    words.grant(PLENTY, 0)
    assert (create(writer, keys) >= 0).all()


def test_the_larger_of_the_two_admission_limits_counts(make_arena: MakeArena, make_model: MakeModel) -> None:
    arena = make_arena(make_model(admit_after=2, evict_after_samples=5000))
    assert (arena.admit_after(0), arena.evict_after(0), arena.notes_seen(0)) == (2, 5000, True)
    arena.board.set_admit_after(0, 4)
    arena.board.set_horizon(0, 9000)
    assert (arena.admit_after(0), arena.evict_after(0)) == (4, 5000)
    arena.board.set_horizon(0, 3000)
    assert arena.evict_after(0) == 3000
    writer = server_of(arena)
    keys = np.arange(50)
    assert [np.count_nonzero(create(writer, keys) >= 0) for _ in range(4)] == [0, 0, 0, 50]


def test_staged_pushes_are_counted_and_use_the_spare_memory(tmp_path: Path, board: MemoryBoard) -> None:
    words, tables = board.server(2), 3
    words.grant(0, 2 << 20)
    area = StagingArea(tmp_path, 2, tables, board.allowance(2))
    rows, bounds = np.arange(10), np.array([0, 10, 10, 10])
    area.write(0, 1, 1, 1.0, rows, bounds, np.zeros(1000, np.float32))
    assert 0 < words.taken <= 2 << 20
    assert area.waiting() == (0,)
    area.close()


def test_the_successor_of_a_ps_does_not_ask_for_the_memory_of_its_predecessor_again(
    tmp_path: Path, board: MemoryBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: with a full budget a killed PS ended the job."""
    monkeypatch.setattr(reserve, "PATIENCE_S", 0.0)
    words, rows, bounds = board.server(2), np.arange(10), np.array([0, 10])
    gradients = np.zeros(2 << 20, np.float32)
    words.grant(1 << 30, 0)
    taken = []
    for _ in range(3):
        area = StagingArea(tmp_path, 2, 1, board.allowance(2))
        record = UndoRecord(tmp_path, 2, 1, board.allowance(2))
        area.write(0, 1, 1, 1.0, rows, bounds, gradients)
        record.begin([(0, 1)], rows, bounds, len(gradients), 10)
        area.close()
        record.close()
        taken.append(words.taken)
        words.grant(words.taken, 1 << 20)
    assert taken[0] > 2 * gradients.nbytes and len(set(taken)) == 1
    area = StagingArea(tmp_path, 2, 1, board.allowance(2))
    with pytest.raises(MemoryBudgetError):
        area.write(0, 2, 1, 1.0, rows, bounds, np.zeros(4 << 20, np.float32))
    area.close()
