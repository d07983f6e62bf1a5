"""Copies for a checkpoint: right, apart from each other, in memory that is used again."""

from __future__ import annotations

import numpy as np

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


def test_reserved_memory_is_what_the_first_copies_go_to() -> None:
    writer = SnapshotWriter()
    writer.reserve(100 << 20)
    assert writer._toucher is not None
    writer._toucher.join()
    space = writer.space()
    assert space.size_bytes == 128 << 20
    copies = [space.copy(np.zeros(60 << 20, np.uint8)) for _ in range(2)]
    assert space.size_bytes == 128 << 20, "nothing had to be allocated"
    assert not np.shares_memory(*copies)
    writer.reserve(100 << 20)
    assert not writer._toucher.is_alive()
    writer.close()
