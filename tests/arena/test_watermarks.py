"""Facts about workers that outlive the processes that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError


def made(directory: Path) -> Watermarks:
    Watermarks.create(directory)
    return Watermarks(directory)


def test_begun_belongs_to_a_life(tmp_path: Path) -> None:
    marks = made(tmp_path)
    marks.note_begun(worker=2, life=1, sequence=5)
    assert (marks.begun(2, 1), marks.begun(2, 2)) == (5, 0)
    marks.note_begun(worker=2, life=2, sequence=1)
    assert (marks.begun(2, 1), marks.begun(2, 2)) == (0, 1)


def test_a_missing_file_is_an_arena_error(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="watermarks"):
        Watermarks(tmp_path)
