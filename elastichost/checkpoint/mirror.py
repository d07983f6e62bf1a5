"""A second directory of checkpoints, on another disk, to which committed checkpoints are copied in the background.

A failure of the mirror is reported as a result and not raised, because the run relies on the first directory alone. A
copy is read back and verified before it is committed, so damage in the first directory is not copied.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastichost.checkpoint.catalogue import new_staging, remove_staging, retain
from elastichost.checkpoint.files import create_exclusively, disk_error, open_for_reading, remove_tree
from elastichost.checkpoint.manifest import commit, load_manifest, verify_blocks
from elastichost.errors import CheckpointError

__all__ = ["Mirror", "Mirrored", "mirror_checkpoint"]

PIECE_BYTES = 1 << 20
NICE = 10  # so that the supervisor's main thread, and workers on the same core, run first
END_S = 5.0  # how long `close` waits: a cancelled copy stops at its next piece, unless the disk does not respond


class _CalledOffError(Exception):
    """The run ends and cancels the copy."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The result of one copy. error: None if the copy is committed."""

    checkpoint: str
    bytes: int
    error: CheckpointError | None


def mirror_checkpoint(source: Path, directory: Path, keep: int, proceed: Callable[[], None] = lambda: None) -> int:
    """Copies a checkpoint to another directory of checkpoints, and keeps the newest `keep` there. Returns the bytes
    that were copied.

    proceed: called between pieces; an exception that it raises ends the copy, and the unfinished copy is removed.
    Raises CheckpointError when the source is bad or a file operation fails.
    """
    manifest = load_manifest(source)
    staging = new_staging(directory, 0, secrets.token_hex(4))
    try:
        copied = [_copy(source / name, staging / name, proceed) for name in sorted({b.file for b in manifest.blocks})]
        verify_blocks(staging, manifest)
        proceed()
        commit(staging, directory / source.name, manifest)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(staging)
    retain(directory, keep, run_id=manifest.run_id)
    return sum(copied)


def _copy(source: Path, target: Path, proceed: Callable[[], None]) -> int:
    size_bytes = 0
    try:
        with os.fdopen(open_for_reading(source), "rb") as reading, os.fdopen(create_exclusively(target), "wb") as file:
            while piece := reading.read(PIECE_BYTES):
                proceed()
                file.write(piece)
                size_bytes += len(piece)
    except OSError as error:
        raise disk_error("cannot copy to", target, error) from error
    return size_bytes


class Mirror:
    """Copies checkpoints in a thread, one after another. If several wait, only the newest is copied. `close` ends the
    thread."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory
        self._keep = keep
        self._results: queue.SimpleQueue[Mirrored] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._wanted: Path | None = None
        self._copying: Path | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a copy is waiting or under way, or a result was not taken yet."""
        with self._changed:
            return self._copying is not None or self._wanted is not None or not self._results.empty()

    @property
    def copying(self) -> Path | None:
        """The checkpoint whose copy is under way: its files must stay until the copy is done."""
        with self._changed:
            return self._copying

    def copy(self, checkpoint: Path) -> None:
        """Requests the copy of a checkpoint, in place of one that waits."""
        with self._changed:
            self._wanted = checkpoint
            self._changed.notify()

    def results(self) -> tuple[Mirrored, ...]:
        """The results since the last call. Does not wait."""
        found: list[Mirrored] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._results.get_nowait())
        return tuple(found)

    def close(self) -> bool:
        """Cancels a copy that is under way and removes it, unless its disk does not respond within END_S. Returns
        whether a copy was waiting or under way."""
        with self._changed:
            is_unfinished = self._copying is not None or self._wanted is not None
            self._is_closed, self._wanted = True, None
            self._changed.notify()
        self._thread.join(END_S)
        return is_unfinished

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # on Linux this sets the thread alone
        with contextlib.suppress(CheckpointError, OSError):  # the first copy reports what is wrong with the directory
            remove_staging(self.directory)
        while (checkpoint := self._next()) is not None:
            with contextlib.suppress(_CalledOffError):
                self._results.put(self._mirror(checkpoint))
            with self._changed:
                self._copying = None

    def _next(self) -> Path | None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted is not None or self._is_closed)
            self._copying, self._wanted = self._wanted, None
            return self._copying

    def _mirror(self, checkpoint: Path) -> Mirrored:
        try:
            size_bytes = mirror_checkpoint(checkpoint, self.directory, self._keep, self._proceed)
        except CheckpointError as error:
            return Mirrored(checkpoint.name, 0, error)
        except OSError as error:
            return Mirrored(checkpoint.name, 0, disk_error("cannot use", self.directory, error))
        except MemoryError:
            return Mirrored(checkpoint.name, 0, CheckpointError("not enough memory to verify the copy"))
        return Mirrored(checkpoint.name, size_bytes, None)

    def _proceed(self) -> None:
        if self._is_closed:
            raise _CalledOffError
