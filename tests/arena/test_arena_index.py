"""The index with real readers, real kills, and every incomplete state that a kill can leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

from elastichost.arena import arena as arena_module
from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.index.hashing import mix64, slot_hash
from elastichost.arena.layout import HEADER_WORDS
from elastichost.arena.tables.dynamic_table import DynamicTable
from elastichost.errors import ArenaFullError, ProtocolError
from elastichost.specs import ModelSpec
from tests.arena.conftest import index_view

MakeModel = Callable[..., ModelSpec]
MakeArena = Callable[..., Arena]
BUCKETS = range(16)
Result = TypeVar("Result")


def writer_of(arena: Arena) -> DynamicTable:
    writer = DynamicTable(arena, 0)
    for bucket in BUCKETS:
        writer.open_bucket(bucket)
    return writer


def create(writer: DynamicTable, keys: np.ndarray, seen_value: int = 1) -> np.ndarray:
    rows = np.full(len(keys), -1, np.int64)
    writer.create(keys, rows, seen_value)
    return rows


def lookup(arena: Arena, keys: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.empty(len(keys), np.int64)
    assert arena.lookup(0, keys, out) == np.count_nonzero(out < 0)
    return out


def generation_of(arena: Arena, bucket: int) -> np.ndarray:
    """The published generation, int64 [capacity, 2]."""
    word, region = int(arena.header(0, bucket)[index.GENERATION]), index_view(arena, 0, bucket)
    first, capacity = index.generation_first(word, 0, len(region)), index.capacity_of(word)
    slots: np.ndarray = region[first : first + capacity]
    return slots


def slot_of(arena: Arena, bucket: int, key: int) -> np.ndarray:
    """The slot (key, value) of a key in the published generation, or the empty slot where the key belongs."""
    slots = generation_of(arena, bucket)
    mixed = slot_hash(np.uint64(mix64(key)), arena.layout.index_key)
    place = (int(mixed) & 0xFFFFFFFF) * len(slots) >> 32
    while slots[place, 1] and slots[place, 0] != key:
        place = (place + 1) % len(slots)
    slot: np.ndarray = slots[place]
    return slot


def assert_consistent(arena: Arena, known: np.ndarray) -> None:
    """Checks that the id of every used row maps to that row, that used ids are unique, and that all keys are found."""
    ids, seen = arena.ids_view(0), arena.seen_view(0)
    rows = np.flatnonzero(seen)
    assert len(np.unique(ids[rows])) == len(rows)
    assert np.array_equal(lookup(arena, ids[rows]), rows)
    found = lookup(arena, known)
    assert (found >= 0).all()
    assert np.array_equal(ids[found], known)
    headers = arena.control.reshape(-1, HEADER_WORDS)[:16]
    assert headers[:, index.LIVE_ROWS].sum() == len(rows)


def test_keys_find_their_rows_through_many_growths(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = writer_of(arena)
    keys = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 30_000)
    keys[:4] = [0, -1, -(1 << 63), (1 << 63) - 1]
    rows = np.concatenate([create(writer, part) for part in np.array_split(keys, 30)])
    assert np.array_equal(lookup(arena, keys), rows)
    assert np.array_equal(lookup(Arena.attach(arena.directory), keys), rows)
    assert (lookup(arena, keys + 1)[4:] == -1).mean() > 0.99
    assert_consistent(arena, keys)
    for bucket in BUCKETS:
        used, capacity = int(arena.header(0, bucket)[index.USED_SLOTS]), len(generation_of(arena, bucket))
        assert 0.3 * capacity < used <= 0.7 * capacity


def test_rows_are_handed_out_densely(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = writer_of(arena)
    rows = create(writer, np.arange(5000))
    buckets = np.array([int(mix64(key)) >> 60 for key in range(5000)])
    capacity = arena.layout.bucket_capacity(0)
    for bucket in BUCKETS:
        inside = rows[buckets == bucket] - bucket * capacity
        assert sorted(inside) == list(range(len(inside)))


def test_repeated_keys_share_one_row(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = writer_of(arena)
    keys = np.tile(np.arange(100), 3)
    rows = create(writer, keys)
    assert len(np.unique(rows)) == 100
    assert np.array_equal(rows, np.tile(rows[:100], 3))
    more = create(writer, np.arange(100, 3000))
    assert len(np.unique(np.concatenate([rows, more]))) == 3000
    assert arena.control.reshape(-1, HEADER_WORDS)[:16, index.NEXT_ROW].sum() == 3000, "no row was lost"


def test_outgrown_generations_are_freed_after_two_graces(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = writer_of(arena)
    keys = np.arange(30_000)
    create(writer, keys)
    waited = [writer.needs_grace]
    writer.confirm_grace()
    before = arena.files.index.touched_bytes()
    writer.confirm_grace()
    waited.append(writer.needs_grace)
    assert waited == [True, False]
    capacities = [len(generation_of(arena, bucket)) for bucket in BUCKETS]
    assert arena.files.index.touched_bytes() <= 16 * sum(capacities) + 4096
    assert arena.files.index.touched_bytes() < before
    assert_consistent(arena, keys)


def test_churn_reuses_slots_and_rows(make_arena: MakeArena, make_model: MakeModel) -> None:
    arena = make_arena(make_model(evict_after_samples=1))
    writer = writer_of(arena)
    generator = np.random.default_rng(0)
    for stamp in range(1, 60):
        keys = np.unique(generator.integers(0, 1 << 40, 1600))
        create(writer, keys, stamp)
        for bucket in BUCKETS:
            writer.evict(bucket, stamp - 2)
        writer.confirm_grace()
        assert_consistent(arena, keys)
    headers = arena.control.reshape(-1, HEADER_WORDS)[:16]
    assert headers[:, index.NEXT_ROW].max() < 1000, "rows must be reused"
    assert max(len(generation_of(arena, bucket)) for bucket in BUCKETS) <= 4096, "slots must be reused"


def test_sightings_never_outgrow_the_index(make_arena: MakeArena, make_model: MakeModel) -> None:
    arena = make_arena(make_model(admit_after=2), memory_bytes=1 << 20)
    assert arena.layout.bucket_capacity(0) == 4096
    writer = writer_of(arena)
    for start in range(0, 400_000, 50_000):
        create(writer, np.arange(start, start + 50_000))
    for bucket in BUCKETS:
        header = arena.header(0, bucket)
        assert header[index.USED_SLOTS] <= 0.7 * len(generation_of(arena, bucket))
        assert header[index.NEXT_ROW] == 0
    assert (create(writer, np.arange(399_000, 400_000)) >= 0).all()


def test_a_full_bucket_is_a_typed_error_and_nothing_is_half_made(make_arena: MakeArena) -> None:
    arena = make_arena(memory_bytes=1 << 20)
    writer = writer_of(arena)
    keys = np.arange(200_000)
    with pytest.raises(ArenaFullError, match="table 'table_0'"):
        create(writer, keys)
    found = lookup(arena, keys)
    assert_consistent(arena, keys[found >= 0])


def test_buckets_that_the_writer_has_not_opened_are_refused(make_arena: MakeArena) -> None:
    writer = DynamicTable(make_arena(), 0)
    writer.open_bucket(3)
    with pytest.raises(ProtocolError, match="not owned"):
        create(writer, np.arange(100))


@pytest.mark.parametrize(("stamped", "published"), [(False, False), (True, False), (True, True)])
def test_an_interrupted_publication_is_finished_or_taken_back(
    make_arena: MakeArena, stamped: bool, published: bool
) -> None:
    """The states that a kill can leave between the raise of NEXT_ROW and the clearing of INTENT."""
    arena = make_arena()
    writer = writer_of(arena)
    keys = np.arange(1000)
    create(writer, keys)
    key = 5_000_000
    bucket = int(mix64(key)) >> 60
    header, first = arena.header(0, bucket), arena.layout.bucket_first_row(0, bucket)
    row = int(header[index.NEXT_ROW])
    header[index.NEXT_ROW] += 1
    arena.ids_view(0)[first + row] = key
    header[index.INTENT] = row + 1
    if stamped:
        arena.seen_view(0)[first + row] = 1
    if published:
        slot_of(arena, bucket, key)[:] = (
            key,
            (row + 1) | ((int(slot_hash(np.uint64(mix64(key)), arena.layout.index_key)) >> 32) & 0x7FFFFF) << 40,
        )
    successor = DynamicTable(Arena.attach(arena.directory), 0)
    taken_back = sum(successor.open_bucket(b) for b in BUCKETS)
    assert taken_back == (0 if published else 1)
    assert lookup(arena, np.array([key]))[0] == (first + row if published else -1)
    assert_consistent(arena, keys)
    successor.confirm_grace()
    successor.confirm_grace()
    if not published:
        same_bucket = np.array([k for k in range(10_000, 20_000) if int(mix64(k)) >> 60 == bucket][:1])
        assert create(successor, same_bucket)[0] == first + row, "the row must be free again"


@pytest.mark.parametrize("taken_out", [False, True])
def test_an_interrupted_eviction_is_finished_or_undone(make_arena: MakeArena, taken_out: bool) -> None:
    arena = make_arena()
    keys = np.arange(1000)
    row = int(create(writer_of(arena), keys)[500])
    bucket, first = int(mix64(500)) >> 60, arena.layout.bucket_first_row(0, int(mix64(500)) >> 60)
    arena.header(0, bucket)[index.INTENT] = row - first + 1
    if taken_out:
        slot_of(arena, bucket, 500)[1] = index.TOMBSTONE
    successor = DynamicTable(Arena.attach(arena.directory), 0)
    assert sum(successor.open_bucket(b) for b in BUCKETS) == taken_out
    assert_consistent(arena, np.delete(keys, 500) if taken_out else keys)


def test_a_copy_that_was_not_published_does_not_matter(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = writer_of(arena)
    keys = np.arange(2000)
    create(writer, keys)
    for bucket in BUCKETS:
        region, capacity = index_view(arena, 0, bucket), len(generation_of(arena, bucket))
        other = len(region) // 2 - index.generation_first(int(arena.header(0, bucket)[0]), 0, len(region))
        region[other : other + 2 * capacity] = 12345
    successor = writer_of(Arena.attach(arena.directory))
    create(successor, np.arange(2000, 6000))
    assert_consistent(arena, np.arange(6000))


WRITER = """
import sys
from pathlib import Path
import numpy as np
from elastichost.arena.arena import Arena
from elastichost.arena.tables.dynamic_table import DynamicTable
arena = Arena.attach(Path(sys.argv[1]))
writer = DynamicTable(arena, 0)
print(sum(writer.open_bucket(bucket) for bucket in range(16)), flush=True)
stamp = int(sys.argv[2])
while True:
    stamp += 1
    keys = np.arange(37 * stamp, 37 * stamp + 1000) * 7919
    rows = np.empty(len(keys), np.int64)
    arena.lookup(0, keys, rows)
    writer.create(keys, rows, stamp)
    arena.seen_view(0)[rows] = stamp
    for bucket in range(16):
        writer.evict(bucket, stamp - 20)
    if stamp % 7 == 0 and sys.argv[3] == "reuse":
        writer.confirm_grace()
    elif stamp % 7 == 0:
        for bucket in range(16):
            writer._index._trim(bucket)
    if stamp % 20 == 0:
        print(stamp, flush=True)
"""


@pytest.mark.parametrize("mode", ["reuse", "keep"])
def test_killed_writers_leave_an_index_that_readers_and_successors_can_use(
    make_arena: MakeArena, make_model: MakeModel, mode: str
) -> None:
    """`reuse`: evicted rows are reused without a wait for readers. `keep`: they are never reused, so every row that a
    reader finds must have the reader's id, and outgrown generations are freed at once while readers use them."""
    arena = make_arena(make_model(evict_after_samples=1))
    ids, stamp = arena.ids_view(0), 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    generator = np.random.default_rng(0)
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, str(arena.directory), str(stamp), mode]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
            try:
                assert writer.stdout is not None
                writer.stdout.readline()
                stamp = int(writer.stdout.readline())
                for _ in range(int(generator.integers(50, 150))):
                    keys = (37 * stamp + np.arange(1200)) * 7919
                    found = lookup(arena, keys)
                    hit = found >= 0
                    assert mode == "reuse" or np.array_equal(ids[found[hit]], keys[hit])
            finally:
                writer.send_signal(signal.SIGKILL)
        stamp = max(stamp, int(arena.seen_view(0).max()))
        successor = DynamicTable(Arena.attach(arena.directory), 0)
        assert sum(successor.open_bucket(bucket) for bucket in BUCKETS) <= 1
        assert_consistent(arena, np.zeros(0, np.int64))


# --- a reader that is slower than the writer ------------------------------------------------------------------------


class SlowReader:
    """`Arena.lookup` with interpreted kernels, so that a test can run code between the search of a slot and the load of
    its value."""

    def __init__(self, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
        self._arena, self._patch = arena, monkeypatch
        self._meanwhile: Callable[[int], None] | None = None
        self._compiled = {name: getattr(index, name) for name in ("load_acquire", "mix64", "find_slot", "row_of")}
        self._interpreted = {
            "load_acquire": lambda words, place: int(words[place]),
            "mix64": lambda *key: np.uint64(mix64(*key)),
            "find_slot": self._search,
            "row_of": index.row_of.py_func,  # type: ignore[attr-defined]
        }

    def lookup(self, key: int, meanwhile: Callable[[int], None]) -> int:
        """meanwhile: called once, with the slot in which the key was found."""
        self._meanwhile = meanwhile
        with self._patch.context() as patch:
            patch.setattr(arena_module, "lookup_dynamic", index.lookup_dynamic.py_func)  # type: ignore[attr-defined]
            return self._with(self._interpreted, lambda: int(lookup(self._arena, np.array([key]))[0]))

    def _search(self, *args: object) -> int:
        slot = int(self._compiled["find_slot"](*args))
        if slot >= 0 and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            # With the compiled parts: a kernel that is compiled now would otherwise contain the replaced functions.
            self._with(self._compiled, lambda: meanwhile(slot))
        return slot

    def _with(self, parts: dict[str, Any], act: Callable[[], Result]) -> Result:
        with self._patch.context() as patch:
            for name, part in parts.items():
                patch.setattr(index, name, part)
            return act()


def neighbours(arena: Arena, keys: np.ndarray) -> tuple[int, int, int]:
    """Two keys that are in the same bucket, and the bucket."""
    rows = lookup(arena, keys)
    buckets = rows // arena.layout.bucket_capacity(0)
    bucket = int(buckets[0])
    one, other = keys[buckets == bucket][:2].tolist()
    return one, other, bucket


def whole_index(arena: Arena) -> np.ndarray:
    """The slots of the file, int64 [slots, 2], with the numbers that kernels use."""
    slots: np.ndarray = arena.index_place(0).slots.reshape(-1, 2)
    return slots


def value_of(arena: Arena, key: int) -> int:
    """The value of a key in the index: its row and a tag."""
    slots = whole_index(arena)
    return int(slots[(slots[:, 0] == key) & (slots[:, 1] > 0)][0, 1])


def test_a_slow_reader_looks_again_when_the_generation_has_changed(
    make_arena: MakeArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the reader has found the slot of its key, a new generation is published, and the generation after that is
    written over the one that the reader searched. There the slot belongs to another key with the same tag."""
    arena = make_arena()
    writer, keys = writer_of(arena), np.arange(200)
    rows = create(writer, keys)
    one, other, bucket = neighbours(arena, keys)
    word = int(arena.header(0, bucket)[index.GENERATION])
    of_other_with_the_tag_of_one = value_of(arena, one) + int(rows[other] - rows[one])

    def grow_and_go_on(slot: int) -> None:
        create(writer, np.arange(200, 6000))
        assert int(arena.header(0, bucket)[index.GENERATION]) != word
        whole_index(arena)[slot] = other, of_other_with_the_tag_of_one

    assert SlowReader(arena, monkeypatch).lookup(one, grow_and_go_on) == rows[one]
    assert lookup(arena, keys).tolist() == rows.tolist()


def test_a_value_of_another_key_is_a_miss(make_arena: MakeArena, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has loaded the key and the value of a slot at different times: the tag in the value belongs to another
    key, so the reader counts a miss, which is sent to the PS."""
    arena = make_arena()
    keys = np.arange(200)
    rows = create(writer_of(arena), keys)
    one, other, _ = neighbours(arena, keys)
    value = value_of(arena, other)

    def write_over(slot: int) -> None:
        whole_index(arena)[slot, 1] = value

    assert SlowReader(arena, monkeypatch).lookup(one, write_over) == -1
    assert lookup(arena, np.array([one, other])).tolist() == [-1, rows[other]], "the compiled kernel finds a miss, too"
