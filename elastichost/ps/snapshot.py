"""A PS' part of a checkpoint: copy while training is paused, write while it goes on."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.checkpoint.format import BlockKind, BlockRecord, BlockWriter

__all__ = ["Block", "SnapshotResult", "SnapshotWriter"]


@dataclass(frozen=True, slots=True)
class Block:
    """One array of the checkpoint: what it is, whose, which bucket."""

    kind: BlockKind
    owner: int
    bucket: int
    array: npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """What the writing thread ended with; `error` is None when every block is on disk and fsynced."""

    cut: int
    records: tuple[BlockRecord, ...]
    error: Exception | None


class SnapshotWriter:
    """Writes copied blocks in the background. `descriptor` becomes readable when a result waits."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._results: queue.SimpleQueue[SnapshotResult] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

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
