"""A PS' part of a checkpoint: copy while training is paused, write while it goes on."""

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
_PIECES = 8  # into so many what is reserved is cut, if they are neither larger nor smaller than these
RESERVE_EVERY_S = 5.0
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Block:
    """One array of the checkpoint: what it is, whose, which bucket."""

    kind: BlockKind
    owner: int
    bucket: int
    array: npt.NDArray[np.generic]


def _new_piece(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Memory without a name, whose pages are shared ones: they do not count as this process' own, so what is kept for
    copies is known exactly, and never counted twice. It takes memory where it is touched."""
    return np.frombuffer(mmap.mmap(-1, max(1, size_bytes)), np.uint8)


class CopySpace:
    """Memory for the copies of a checkpoint, kept for the next one: touching fresh pages takes far longer than
    copying, and training stands still meanwhile."""

    def __init__(self) -> None:
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._touched: list[int] = []  # bytes of each piece that take memory
        self._piece = self._used = 0

    @property
    def size_bytes(self) -> int:
        return sum(len(piece) for piece in self._pieces)

    @property
    def touched_bytes(self) -> int:
        """Memory that it takes."""
        return sum(self._touched)

    def add(self, piece: npt.NDArray[np.uint8]) -> None:
        """Memory that was touched elsewhere."""
        self._pieces.append(piece)
        self._touched.append(len(piece))

    def drop_smaller(self, size_bytes: int) -> None:
        """Gives pieces back that were enough once. No copies may lie in them that are still wanted here."""
        kept = [number for number, piece in enumerate(self._pieces) if len(piece) >= size_bytes]
        self._pieces, self._touched = [self._pieces[i] for i in kept], [self._touched[i] for i in kept]
        self._piece = self._used = 0

    def begin(self) -> None:
        """Everything copied before may be written over from now on."""
        self._piece = self._used = 0

    def copy(self, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """A copy that stays until `begin`."""
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
    """What the writing thread ended with; `error` is None when every block is on disk and fsynced."""

    cut: int
    records: tuple[BlockRecord, ...]
    error: Exception | None


def written_message(result: SnapshotResult, dense_version: int) -> tuple[SnapshotWrittenMsg, tuple[bytes, ...]]:
    """What the supervisor is told. A disk that refuses is no failure of the PS, whose rows are well: whether the run
    needs this checkpoint is not decided here. Raises any other error of the thread."""
    if isinstance(result.error, CheckpointError):
        is_full = isinstance(result.error, CheckpointSpaceError)
        failure, hint = result.error.message, result.error.hint
        return SnapshotWrittenMsg(result.cut, 0, failure=failure, hint=hint, is_out_of_space=is_full), ()
    if result.error is not None:
        raise result.error
    return SnapshotWrittenMsg(result.cut, dense_version), (msgspec.msgpack.encode(result.records),)


class SnapshotWriter:
    """Writes copied blocks in the background. `descriptor` becomes readable when a result waits."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._results: queue.SimpleQueue[SnapshotResult] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._space = CopySpace()
        self._touched: queue.SimpleQueue[npt.NDArray[np.uint8]] = queue.SimpleQueue()
        self._toucher: threading.Thread | None = None
        self._reserve_at_s = 0.0
        self._closed = False

    @property
    def kept_bytes(self) -> int:
        """Memory that copies take, or will."""
        self._take_touched()
        return self._space.touched_bytes

    def reserve_is_due(self, now_s: float) -> bool:
        """True every few seconds."""
        is_due = now_s >= self._reserve_at_s
        self._reserve_at_s = now_s + RESERVE_EVERY_S if is_due else self._reserve_at_s
        return is_due

    def reserve(self, size_bytes: int) -> None:
        """Touches memory for so many bytes of copies in the background: the first checkpoint's copy, while training
        stands still, then takes no longer than the others'. Call it now and then, as the rows grow."""
        self._take_touched()
        if self._toucher is not None and self._toucher.is_alive():
            return
        if self._thread is None or not self._thread.is_alive():
            self._space.drop_smaller(min(_PIECE_BYTES, size_bytes // (2 * _PIECES)))
        missing_bytes = size_bytes - self._space.size_bytes
        if missing_bytes > 0:
            piece_bytes = min(_PIECE_BYTES, max(_LEAST_PIECE_BYTES, -(-size_bytes // _PIECES)))
            task = (missing_bytes, -(-piece_bytes // PAGE_BYTES) * PAGE_BYTES)
            self._toucher = threading.Thread(target=self._touch, args=task, name="reserve", daemon=True)
            self._toucher.start()

    def _touch(self, missing_bytes: int, piece_bytes: int) -> None:
        for _ in range(-(-missing_bytes // piece_bytes)):
            if self._closed:
                return
            piece = _new_piece(piece_bytes)
            piece[::PAGE_BYTES] = 0
            self._touched.put(piece)

    def _take_touched(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._space.add(self._touched.get_nowait())

    def space(self) -> CopySpace:
        """Where to copy to. While an abandoned checkpoint is still being written, its copies must stay."""
        if self._thread is not None and self._thread.is_alive():
            self._space = CopySpace()
        self._take_touched()
        self._space.begin()
        return self._space

    def start(self, cut: int, path: Path, blocks: Iterable[Block]) -> None:
        """Begins to write; blocks must not change any more."""
        copied = tuple(blocks)
        self._thread = threading.Thread(target=self._write, args=(cut, path, copied), name="snapshot", daemon=True)
        self._thread.start()

    def result(self) -> SnapshotResult | None:
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
