"""The arena of a dead supervisor is kept for a while, may be taken over, and is then removed."""

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
    """A process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(child.pid, tmp_path)
    child.kill()
    child.communicate()
    return owner


@pytest.fixture
def arena(tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The arena of this process."""
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    path = host.arena_directory("run")
    host.create_directory(path, owner)
    return path


class Guardian(threading.Thread):
    """Runs `guard` in a thread."""

    def __init__(self, path: Path, owner: Owner, keep_s: float) -> None:
        super().__init__()
        self._arguments = ((path,), owner, keep_s)
        self.start()

    def run(self) -> None:
        guard(*self._arguments)


def test_an_arena_that_is_not_taken_over_is_removed(arena: Path, owner: Owner) -> None:
    began_s = time.monotonic()
    guard((arena,), owner, 0.3)
    assert not arena.exists()
    assert time.monotonic() - began_s >= 0.3


def test_directories_that_are_gone_or_have_another_owner_are_ignored(arena: Path, owner: Owner, tmp_path: Path) -> None:
    other = owner_of(os.getpid(), tmp_path)
    guard((arena, tmp_path / "gone"), other, 1000.0)
    assert arena.exists()


def test_an_arena_that_is_taken_over_is_not_removed(arena: Path, owner: Owner, tmp_path: Path) -> None:
    held = host.hold(arena)
    assert held is not None
    guardian = Guardian(arena, owner, 0.0)
    with held:
        guardian.join(0.3)
        assert guardian.is_alive(), "the reaper waits while the arena is held"
        held.take_over(owner_of(os.getpid(), tmp_path))
    guardian.join(10.0)
    assert not guardian.is_alive()
    assert arena.exists()


def test_the_time_begins_again_when_an_arena_is_released_without_a_takeover(arena: Path, owner: Owner) -> None:
    held = host.hold(arena)
    assert held is not None
    guardian = Guardian(arena, owner, 0.5)
    guardian.join(0.7)
    released_s = time.monotonic()
    held.release()
    guardian.join(10.0)
    assert not arena.exists()
    assert time.monotonic() - released_s > 0.4
