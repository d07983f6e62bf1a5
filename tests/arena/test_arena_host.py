"""Directories and their owners, with real processes."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from elastichost.arena import host
from elastichost.arena.owner import Owner, is_alive, is_same, owner_of
from elastichost.datasets.sources.bounded_directory import BoundedDirectory
from elastichost.datasets.sources.settings import decoded_directory
from elastichost.errors import ArenaError


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An arena root and a (short) socket root for one test."""
    arenas = tmp_path / "arenas"
    arenas.mkdir()
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(arenas))
    with tempfile.TemporaryDirectory() as sockets:
        monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
        monkeypatch.setattr("tempfile.tempdir", sockets)
        yield arenas


@pytest.fixture
def dead_owner(tmp_path: Path) -> Owner:
    """The owner record of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(child.pid, tmp_path)
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
    path, owner = host.arena_directory("run-1"), owner_of(os.getpid(), tmp_path)
    host.create_directory(path, owner)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "OWNER.json").stat().st_mode) == 0o600
    assert host.read_owner(path) == owner
    assert is_alive(owner)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_existing_directory_is_refused_and_kept(tmp_path: Path) -> None:
    path, owner = host.arena_directory("run-1"), owner_of(os.getpid(), tmp_path)
    host.create_directory(path, owner)
    with pytest.raises(ArenaError, match="exists"):
        host.create_directory(path, owner)
    assert host.read_owner(path) == owner
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_only_directories_of_dead_owners_are_stale(tmp_path: Path, dead_owner: Owner) -> None:
    living = owner_of(os.getpid(), tmp_path)
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
    owner = owner_of(os.getpid(), tmp_path)
    assert not is_alive(msgspec.structs.replace(owner, start_time_ticks=owner.start_time_ticks + 1))
    assert not is_alive(msgspec.structs.replace(owner, boot_id="another boot"))


def test_reclaim_removes_only_directories_of_elastichost(tmp_path: Path) -> None:
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


@pytest.fixture
def another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After the call this process has another user id, so that directories made before belong to another user."""
    uid = os.geteuid()
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: uid + 1)


def test_directories_of_another_user_are_neither_found_nor_removed(
    dead_owner: Owner, another_user: Callable[[], None]
) -> None:
    path = host.arena_directory("dead")
    host.create_directory(path, dead_owner)
    assert [stale.path for stale in host.stale_arenas()] == [path]
    another_user()
    assert host.stale_arenas() == []
    assert host.hold_left(Path(dead_owner.run_dir)) == ()
    with pytest.raises(ArenaError, match="belongs to another user, so it is not removed"):
        host.reclaim(path)
    with pytest.raises(ArenaError, match="so it is ignored"):
        host.read_owner(path)
    assert (path / host.OWNER_FILE).is_file()


def test_an_owner_that_is_no_text_is_a_typed_error(tmp_path: Path, dead_owner: Owner) -> None:
    path = tmp_path / "made"
    host.create_directory(path, dead_owner)
    (path / host.OWNER_FILE).write_bytes(
        (path / host.OWNER_FILE).read_bytes().replace(b'"run_dir":"', b'"run_dir":"\xff')
    )
    with pytest.raises(ArenaError, match="cannot be read"):
        host.read_owner(path)


def test_directories_of_other_programs_are_left_alone(dead_owner: Owner) -> None:
    """They are left alone even if their OWNER.json names a process that has ended."""
    host.create_directory(host.arena_root() / "precious", dead_owner)
    assert host.stale_arenas() == []


def test_a_process_that_has_ended_cannot_become_an_owner(tmp_path: Path, dead_owner: Owner) -> None:
    with pytest.raises(ArenaError, match=f"process {dead_owner.pid} is not running"):
        owner_of(dead_owner.pid, tmp_path)


def test_owners_are_compared_by_their_process_and_not_by_the_run_directory(tmp_path: Path, dead_owner: Owner) -> None:
    mine = owner_of(os.getpid(), tmp_path)
    assert is_same(mine, msgspec.structs.replace(mine, run_dir="/elsewhere"))
    assert not is_same(mine, dead_owner)
    for fact in ("pid", "start_time_ticks"):
        assert not is_same(mine, msgspec.structs.replace(mine, **{fact: getattr(mine, fact) + 1}))
    assert not is_same(mine, msgspec.structs.replace(mine, boot_id="another boot"))


def test_socket_paths_stay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert host.socket_directory("run-1") == Path("/run/elastichost-run-1")
    long = host.socket_directory("a-very-long-name-" * 8)
    assert len(os.fsencode(long)) <= 80
    assert long != host.socket_directory("a-very-long-name-" * 9)


def test_free_bytes_of_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    assert host.free_bytes(tmp_path / "not" / "there") > 0


def test_memory_and_disk_are_distinguished() -> None:
    assert host.is_in_memory(Path("/dev/shm"))
    assert not host.is_in_memory(Path("/proc/self"))


# --- holding ------------------------------------------------------------------------------------------------------


def made(name: str, owner: Owner) -> Path:
    """A directory of this owner with two files of an arena."""
    path = host.arena_directory(name)
    host.create_directory(path, owner)
    (path / "rows").write_bytes(b"x" * 4096)
    (path / "LAYOUT.json").write_text("{}")
    return path


def test_one_process_holds_a_directory_and_the_kernel_releases_it(tmp_path: Path, dead_owner: Owner) -> None:
    path = made("run-1", dead_owner)
    script = (
        "import sys; from pathlib import Path; from elastichost.arena.host import hold; "
        f"held = hold(Path({str(path)!r})); print(held is not None, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdin is not None
    with holder.stdout, holder.stdin:
        assert holder.stdout.readline() == "True\n"
        assert host.hold(path) is None
        with pytest.raises(ArenaError, match="is resuming from"):
            host.reclaim(path)
        assert not host.remove_owned(path, dead_owner)
        holder.kill()
        holder.wait()
    held = host.hold(path)
    assert held is not None
    held.release()
    held.release()  # a repeated release does nothing


def test_decoded_units_count_as_bytes_of_the_arena_and_go_with_it_when_its_owner_was_killed(dead_owner: Owner) -> None:
    path = made("run-1", dead_owner)
    before = host.used_bytes(path)
    directory = BoundedDirectory(decoded_directory(path), 1 << 20)
    directory.use("group")
    claim = directory.claim("group", "1")
    assert claim is not None and directory.make(claim, [b"x" * 40_960])
    claim.release()
    half = directory.claim("group", "2")
    assert half is not None, "a worker was killed before it was made"
    assert host.used_bytes(path) - before >= 40_960
    (stale,) = host.stale_arenas()
    assert stale.bytes - before >= 40_960
    host.reclaim(path)
    assert not path.exists()
    half.release()
    directory.close()


def test_a_directory_with_a_new_owner_is_not_removed_for_the_old_one(tmp_path: Path, dead_owner: Owner) -> None:
    path, mine = made("run-1", dead_owner), owner_of(os.getpid(), tmp_path)
    held = host.hold(path)
    assert held is not None
    with held:
        held.take_over(mine)
    assert host.read_owner(path) == mine
    assert stat.S_IMODE((path / "OWNER.json").stat().st_mode) == 0o600
    assert host.remove_owned(path, dead_owner)  # nothing to do: the directory has another owner
    assert path.exists()
    assert host.remove_owned(path, mine)
    assert not path.exists()
    assert host.remove_owned(path, mine)


def test_a_removed_directory_cannot_be_held_even_if_it_was_opened_before(dead_owner: Owner) -> None:
    path = made("run-1", dead_owner)
    held = host.hold(path)
    assert held is not None
    with held:
        held.remove()
        with pytest.raises(FileNotFoundError):
            host.hold(path)


def test_a_new_directory_with_the_same_name_is_not_held_for_the_old_one(
    tmp_path: Path, dead_owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between open and lock the directory was removed, and another process made one with the same name."""
    path, mine = made("run-1", dead_owner), owner_of(os.getpid(), tmp_path)
    flock = fcntl.flock

    with monkeypatch.context() as patched:

        def too_late(descriptor: int, operation: int) -> None:
            patched.setattr(fcntl, "flock", flock)
            path.rename(tmp_path / "removed")
            host.create_directory(path, mine)
            flock(descriptor, operation)

        patched.setattr(fcntl, "flock", too_late)
        with pytest.raises(FileNotFoundError):
            host.hold(path)
    held = host.hold(path)
    assert held is not None, "no process holds the new directory"
    held.release()


def test_an_interrupted_removal_leaves_a_stale_directory_without_a_layout(
    dead_owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, unlink = made("run-1", dead_owner), os.unlink

    def broken(what: str | Path, **more: int) -> None:
        if str(what).endswith("rows"):
            raise OSError("killed here")
        unlink(what, **more)

    held = host.hold(path)
    assert held is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", broken)
        with pytest.raises(OSError, match="killed here"):
            held.remove()
    held.release()
    assert not (path / "LAYOUT.json").exists()
    assert [stale.path for stale in host.stale_arenas()] == [path]


def test_all_directories_of_a_dead_run_are_held_and_no_others(tmp_path: Path, dead_owner: Owner) -> None:
    made("mine", dead_owner)
    made("living", owner_of(os.getpid(), tmp_path))
    made("other", msgspec.structs.replace(dead_owner, run_dir="/elsewhere"))
    held = host.hold_left(Path(dead_owner.run_dir))
    assert [one.path.name for one in held] == [host.arena_directory("mine").name]
    for one in held:
        one.release()
