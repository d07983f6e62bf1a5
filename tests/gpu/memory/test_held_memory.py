"""The holder of descriptors: it outlives the process that gives them, and ends with the arena."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from elastichost.arena.recovery.device_residence import DeviceResidence, write_residence
from elastichost.errors import GpuMemoryError
from elastichost.gpu.memory import held_memory, memory_holder
from elastichost.gpu.memory.held_memory import (
    drop_memory,
    hold_memory,
    is_held,
    take_memory,
    why_model_is_gone,
)

LIMIT_S = 20.0


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Path]:
    """A directory with a name longer than the address of a socket may be; its holder has ended when the test has."""
    path = tmp_path / ("a-long-name-" * 12)
    path.mkdir()
    yield path
    holders = holders_of(path)
    shutil.rmtree(path, ignore_errors=True)
    for holder in holders:
        holder.wait(LIMIT_S)


def holders_of(arena: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and words[-1] == str(arena) and memory_holder.__file__ in words:
            found.append(process)
    return found


def file_with(content: bytes) -> int:
    file = os.memfd_create("piece")
    os.write(file, content)
    return file


def held(arena: Path, token: str, *contents: bytes) -> None:
    files = [file_with(content) for content in contents]
    hold_memory(arena, token, [len(content) for content in contents], files)
    for file in files:
        os.close(file)


def contents_of(arena: Path, token: str) -> list[bytes] | None:
    found = take_memory(arena, token)
    if found is None:
        return None
    read = [os.pread(one, size, 0) for one, size in zip(found.descriptors, found.sizes, strict=True)]
    found.close()
    return read


def wait_until(is_so: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < ends_s
        select.select([], [], [], 0.02)


def test_what_is_held_is_given_back_in_order(arena: Path) -> None:
    held(arena, "one", b"first", b"second piece")
    assert contents_of(arena, "one") == [b"first", b"second piece"]
    assert contents_of(arena, "one") == [b"first", b"second piece"]
    assert is_held(arena, "one")


def test_nothing_is_given_for_another_token(arena: Path) -> None:
    held(arena, "one", b"first")
    assert contents_of(arena, "two") is None
    assert not is_held(arena, "two")


def test_new_descriptors_replace_the_old_ones_in_the_same_holder(arena: Path) -> None:
    held(arena, "one", b"first")
    held(arena, "two", b"second")
    assert contents_of(arena, "one") is None
    assert contents_of(arena, "two") == [b"second"]
    (holder,) = holders_of(arena)
    assert len([one for one in os.listdir(f"/proc/{holder.pid}/fd") if _is_piece(holder.pid, one)]) == 1


def _is_piece(pid: int, descriptor: str) -> bool:
    return "memfd:piece" in os.readlink(f"/proc/{pid}/fd/{descriptor}")


def test_only_the_owner_of_a_token_makes_it_forgotten(arena: Path) -> None:
    held(arena, "one", b"first")
    drop_memory(arena, "two")
    assert is_held(arena, "one")
    drop_memory(arena, "one")
    assert not is_held(arena, "one")


def test_without_a_holder_nothing_is_held(arena: Path) -> None:
    assert take_memory(arena, "one") is None
    drop_memory(arena, "one")


def test_a_killed_holder_is_replaced(arena: Path) -> None:
    held(arena, "one", b"first")
    (holder,) = holders_of(arena)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(LIMIT_S)
    assert not is_held(arena, "one")
    held(arena, "one", b"first")
    assert is_held(arena, "one")


def test_the_holder_ends_when_the_arena_is_removed(arena: Path) -> None:
    held(arena, "one", b"first")
    (holder,) = holders_of(arena)
    shutil.rmtree(arena)
    holder.wait(LIMIT_S)


def test_a_holder_ends_when_another_one_has_its_place(arena: Path) -> None:
    held(arena, "one", b"first")
    (holder,) = holders_of(arena)
    held_memory._start(arena)
    holder.wait(LIMIT_S)
    wait_until(lambda: len(holders_of(arena)) == 1)
    assert not is_held(arena, "one")


def test_the_holder_has_a_session_of_its_own(arena: Path) -> None:
    """So the signals to the group of a worker, which its launcher sends when it has ended, do not reach it."""
    held(arena, "one", b"first")
    (holder,) = holders_of(arena)
    assert os.getsid(holder.pid) == holder.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_that_end_a_job_do_not_end_the_holder(arena: Path, number: signal.Signals) -> None:
    held(arena, "one", b"first")
    (holder,) = holders_of(arena)
    os.kill(holder.pid, number)
    assert contents_of(arena, "one") == [b"first"]


def test_a_holder_that_does_not_answer_is_not_taken_for_none(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_memory, "ANSWERS_WITHIN_S", 0.05)
    held(arena, "one", b"first")
    (holder,) = holders_of(arena)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with pytest.raises(GpuMemoryError, match="does not answer"):
            take_memory(arena, "one")
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    wait_until(lambda: is_held(arena, "one"))


def test_descriptors_that_did_not_come_are_no_memory(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held(arena, "one", b"first", b"second")
    monkeypatch.setattr(memory_holder, "MOST_PIECES", 1)
    with pytest.raises(GpuMemoryError, match="descriptors came for 2 pieces"):
        take_memory(arena, "one")


def test_nonsense_does_not_end_the_holder(arena: Path) -> None:
    held(arena, "one", b"first")
    for packet in (b"", b"no json", b"[]", b'{"keep": 7}'):
        with held_memory._connected(arena) as connection:
            if packet:
                socket.send_fds(connection, [packet], [])
    assert is_held(arena, "one")


def test_too_many_pieces_are_refused(arena: Path) -> None:
    with pytest.raises(GpuMemoryError, match="300 pieces of memory, at most 253"):
        hold_memory(arena, "one", [1] * 300, [])


def test_why_model_is_gone(arena: Path) -> None:
    assert why_model_is_gone(arena, may_be_resident=False) == ""
    write_residence(arena, DeviceResidence("one", "GPU-7"))
    assert "GPU-7, which this run does not use for it" in why_model_is_gone(arena, may_be_resident=False)
    assert "no process holds its model in memory of GPU GPU-7" in why_model_is_gone(arena, may_be_resident=True)
    held(arena, "one", b"first")
    assert why_model_is_gone(arena, may_be_resident=True) == ""
