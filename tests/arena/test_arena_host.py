"""Directories and their owners, with real processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from elastichost.arena import host
from elastichost.errors import ArenaError


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An arena root and a (short) socket root of the test's own."""
    arenas = tmp_path / "arenas"
    arenas.mkdir()
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(arenas))
    with tempfile.TemporaryDirectory() as sockets:
        monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
        monkeypatch.setattr("tempfile.tempdir", sockets)
        yield arenas


@pytest.fixture
def dead_owner(tmp_path: Path) -> host.Owner:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = host.owner_of(child.pid, tmp_path)
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    return owner


def test_the_root_follows_the_environment(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.arena_root() == roots
    assert host.arena_directory("run-1") == roots / f"elastichost-{os.geteuid()}-run-1"
    monkeypatch.delenv("ELASTICHOST_ARENA_DIR")
    assert host.arena_root() == Path("/dev/shm")


@pytest.mark.parametrize("run_id", ["", "a/b", "..", ".hidden"])
def test_run_ids_cannot_leave_the_root(run_id: str) -> None:
    with pytest.raises(ArenaError, match="run id"):
        host.arena_directory(run_id)


def test_a_directory_is_private_and_names_its_owner(tmp_path: Path) -> None:
    path, owner = host.arena_directory("run-1"), host.owner_of(os.getpid(), tmp_path)
    host.create_directory(path, owner)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "OWNER.json").stat().st_mode) == 0o600
    assert host.read_owner(path) == owner
    assert host.is_alive(owner)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_existing_directory_is_refused_and_kept(tmp_path: Path) -> None:
    path, owner = host.arena_directory("run-1"), host.owner_of(os.getpid(), tmp_path)
    host.create_directory(path, owner)
    with pytest.raises(ArenaError, match="exists"):
        host.create_directory(path, owner)
    assert host.read_owner(path) == owner
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_only_directories_of_dead_owners_are_stale(tmp_path: Path, dead_owner: host.Owner) -> None:
    living = host.owner_of(os.getpid(), tmp_path)
    host.create_directory(host.arena_directory("alive"), living)
    host.create_directory(host.arena_directory("dead"), dead_owner)
    host.create_directory(host.socket_directory("dead"), dead_owner)
    (host.arena_directory("dead") / "rows").write_bytes(b"x" * 8192)
    host.arena_directory("nobody").mkdir()
    (host.arena_root() / "elastichost-link").symlink_to(host.arena_directory("dead"))
    stale = host.stale_arenas()
    assert {entry.path for entry in stale} == {host.arena_directory("dead"), host.socket_directory("dead")}
    assert sum(entry.bytes for entry in stale) >= 8192
    for entry in stale:
        host.reclaim(entry.path)
    assert host.stale_arenas() == []
    assert host.arena_directory("alive").is_dir()


def test_a_reused_pid_or_another_boot_is_not_the_owner(tmp_path: Path) -> None:
    owner = host.owner_of(os.getpid(), tmp_path)
    assert not host.is_alive(msgspec.structs.replace(owner, start_time_ticks=owner.start_time_ticks + 1))
    assert not host.is_alive(msgspec.structs.replace(owner, boot_id="another boot"))


def test_reclaim_takes_only_its_own_kind(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.mkdir()
    with pytest.raises(ArenaError, match="not removed"):
        host.reclaim(other)
    link = tmp_path / "elastichost-link"
    link.symlink_to(other)
    with pytest.raises(ArenaError, match="not removed"):
        host.reclaim(link)
    assert other.is_dir()
    host.reclaim(host.arena_directory("gone already"))


def test_socket_paths_stay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert host.socket_directory("run-1") == Path("/run/elastichost-run-1")
    long = host.socket_directory("a-very-long-name-" * 8)
    assert len(os.fsencode(long)) <= 80
    assert long != host.socket_directory("a-very-long-name-" * 9)


def test_free_bytes_of_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    assert host.free_bytes(tmp_path / "not" / "there") > 0
