"""The guardian of an arena whose supervisor has died: keeps it, lets it be taken over, removes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from elastichost.arena import host
from elastichost.arena.owner import Owner, owner_of
from elastichost.supervisor.launch.arena_reaper import guard


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(child.pid, tmp_path)
    child.kill()
    child.communicate()
    return owner


@pytest.fixture
def arena(tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    path = host.arena_directory("run")
    host.create_directory(path, owner)
    return path


class Guardian(threading.Thread):
    def __init__(self, path: Path, owner: Owner, keep_s: float) -> None:
        super().__init__()
        self._told = ((path,), owner, keep_s)
        self.start()

    def run(self) -> None:
        guard(*self._told)


def test_it_removes_what_nobody_wanted(arena: Path, owner: Owner) -> None:
    began_s = time.monotonic()
    guard((arena,), owner, 0.3)
    assert not arena.exists()
    assert time.monotonic() - began_s >= 0.3


def test_it_has_nothing_to_do_with_what_is_gone_or_anothers(arena: Path, owner: Owner, tmp_path: Path) -> None:
    other = owner_of(os.getpid(), tmp_path)
    guard((arena, tmp_path / "gone"), other, 1000.0)
    assert arena.exists()


def test_it_leaves_an_arena_that_is_taken_over(arena: Path, owner: Owner, tmp_path: Path) -> None:
    held = host.hold(arena)
    assert held is not None
    guardian = Guardian(arena, owner, 0.0)
    with held:
        guardian.join(0.3)
        assert guardian.is_alive(), "it waits for what becomes of it"
        held.take_over(owner_of(os.getpid(), tmp_path))
    guardian.join(10.0)
    assert not guardian.is_alive()
    assert arena.exists()


def test_an_arena_that_is_let_go_of_is_kept_once_more(arena: Path, owner: Owner) -> None:
    held = host.hold(arena)
    assert held is not None
    guardian = Guardian(arena, owner, 0.5)
    guardian.join(0.7)
    released_s = time.monotonic()
    held.release()
    guardian.join(10.0)
    assert not arena.exists()
    assert time.monotonic() - released_s > 0.4
