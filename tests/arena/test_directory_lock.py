"""Directory locks, with real processes: a directory is led (exclusive lock) or kept (shared lock), or neither."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.arena import directory_lock, host
from elastichost.arena.owner import owner_of
from elastichost.errors import ArenaError
from tests.system.beds import in_another_pid_namespace

LEADER = """
import os, sys
from pathlib import Path
from elastichost.arena.host import create_directory
from elastichost.arena.owner import owner_of
create_directory(Path(sys.argv[1]), owner_of(os.getpid(), Path("/run/one")))
print("made", flush=True)
sys.stdin.read()
"""
LOOK = """
import sys
from pathlib import Path
from elastichost.arena.host import reclaim, stale_arenas
print([stale.path.name for stale in stale_arenas()])
try:
    reclaim(Path(sys.argv[1]))
except Exception as error:
    print(error)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return host.arena_directory("one")


def test_a_directory_is_led_until_its_process_ends_and_kept_while_it_is_locked(directory: Path) -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert leader.stdin is not None and leader.stdout is not None
    with leader.stdin, leader.stdout:
        assert leader.stdout.readline() == "made\n"
        assert directory_lock.is_led(directory) and directory_lock.is_living(directory)
        tmpdir = str(directory.parent)
        looked = in_another_pid_namespace(sys.executable, "-c", LOOK, str(directory), TMPDIR=tmpdir)
        assert looked.stdout.startswith("[]\n"), looked
        assert "in use" in looked.stdout
        leader.kill()
        leader.wait()
    assert not directory_lock.is_living(directory)
    assert [stale.path for stale in host.stale_arenas()] == [directory]
    keeping = directory_lock.SharedDirectoryLock(directory)
    assert directory_lock.is_living(directory) and not directory_lock.is_led(directory)
    assert host.stale_arenas() == []
    with pytest.raises(ArenaError, match="in use"):
        host.reclaim(directory)
    held = host.hold_left(Path("/run/one"))
    assert [one.path for one in held] == [directory], "a resumed run may take the directory over"
    held[0].take_over(owner_of(os.getpid(), Path("/run/one")))
    held[0].release()
    assert directory_lock.is_led(directory), "the new process must lead it, although another process keeps the old lock"
    assert host.hold_left(Path("/run/one")) == ()
    keeping.close()
    keeping.close()  # a repeated close does nothing
    assert directory_lock.is_led(directory)
    host.reclaim(directory)
    assert not directory.exists()


def test_a_led_or_missing_directory_is_not_kept(directory: Path) -> None:
    directory_lock.SharedDirectoryLock(directory).close()
    directory.mkdir()
    directory_lock.lead_directory(directory)
    keeping = directory_lock.SharedDirectoryLock(directory)
    directory_lock.release_directory(directory)
    assert not directory_lock.is_living(directory)
    keeping.close()


def test_a_directory_without_a_lock_has_an_owner_while_that_process_runs(directory: Path, tmp_path: Path) -> None:
    leader = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host.create_directory(directory, owner_of(leader.pid, tmp_path))
    assert host.stale_arenas() == []
    leader.kill()
    leader.communicate()
    assert [stale.path for stale in host.stale_arenas()] == [directory]
