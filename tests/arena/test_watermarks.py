"""Facts about workers that outlive the processes that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError


def made(directory: Path) -> Watermarks:
    Watermarks.create(directory)
    return Watermarks(directory)


def test_applied_pushes_are_found_again_by_a_successor(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.note_applied(server=1, worker=0, life=1, sequence=7)
    first.note_applied(server=1, worker=3, life=2, sequence=1)
    first.note_applied(server=0, worker=3, life=2, sequence=9)
    assert Watermarks(tmp_path).applied(1) == [(0, 1, 7), (3, 2, 1)]


def test_begun_belongs_to_a_life(tmp_path: Path) -> None:
    marks = made(tmp_path)
    marks.note_begun(worker=2, life=1, sequence=5)
    assert (marks.begun(2, 1), marks.begun(2, 2)) == (5, 0)
    marks.note_begun(worker=2, life=2, sequence=1)
    assert (marks.begun(2, 1), marks.begun(2, 2)) == (0, 1)


def test_a_missing_file_is_an_arena_error(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="watermarks"):
        Watermarks(tmp_path)


def test_what_a_life_reached_counts_its_own_work_and_its_pushes(tmp_path: Path) -> None:
    marks = made(tmp_path)
    assert marks.reached(2, 1) == 0
    marks.note_applied(server=0, worker=2, life=1, sequence=4)
    marks.note_applied(server=3, worker=2, life=1, sequence=5)
    marks.note_applied(server=1, worker=2, life=7, sequence=99)
    marks.note_applied(server=3, worker=1, life=1, sequence=50)
    assert marks.reached(2, 1) == 5
    marks.note_begun(worker=2, life=1, sequence=6)
    assert marks.reached(2, 1) == 6
