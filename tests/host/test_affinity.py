"""All threads of a process move to the new cores, also those that wait in a library."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from elastichost.host.affinity import move_to_cores


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """The cores of this process, which it gets back after the test."""
    before = os.sched_getaffinity(0)
    try:
        yield sorted(before)
    finally:
        move_to_cores(before)


def test_every_thread_moves(cores: list[int]) -> None:
    over = threading.Event()
    waiting = [threading.Thread(target=over.wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    try:
        move_to_cores(cores[-1:])
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        assert len(threads) >= 4
        assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset(cores[-1:])}
    finally:
        over.set()
        for thread in waiting:
            thread.join()


def test_no_cores_change_nothing(cores: list[int]) -> None:
    move_to_cores(())
    assert sorted(os.sched_getaffinity(0)) == cores


def test_cores_that_do_not_exist_are_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        move_to_cores([1000])
