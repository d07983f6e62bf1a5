"""The part of a checkpoint that a PS writes: it copies its buckets while training is paused, and writes the copy later.

Rules
1. All blocks are copied before SnapshotCutMsg is sent; training resumes only after it. So the blocks belong to one cut.
2. A copy is not overwritten while the thread still writes it, also when the checkpoint was abandoned meanwhile.
3. The result is reported only when every block is on disk and fsynced, or with the error.

A kill while the file is written leaves a part of a file that no manifest names: that checkpoint stays incomplete.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.checkpoint.format import BlockKind, BlockRecord, BlockWriter
from elastichost.errors import CheckpointError, CheckpointSpaceError
from elastichost.host.machine import PAGE_BYTES
from elastichost.wire.control import SnapshotWrittenMsg

__all__ = ["Block", "CopySpace", "SnapshotResult", "SnapshotWriter", "written_message"]

_PIECE_BYTES = 64 << 20
_LEAST_PIECE_BYTES = 4 << 20
_PIECES = 8  # number of pieces of a reservation, within the limits of a piece's size above
RESERVE_EVERY_S = 5.0
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Block:
    """One array of the checkpoint: its kind, its owner (embedding or table index) and its bucket."""

    kind: BlockKind
    owner: int
    bucket: int
    array: npt.NDArray[np.generic]


def _new_piece(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Anonymous shared memory, allocated page by page when it is touched. Its pages do not count as the process' own
    memory, so the memory kept for copies is known exactly and is not counted twice."""
    return np.frombuffer(mmap.mmap(-1, max(1, size_bytes)), np.uint8)


class CopySpace:
    """Memory for the copies of a checkpoint. It is kept for the next checkpoint, because touching fresh pages takes far
    longer than copying, and training stands still meanwhile."""

    def __init__(self) -> None:
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._touched: list[int] = []  # bytes of each piece that were touched, so that they take memory
        self._piece = self._used = 0

    @property
    def size_bytes(self) -> int:
        return sum(len(piece) for piece in self._pieces)

    @property
    def touched_bytes(self) -> int:
        """Bytes of memory that the space takes."""
        return sum(self._touched)

    def add(self, piece: npt.NDArray[np.uint8]) -> None:
        """Adds a piece whose pages were all touched already."""
        self._pieces.append(piece)
        self._touched.append(len(piece))

    def drop_smaller(self, size_bytes: int) -> None:
        """Frees pieces smaller than `size_bytes`, which earlier, smaller checkpoints needed. No copy may be in use."""
        kept = [number for number, piece in enumerate(self._pieces) if len(piece) >= size_bytes]
        self._pieces, self._touched = [self._pieces[i] for i in kept], [self._touched[i] for i in kept]
        self._piece = self._used = 0

    def begin(self) -> None:
        """Starts a checkpoint: all earlier copies may be overwritten from now on."""
        self._piece = self._used = 0

    def copy(self, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Copies an array into the space. The copy is valid until the next `begin`."""
        size_bytes = array.nbytes
        while self._piece < len(self._pieces) and self._used + size_bytes > len(self._pieces[self._piece]):
            self._piece, self._used = self._piece + 1, 0
        if self._piece == len(self._pieces):
            self._pieces.append(_new_piece(max(size_bytes, _PIECE_BYTES)))
            self._touched.append(0)
        place = self._pieces[self._piece][self._used : self._used + size_bytes]
        self._used += -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
        self._touched[self._piece] = max(self._touched[self._piece], self._used)
        copied: npt.NDArray[np.generic] = place.view(array.dtype).reshape(array.shape)
        copied[...] = array
        return copied


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The result of the writing thread. error: None when every block is on disk and fsynced."""

    cut: int
    records: tuple[BlockRecord, ...]
    error: Exception | None


def written_message(result: SnapshotResult, dense_version: int) -> tuple[SnapshotWrittenMsg, tuple[bytes, ...]]:
    """The message for the supervisor, with its frames. Raises errors of the thread except CheckpointError.

    A disk error (CheckpointError) is reported and does not end the PS, because its rows are intact. The supervisor
    decides whether the run can go on without this checkpoint.
    """
    if isinstance(result.error, CheckpointError):
        is_full = isinstance(result.error, CheckpointSpaceError)
        failure, hint = result.error.message, result.error.hint
        return SnapshotWrittenMsg(result.cut, 0, failure=failure, hint=hint, is_out_of_space=is_full), ()
    if result.error is not None:
        raise result.error
    return SnapshotWrittenMsg(result.cut, dense_version), (msgspec.msgpack.encode(result.records),)


class SnapshotWriter:
    """Writes copied blocks in a background thread. descriptor: an eventfd, readable when a result waits."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._results: queue.SimpleQueue[SnapshotResult] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._space = CopySpace()
        self._touched: queue.SimpleQueue[npt.NDArray[np.uint8]] = queue.SimpleQueue()
        self._toucher: threading.Thread | None = None
        self._is_enough = threading.Event()  # set: the reservation that is being made ends with its present piece
        self._reserve_at_s = 0.0
        self._closed = False

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory that copies take, or that is reserved for them."""
        self._take_touched()
        return self._space.touched_bytes

    def reserve_is_due(self, now_s: float) -> bool:
        """Whether `reserve` is to be called now: True every RESERVE_EVERY_S seconds."""
        is_due = now_s >= self._reserve_at_s
        self._reserve_at_s = now_s + RESERVE_EVERY_S if is_due else self._reserve_at_s
        return is_due

    def reserve(self, size_bytes: int) -> None:
        """Touches memory for `size_bytes` of copies in a background thread, so that the copy of the first checkpoint
        does not pause training longer than later ones. Call it repeatedly, because the rows grow."""
        self._take_touched()
        if self._toucher is not None and self._toucher.is_alive():
            return
        if self._thread is None or not self._thread.is_alive():
            self._space.drop_smaller(min(_PIECE_BYTES, size_bytes // (2 * _PIECES)))
        missing_bytes = size_bytes - self._space.size_bytes
        if missing_bytes > 0:
            piece_bytes = min(_PIECE_BYTES, max(_LEAST_PIECE_BYTES, -(-size_bytes // _PIECES)))
            self._is_enough = threading.Event()
            task = (missing_bytes, -(-piece_bytes // PAGE_BYTES) * PAGE_BYTES, self._is_enough)
            self._toucher = threading.Thread(target=self._touch, args=task, name="reserve", daemon=True)
            self._toucher.start()

    def _touch(self, missing_bytes: int, piece_bytes: int, is_enough: threading.Event) -> None:
        for _ in range(-(-missing_bytes // piece_bytes)):
            if self._closed or is_enough.is_set():
                return
            piece = _new_piece(piece_bytes)
            piece[::PAGE_BYTES] = 0
            if is_enough.is_set():
                return  # the piece is freed
            self._touched.put(piece)

    def _take_touched(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._space.add(self._touched.get_nowait())

    def space(self) -> CopySpace:
        """The space for the next copies. While an abandoned checkpoint is still written it is a new one, so that the
        copies that are written stay valid. A reservation that is being made ends: the copies take fresh memory for what
        is not reserved yet, and both together would take more than the copies need."""
        self._is_enough.set()
        if self._thread is not None and self._thread.is_alive():
            self._space = CopySpace()
        self._take_touched()
        self._space.begin()
        return self._space

    def start(self, cut: int, path: Path, blocks: Iterable[Block]) -> None:
        """Starts to write the blocks to `path`. They must not change until the result has come."""
        copied = tuple(blocks)
        self._thread = threading.Thread(target=self._write, args=(cut, path, copied), name="snapshot", daemon=True)
        self._thread.start()

    def result(self) -> SnapshotResult | None:
        """The next result; None: none waits. Never blocks."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return None
        return self._results.get()

    def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        os.close(self.descriptor)

    def _write(self, cut: int, path: Path, blocks: tuple[Block, ...]) -> None:
        records: list[BlockRecord] = []
        error: Exception | None = None
        try:
            with BlockWriter(path) as writer:
                records.extend(writer.add(b.kind, b.owner, b.bucket, b.array) for b in blocks)
        except Exception as caught:  # noqa: BLE001 - travels to the loop, which raises it
            error = caught
        self._results.put(SnapshotResult(cut, tuple(records), error))
        os.eventfd_write(self.descriptor, 1)
