"""The supervisor adds up the lookups that workers count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elastichost.arena.watermarks import Watermarks
from elastichost.runs.result import Lookups
from elastichost.supervisor.memory.lookups import LookupCount


def test_lookups_of_all_hosts_and_from_before_the_arena_are_added_up(tmp_path: Path) -> None:
    arenas = [tmp_path / "0", tmp_path / "1"]
    for number, arena in enumerate(arenas):
        arena.mkdir()
        Watermarks.create(arena)
        Watermarks(arena).note_lookups(number, 100, number)
    used = {1}
    run: Any = SimpleNamespace(arena=arenas[0], other_arenas={1: arenas[1]}, uses=lambda host: host in used)
    count = LookupCount(run, Lookups(1000, 9))
    assert count.total() == Lookups(1200, 10)
    assert count.total().share_without_row == 10 / 1200
    used.clear()
    assert count.total() == Lookups(1200, 10), "lookups of a lost host count"
    for arena in arenas:
        (arena / "watermarks").unlink()
    assert count.total() == Lookups(1200, 10), "the files may be deleted, because they are mapped"
