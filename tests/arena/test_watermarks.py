"""Watermarks: what a worker has begun and looked up can be read after its process has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError
from tests.arena.stepping import look_before_each_line


def made(directory: Path) -> Watermarks:
    Watermarks.create(directory)
    return Watermarks(directory)


def test_begun_belongs_to_one_incarnation(tmp_path: Path) -> None:
    marks = made(tmp_path)
    marks.note_begun(worker=2, incarnation=1, sequence=5)
    assert (marks.begun(2, 1), marks.begun(2, 2)) == (5, 0)
    marks.note_begun(worker=2, incarnation=2, sequence=1)
    assert (marks.begun(2, 1), marks.begun(2, 2)) == (0, 1)


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("line", range(5))
def test_a_reader_that_is_overtaken_takes_no_sequence_of_another_incarnation(
    tmp_path: Path, asked: int, line: int
) -> None:
    """A worker's next incarnation begins batches between any two lines of the reader."""
    marks, lines = made(tmp_path), iter(range(100))
    marks.note_begun(worker=2, incarnation=1, sequence=5)

    def overtake() -> None:
        if next(lines) == line:
            marks.note_begun(worker=2, incarnation=2, sequence=9)

    assert look_before_each_line(overtake, marks.begun, 2, asked) in (0, 5 if asked == 1 else 9)
    assert next(lines) > line, "the reader was not overtaken"


def test_a_missing_file_is_an_arena_error(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="watermarks"):
        Watermarks(tmp_path)


def test_lookups_are_counted_through_the_incarnations_of_all_workers(tmp_path: Path) -> None:
    marks = made(tmp_path)
    marks.note_begun(worker=2, incarnation=1, sequence=5)
    marks.note_lookups(2, looked_up=100, without_row=3)
    marks.note_begun(worker=2, incarnation=2, sequence=1)
    marks.note_lookups(2, looked_up=10, without_row=0)
    marks.note_lookups(255, looked_up=1000, without_row=7)
    assert Watermarks(tmp_path).lookups() == (1110, 10)
    assert (marks.begun(2, 2), marks.begun(255, 1)) == (1, 0)
