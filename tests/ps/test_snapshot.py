"""Copies for a checkpoint are correct, do not overlap, and use the same memory again for the next checkpoint."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from elastichost.ps import snapshot
from elastichost.ps.snapshot import CopySpace, SnapshotWriter


def test_copies_are_apart_and_the_next_checkpoint_uses_their_memory() -> None:
    space = CopySpace()
    arrays = [
        np.arange(3, dtype=np.float32),
        np.zeros((0, 8), dtype=np.float32),
        np.arange(20, dtype=np.float32).reshape(5, 4),
        np.arange((80 << 20) // 8, dtype=np.float64),  # more than a piece
        np.arange(7, dtype=np.int64),
    ]
    space.begin()
    copies = [space.copy(array) for array in arrays]
    assert all(np.array_equal(copy, array) for copy, array in zip(copies, arrays, strict=True))
    assert [copy.dtype for copy in copies] == [array.dtype for array in arrays]
    assert not any(np.shares_memory(copy, array) for copy, array in zip(copies, arrays, strict=True))
    space.begin()
    again = [space.copy(array) for array in arrays]
    assert all(np.array_equal(copy, array) for copy, array in zip(again, arrays, strict=True))
    assert np.shares_memory(again[3], copies[3])


def reserve(writer: SnapshotWriter, size_bytes: int) -> CopySpace:
    """Reserves memory, and waits until all of it was touched."""
    writer.reserve(size_bytes)
    assert writer._toucher is not None
    writer._toucher.join()
    return writer.space()


@pytest.mark.thorough
def test_the_first_copies_use_the_reserved_memory() -> None:
    writer = SnapshotWriter()
    space = reserve(writer, 1000 << 20)
    assert space.size_bytes == space.touched_bytes == 1024 << 20
    copies = [space.copy(np.zeros(60 << 20, np.uint8)) for _ in range(16)]
    assert space.size_bytes == 1024 << 20, "memory was allocated for the copies"
    assert not np.shares_memory(*copies[:2])
    writer.reserve(1000 << 20)
    assert writer._toucher is not None and not writer._toucher.is_alive()
    writer.close()


def test_a_small_reservation_is_small_and_a_large_one_replaces_small_pieces() -> None:
    writer = SnapshotWriter()
    assert reserve(writer, 1 << 20).size_bytes == 4 << 20
    assert reserve(writer, 40 << 20).size_bytes == 44 << 20
    assert writer.kept_bytes == 44 << 20
    assert reserve(writer, 200 << 20).size_bytes == 200 << 20, "pieces of 4 MB would not be used"
    writer.close()


def test_a_checkpoint_before_the_reservation_is_complete_takes_no_memory_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_first, is_copied, made = threading.Event(), threading.Event(), snapshot._new_piece

    def new_piece(size_bytes: int) -> np.typing.NDArray[np.uint8]:
        if threading.current_thread().name == "reserve":
            if has_first.is_set():
                is_copied.wait()
            has_first.set()
        return made(size_bytes)

    monkeypatch.setattr(snapshot, "_new_piece", new_piece)
    writer = SnapshotWriter()
    writer.reserve(64 << 20)
    has_first.wait()
    space = writer.space()
    for _ in range(16):
        space.copy(np.zeros(4 << 20, np.uint8))
    is_copied.set()
    assert writer._toucher is not None
    writer._toucher.join()
    assert writer.kept_bytes <= (64 + 8) << 20
    writer.close()
