"""Files that are made once, by whichever process comes first: whole or absent, within the bound, whoever is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.datasets.sources.bounded_directory import PART, BoundedDirectory

# Another process: uses the group, and does as it is told; each of its lines tells how far it is.
OTHER = """
import sys, time
from pathlib import Path
from elastichost.datasets.sources import bounded_directory
from elastichost.datasets.sources.bounded_directory import BoundedDirectory

directory = BoundedDirectory(Path(sys.argv[1]), int(sys.argv[2]))
directory.use(sys.argv[3])
if sys.argv[4] == "use":
    print("used", flush=True)
    time.sleep(600)
claim = directory.claim(sys.argv[3], "file")
if sys.argv[4] == "claim":
    print("claimed", flush=True)
    time.sleep(600)

def half(descriptor, content, at):
    import os
    os.pwrite(descriptor, content[: len(content) // 2], at)
    print("half", flush=True)
    time.sleep(600)

bounded_directory._written = half
directory.make(claim, [b"x" * 1000])
"""


@contextmanager
def other(path: Path, limit: int, group: str, what: str, signal_at_end: int = signal.SIGKILL) -> Iterator[None]:
    """A process that has got as far as `what`; it is killed at the end."""
    words = [sys.executable, "-c", OTHER, str(path), str(limit), group, what]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert (
            process.stdout is not None
            and process.stdout.readline().strip()
            == {
                "use": b"used",
                "claim": b"claimed",
                "write": b"half",
            }[what]
        )
        try:
            yield
        finally:
            process.send_signal(signal_at_end)


def content_of(directory: BoundedDirectory, group: str, name: str) -> bytes | None:
    descriptor = directory.find(group, name)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def made(directory: BoundedDirectory, group: str, name: str, size: int) -> bool:
    directory.use(group)
    claim = directory.claim(group, name)
    assert claim is not None
    try:
        return directory.make(claim, [name.encode() * size])
    finally:
        claim.release()


def test_a_file_appears_whole_with_its_content(tmp_path: Path) -> None:
    directory = BoundedDirectory(tmp_path / "cache", 1000)
    directory.use("group")
    claim = directory.claim("group", "file")
    assert claim is not None and content_of(directory, "group", "file") is None
    assert directory.make(claim, [b"ab", memoryview(b"cd")])
    claim.release()
    assert content_of(directory, "group", "file") == b"abcd"
    assert directory.used_bytes == 4
    assert not list((tmp_path / "cache" / "group").glob(f"*{PART}"))


def test_what_is_claimed_by_one_is_not_given_to_another(tmp_path: Path) -> None:
    directory, same = BoundedDirectory(tmp_path, 1000), BoundedDirectory(tmp_path, 1000)
    directory.use("group")
    claim = directory.claim("group", "file")
    assert claim is not None and same.claim("group", "file") is None
    claim.release()
    second = same.claim("group", "file")
    assert second is not None
    second.release()


@pytest.mark.parametrize("what", ["claim", "write"])
def test_a_process_that_is_killed_while_it_makes_a_file_leaves_nothing_and_blocks_nobody(
    tmp_path: Path, what: str
) -> None:
    with other(tmp_path, 1500, "group", what):
        directory = BoundedDirectory(tmp_path, 1500)
        directory.use("group")
        assert directory.claim("group", "file") is None
        assert directory.used_bytes == (1000 if what == "write" else 0)
    assert content_of(directory, "group", "file") is None
    assert made(directory, "group", "file", 300), "the bytes that the other had promised are free again"
    assert content_of(directory, "group", "file") == b"file" * 300
    assert directory.used_bytes == 1200


def test_parts_of_killed_processes_go_when_the_directory_is_opened(tmp_path: Path) -> None:
    with other(tmp_path, 1500, "group", "write"):
        pass
    assert list((tmp_path / "group").glob(f"*{PART}"))
    assert BoundedDirectory(tmp_path, 1500).used_bytes == 0
    assert not list((tmp_path / "group").glob(f"*{PART}"))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30), limit=st.integers(0, 2000), less=st.integers(0, 2000)
)
def test_all_files_together_stay_within_the_bound(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, less: int
) -> None:
    path = tmp_path_factory.mktemp("cache")
    directory = BoundedDirectory(path, limit)

    def taken() -> int:
        return sum(file.stat().st_size for file in path.glob("*/*") if not file.name.startswith("."))

    for number, size in enumerate(sizes):
        had_room = taken() + size <= limit
        assert made(directory, "group", chr(ord("a") + number), size) is had_room
        assert taken() == directory.used_bytes <= limit
    directory.limit(less)
    assert taken() == directory.used_bytes <= less


def test_groups_that_nobody_uses_make_room_and_those_in_use_stay(tmp_path: Path) -> None:
    for group in ("old", "older", "used"):
        directory = BoundedDirectory(tmp_path, 1000)
        assert made(directory, group, "x", 300)
        directory.close()
    os.utime(tmp_path / "older", (1, 1))
    with other(tmp_path, 1000, "used", "use"):
        directory = BoundedDirectory(tmp_path, 1000)
        assert made(directory, "new", "y", 400)
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["new", "old", "used"]
        assert made(directory, "new", "z", 300), "room is made as often as it is wanted"
        assert not made(directory, "new", "w", 100), "what is in use is not removed"
        assert content_of(directory, "used", "x") == b"x" * 300


def test_a_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = BoundedDirectory(tmp_path, 1000)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    directory.use("group")
    claim = directory.claim("group", "file")
    assert claim is not None
    monkeypatch.setattr("elastichost.datasets.sources.bounded_directory._written", full)
    assert not directory.make(claim, [b"abc"])
    claim.release()
    monkeypatch.undo()
    assert directory.used_bytes == 0
    assert made(directory, "group", "file", 1)


def test_threads_of_one_process_make_each_file_once(tmp_path: Path) -> None:
    directory = BoundedDirectory(tmp_path, 1 << 20)
    directory.use("group")
    makers: list[str] = []

    def work() -> None:
        for number in range(40):
            claim = directory.claim("group", str(number))
            if claim is None:
                continue
            if directory.find("group", str(number)) is None:
                makers.append(str(number))
                assert directory.make(claim, [b"x" * 100])
            claim.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(makers) == sorted(str(number) for number in range(40))
    assert directory.used_bytes == 4000


def test_clearing_removes_what_no_process_uses(tmp_path: Path) -> None:
    for group in ("idle", "used"):
        directory = BoundedDirectory(tmp_path, 10_000)
        directory.use(group)
        claim = directory.claim(group, "file")
        assert claim is not None and directory.make(claim, [b"x" * 1000])
        claim.release()
        directory.close()
    with other(tmp_path, 10_000, "used", "use"):
        assert BoundedDirectory(tmp_path, None).clear() == 1000
        assert not (tmp_path / "idle").exists()
        assert (tmp_path / "used" / "file").exists()
    assert BoundedDirectory(tmp_path, None).clear() == 1000
    assert BoundedDirectory(tmp_path, None).used_bytes == 0


def descriptors_of(folder: Path) -> int:
    """The number of descriptors that this process has of files in a folder."""
    own = Path("/proc/self/fd")
    return sum(folder in (own / name).resolve().parents for name in os.listdir(own))


def test_one_descriptor_keeps_any_number_of_groups(tmp_path: Path) -> None:
    directory = BoundedDirectory(tmp_path, 10_000)
    for number in range(100):
        assert made(directory, str(number), "x", 10)
    assert descriptors_of(tmp_path) == 1
    assert BoundedDirectory(tmp_path, None).clear() == 0
    directory.close()
    assert descriptors_of(tmp_path) == 0
    assert BoundedDirectory(tmp_path, None).clear() == 1000


def test_a_process_that_was_forked_keeps_the_groups_of_its_parent(tmp_path: Path) -> None:
    directory = BoundedDirectory(tmp_path, 10_000)
    assert made(directory, "group", "x", 1000)
    assert directory._users is not None
    with subprocess.Popen(["sleep", "600"], pass_fds=[directory._users]) as child:
        directory.close()
        assert BoundedDirectory(tmp_path, None).clear() == 0
        child.kill()
    assert BoundedDirectory(tmp_path, None).clear() == 1000


def test_where_the_kernel_locks_whole_files_only_all_groups_stay_while_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> bytes:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", refused)
    for group in ("idle", "used"):
        directory = BoundedDirectory(tmp_path, 10_000)
        assert made(directory, group, "x", 1000)
        directory.close()
    holder = BoundedDirectory(tmp_path, 10_000)
    holder.use("used")
    assert BoundedDirectory(tmp_path, None).clear() == 0
    holder.close()
    assert BoundedDirectory(tmp_path, None).clear() == 2000
