"""Ids that an attacker chooses so that they collide in one bucket, in one part of an index or in one slot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.index import upkeep as index_upkeep
from elastichost.arena.index.hashing import mix64, slot_hash
from elastichost.arena.tables.dynamic_table import DynamicTable
from elastichost.specs import ModelSpec
from tests.arena.conftest import index_view

MakeModel = Callable[..., ModelSpec]
MakeArena = Callable[..., Arena]
MASK = (1 << 64) - 1
BUCKET = 3


def unmixed(mixed: np.ndarray) -> np.ndarray:
    """The int64 keys with these values of `mix64` (uint64 [n]): the finaliser can be inverted."""
    first, second = (np.uint64(pow(factor, -1, 1 << 64)) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
    x = mixed ^ (mixed >> np.uint64(31)) ^ (mixed >> np.uint64(62))
    x = x * second
    x = x ^ (x >> np.uint64(27)) ^ (x >> np.uint64(54))
    x = x * first
    keys: np.ndarray = (x ^ (x >> np.uint64(30)) ^ (x >> np.uint64(60))).view(np.int64)
    return keys


def crafted(homes: np.ndarray, seed: int = 0) -> np.ndarray:
    """Distinct int64 keys of one bucket whose `mix64` has these low halves (uint32 [n])."""
    middle = np.random.default_rng(seed).permutation(1 << 20)[: len(homes)].astype(np.uint64)
    return unmixed(np.uint64(BUCKET << 60) | middle << np.uint64(32) | homes.astype(np.uint64))


def writer_of(arena: Arena) -> DynamicTable:
    writer = DynamicTable(arena, 0)
    writer.open_bucket(BUCKET)
    return writer


def create(writer: DynamicTable, keys: np.ndarray) -> np.ndarray:
    rows = np.full(len(keys), -1, np.int64)
    writer.create(keys, rows, 1)
    return rows


@pytest.mark.timeout(120)
def test_create_returns_when_crafted_ids_lie_in_the_upper_part_of_an_index(
    make_arena: MakeArena, make_model: MakeModel
) -> None:
    arena = make_arena(make_model(admit_after=2), memory_bytes=1 << 24)
    before = index_view(arena, 0, 0).copy()
    writer = writer_of(arena)
    homes = np.random.default_rng(1).integers(int(0.435 * (1 << 32)), 1 << 32, 100_000)
    keys = crafted(homes)
    assert (index.buckets_of(keys, 60) == BUCKET).all()
    for part in np.array_split(keys, 21):
        assert (create(writer, part) < 0).all()
    header = arena.header(0, BUCKET)
    assert int(header[index.USED_SLOTS]) <= index.capacity_of(int(header[index.GENERATION])) * 11 // 16
    assert np.array_equal(index_view(arena, 0, 0), before), "slots of another bucket were written"
    ordinary = unmixed(np.uint64(BUCKET << 60) | np.arange(1, 200, dtype=np.uint64))
    create(writer, ordinary)
    assert (create(writer, ordinary) >= 0).all()


def test_copying_into_a_full_generation_writes_nowhere_else() -> None:
    slots = np.zeros(2 * 2048, np.int64)
    slots[0:1024:2], slots[1:1024:2] = np.arange(512), -1  # 512 sighted ids; the generation after them has 256 slots
    before = slots.copy()
    used, pending = index_upkeep.copy_slots(slots, 0, 512, 512, 256, 5, 512)
    assert (used, pending) == (256, 256)
    changed = np.flatnonzero(slots != before) // 2
    assert changed.min() >= 512
    assert changed.max() < 768
    slots[1:1024:2] = 7 + 1  # these slots have rows, and no row may be dropped without an error
    slots[1024:] = 0
    assert index_upkeep.copy_slots(slots, 0, 512, 512, 256, 5, 512) == (-1, 7)
    assert not slots[2 * 768 :].any()


def test_ids_of_one_home_under_the_public_hash_are_spread(make_arena: MakeArena) -> None:
    arena = make_arena()
    writer = writer_of(arena)
    keys = crafted(np.full(2000, 1 << 31))
    assert (create(writer, keys) >= 0).all()
    place = arena.index_place(0)
    first = index.generation_first(
        word := int(arena.header(0, BUCKET)[index.GENERATION]), place.bucket_slot(BUCKET), place.region_slots
    )
    for key in keys.tolist():
        mixed = slot_hash(np.uint64(mix64(key)), place.index_key)
        found = index.find_slot(place.slots, first, index.capacity_of(word), key, np.uint64(mixed), 128)
        assert found >= 0, "more than 128 probes"


def test_a_key_without_a_slot_within_the_bound_is_refused() -> None:
    capacity = 4 * index.MOST_PROBES
    slots = np.zeros(2 * capacity, np.int64)
    slots[: 2 * index.MOST_PROBES : 2], slots[1 : 2 * index.MOST_PROBES : 2] = -1, 1
    assert index.find_slot(slots, 0, capacity, 5, np.uint64(0), index.MOST_PROBES) == index.FULL
    assert index.find_slot(slots, 0, capacity, 5, np.uint64(0), capacity) == -1 - index.MOST_PROBES


def test_more_rows_than_slots_are_reported_and_no_other_slot_is_written() -> None:
    slots = np.zeros(2 * 64, np.int64)
    keys, seen = np.arange(100, 116), np.ones(16, np.uint32)
    assert index_upkeep.fill_slots(slots, 40, 8, 5, keys, seen) == index.FULL
    assert not slots[: 2 * 40].any() and not slots[2 * 48 :].any()


def test_neither_a_sighting_nor_a_row_is_stored_where_all_slots_are_taken() -> None:
    capacity, region_slots = 4, 8
    control, slots = np.zeros(64, np.int64), np.zeros(2 * 2 * region_slots, np.int64)
    for bucket in range(2):
        control[16 * bucket + index.GENERATION] = capacity
        first = 2 * region_slots * bucket
        slots[first : first + 2 * capacity] = np.tile([1 << 40, -1], capacity)
    before, keys, positions = slots.copy(), np.array([7, 8]), np.arange(2)
    place = (slots, control, 0, 0, region_slots)
    assert index.sight(*place, 63, 5, 9, keys, positions, np.zeros(2, np.int64)) == (0, 2)
    rows = index.buckets_of(keys, 63).astype(np.int64) * 16
    assert index.publish_rows(*place, 16, 63, 5, keys, rows, np.zeros(32, np.uint32), 1) == 0
    assert rows.tolist() == [-1, -1]
    assert np.array_equal(slots, before), "all slots are unchanged, also slot 0 of the file"
    assert not control.reshape(-1, 16)[:, [index.USED_SLOTS, index.LIVE_ROWS, index.INTENT]].any()
