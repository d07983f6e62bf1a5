"""A second directory of checkpoints, on another disk: every committed one is copied there in the background.

A failure there is told and never raised: the first directory is what the run counts on. A copy is read back before it
is committed, so damage in the first directory is not spread.
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
NICE = 10  # the supervisor's own thread, and workers on the same core, come first
END_S = 5.0  # a copy that is called off stops at its next piece, unless the disk does not answer


class _CalledOffError(Exception):
    """The run ends, and does not wait."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What became of one copy. `error` is None when it is committed."""

    checkpoint: str
    bytes: int
    error: CheckpointError | None


def mirror_checkpoint(source: Path, directory: Path, keep: int, proceed: Callable[[], None] = lambda: None) -> int:
    """Copies a checkpoint into another directory of checkpoints, and keeps the newest `keep` there. Returns its bytes.

    proceed is called now and then; what it raises ends the copy, and nothing of it is left. Raises CheckpointError
    when the source is not good or a disk refuses.
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
    """Copies checkpoints one after the other; of those that wait only the newest. `close` ends the thread."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory
        self._keep = keep
        self._results: queue.SimpleQueue[Mirrored] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._wanted: Path | None = None
        self._is_copying = self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """A copy is being made, or its result was not taken yet."""
        with self._changed:
            return self._is_copying or self._wanted is not None or not self._results.empty()

    def copy(self, checkpoint: Path) -> None:
        """In the background, and in place of one that waits."""
        with self._changed:
            self._wanted = checkpoint
            self._changed.notify()

    def results(self) -> tuple[Mirrored, ...]:
        """What has happened since the last call; never waits."""
        found: list[Mirrored] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._results.get_nowait())
        return tuple(found)

    def close(self) -> bool:
        """A copy under way is called off; nothing of it is left, unless its disk does not answer. Returns whether there
        was one to be made."""
        with self._changed:
            is_unfinished = self._is_copying or self._wanted is not None
            self._is_closed, self._wanted = True, None
            self._changed.notify()
        self._thread.join(END_S)
        return is_unfinished

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # of this thread only, as Linux has it
        with contextlib.suppress(CheckpointError, OSError):  # what is wrong with the directory the first copy will tell
            remove_staging(self.directory)
        while (checkpoint := self._next()) is not None:
            with contextlib.suppress(_CalledOffError):
                self._results.put(self._mirror(checkpoint))
            with self._changed:
                self._is_copying = False

    def _next(self) -> Path | None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted is not None or self._is_closed)
            checkpoint, self._wanted = self._wanted, None
            self._is_copying = checkpoint is not None
            return checkpoint

    def _mirror(self, checkpoint: Path) -> Mirrored:
        try:
            size_bytes = mirror_checkpoint(checkpoint, self.directory, self._keep, self._proceed)
        except CheckpointError as error:
            return Mirrored(checkpoint.name, 0, error)
        except OSError as error:
            return Mirrored(checkpoint.name, 0, disk_error("cannot use", self.directory, error))
        except MemoryError:
            return Mirrored(checkpoint.name, 0, CheckpointError("there is no memory to verify the copy"))
        return Mirrored(checkpoint.name, size_bytes, None)

    def _proceed(self) -> None:
        if self._is_closed:
            raise _CalledOffError
