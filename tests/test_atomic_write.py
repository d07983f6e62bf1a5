"""Records on a disk that becomes full: a record is written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastichost.atomic_write import append_whole, is_out_of_space, space_words, write_atomically, write_whole_at
from tests.full_disk import file_limit


def test_a_record_is_appended_whole_or_the_file_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    append_whole(descriptor, b"one\n")
    with file_limit(7), pytest.raises(OSError, match="too large") as caught:
        append_whole(descriptor, b"second\n")
    assert is_out_of_space(caught.value)
    assert path.read_bytes() == b"one\n"
    append_whole(descriptor, b"second\n")
    os.close(descriptor)
    assert path.read_bytes() == b"one\nsecond\n"


def test_a_record_at_a_position_is_whole_or_the_file_ends_there(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    write_whole_at(descriptor, bytes(8), 0)
    with file_limit(12), pytest.raises(OSError, match="too large"):
        write_whole_at(descriptor, bytes(8), 8)
    assert path.stat().st_size == 8
    os.close(descriptor)


def test_a_full_device_is_recognised() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left") as caught:
        os.write(descriptor, b"x")
    os.close(descriptor)
    assert is_out_of_space(caught.value)
    assert not is_out_of_space(PermissionError(13, "no"))


def test_a_failed_replacement_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_atomically(path, b"old")
    with file_limit(100), pytest.raises(OSError, match="too large"):
        write_atomically(path, bytes(1000))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["status.json"]


def test_two_processes_may_replace_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers"
    replace, own_pid = Path.replace, os.getpid()

    def replace_after_the_other(made: Path, target: Path) -> Path:
        """Another process writes the file before this one renames its own."""
        monkeypatch.setattr(Path, "replace", replace)
        with monkeypatch.context() as other_process:
            other_process.setattr(os, "getpid", lambda: own_pid + 1)
            write_atomically(path, b"other", has_several_writers=True)
        assert path.read_bytes() == b"other"
        return replace(made, target)

    monkeypatch.setattr(Path, "replace", replace_after_the_other)
    write_atomically(path, b"own", has_several_writers=True)
    assert path.read_bytes() == b"own"
    assert os.listdir(tmp_path) == ["answers"]


def test_the_file_system_is_named(tmp_path: Path) -> None:
    assert "the file system at /" in space_words(tmp_path)
