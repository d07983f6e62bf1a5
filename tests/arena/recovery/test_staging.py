"""Staged pushes: at any moment of the writing a reader finds a complete push or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.recovery.staging import (
    MAX_PUSH_BYTES,
    MAX_STAGERS,
    StagingArea,
    stamp_incarnation,
    stamp_of,
    stamp_sequence,
)
from elastichost.errors import ArenaError
from tests.arena.stepping import look_before_each_line

SERVER, TABLES, STAGER = 2, 2, 5
Seen = tuple[int, int, float, list[int], list[int], list[float]]


def push(count: int, value: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, bounds and gradients: `count` rows of the first table, one of the second."""
    return np.arange(count + 1) + int(value), np.array([0, count, count + 1]), np.full(4 * count + 4, value, np.float32)


@pytest.fixture
def area(tmp_path: Path) -> Iterator[StagingArea]:
    made = StagingArea(tmp_path, SERVER, TABLES)
    yield made
    made.close()


def look(area: StagingArea) -> Seen | None:
    """A copy of the staged push; None if there is none."""
    found = area.read(STAGER)
    if found is None:
        return None
    facts = (found.stamp, found.shard_map_epoch, found.learning_rate_scale)
    return (*facts, found.rows.tolist(), found.bounds.tolist(), found.gradients.tolist())


@pytest.mark.parametrize(("count", "later"), [(3, 3), (3, 700), (700, 3)])
def test_a_push_is_whole_or_not_there_at_every_moment_of_its_writing(
    area: StagingArea, tmp_path: Path, count: int, later: int
) -> None:
    """The stamp identifies the push: it becomes 0 before the push is overwritten, and is set when the next one is
    complete."""
    area.write(STAGER, stamp_of(1, 8), 5, 1.0, *push(count, 1.0))
    other = StagingArea(tmp_path, SERVER, TABLES)  # as a successor would open it
    before, seen = look(other), list[Seen | None]()
    look_before_each_line(
        lambda: seen.append(look(other)), area.write, STAGER, stamp_of(1, 9), 6, 0.5, *push(later, 2.0)
    )
    after = look(other)
    assert before is not None and after is not None and before[0] == stamp_of(1, 8)
    assert after[:3] == (stamp_of(1, 9), 6, 0.5) and after[5] == [2.0] * (4 * later + 4)
    assert seen[0] == before and seen[-1] == after
    assert [one for one in seen if one not in (before, None, after)] == []
    assert None in seen, "no reader ran while the push was written"
    other.close()


def test_dropped_pushes_are_gone_and_a_successor_finds_the_staged_ones(area: StagingArea, tmp_path: Path) -> None:
    for stager in (STAGER, 9):
        area.write(stager, stamp_of(1, 8), 5, 1.0, *push(3, 1.0))
    area.drop(9)
    successor = StagingArea(tmp_path, SERVER, TABLES)
    assert successor.waiting() == (STAGER,)
    assert (successor.stamp(9), successor.shard_map_epoch(9), successor.shard_map_epoch(STAGER)) == (0, 0, 5)
    assert StagingArea(tmp_path, SERVER + 1, TABLES).waiting() == (), "another PS has none"
    successor.close()


def test_a_push_that_is_too_large_leaves_the_staged_one(area: StagingArea) -> None:
    area.write(STAGER, stamp_of(1, 8), 5, 1.0, *push(3, 1.0))
    before, (rows, bounds, _) = look(area), push(3, 2.0)
    gradients = np.broadcast_to(np.float32(1.0), (MAX_PUSH_BYTES // 4,))  # takes no memory
    with pytest.raises(ArenaError, match="can be staged"):
        area.write(STAGER, stamp_of(1, 9), 5, 1.0, rows, bounds, gradients)
    assert look(area) == before


def test_a_stager_out_of_range_is_refused(area: StagingArea) -> None:
    for stager in (-1, MAX_STAGERS):
        with pytest.raises(ArenaError, match="out of range .0 to 255"):
            area.write(stager, 1, 1, 1.0, *push(3, 1.0))


def test_stamps_are_ordered_by_incarnation_then_by_batch() -> None:
    stamps = [stamp_of(0, 1), stamp_of(1, 0), stamp_of(1, (1 << 40) - 1), stamp_of(2, 0)]
    assert stamps == sorted(stamps)
    assert [(stamp_incarnation(stamp), stamp_sequence(stamp)) for stamp in stamps[1:3]] == [(1, 0), (1, (1 << 40) - 1)]
