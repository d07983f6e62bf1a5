"""Reads a text file that grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Tail"]

POLL_INTERVAL_S = 0.2
CHUNK_BYTES = 1 << 20


class Tail:
    """Yields each complete line of one file once. A last line without a newline counts as incomplete. offset: where the
    first line begins, in bytes."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._rest = b""

    @property
    def offset(self) -> int:
        """Where the first line begins that was not yielded, in bytes."""
        return self._offset - len(self._rest)

    def new_lines(self) -> Iterator[str]:
        """The lines written since the last call; bytes that are not UTF-8 appear as backslash escapes."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while chunk := file.read(CHUNK_BYTES):
                self._offset += len(chunk)
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                yield from (line.decode("utf-8", "backslashreplace") for line in lines)

    @staticmethod
    def wait() -> None:
        """Sleeps between two polls: long enough to cost no CPU time, short enough that a reader does not notice."""
        time.sleep(POLL_INTERVAL_S)
