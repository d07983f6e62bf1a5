"""journal.jsonl: everything that happened and everything that was decided, one JSON line each, with the reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from elastichost.metrics import JournalEvent, JournalValue
from elastichost.wire.crash import crash_point

__all__ = ["Journal", "follow", "read_journal", "utc_now"]

SYNC_EVERY_S = 0.5
MAX_LINE_BYTES = 1 << 20


def utc_now() -> str:
    """ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Journal:
    """Appends events. A line is written at once; `durable` ones are on the disk at the next `sync`, or at once when
    `now` is set (commit points)."""

    def __init__(self, path: Path, listener: Callable[[JournalEvent], None] | None = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        _cut_unfinished_line(self._descriptor)
        self._encoder = msgspec.json.Encoder()
        self._listener = listener
        self._unsynced = False
        self._synced_s = 0.0

    def write(
        self,
        kind: str,
        text: str,
        *,
        process: str = "",
        durable: bool = False,
        now: bool = False,
        data: dict[str, JournalValue] | None = None,
    ) -> JournalEvent:
        event = JournalEvent(utc_now(), time.monotonic(), kind, text, process, data or {})
        crash_point("supervisor.journal.write")
        os.write(self._descriptor, self._encoder.encode(event) + b"\n")
        crash_point("supervisor.journal.written")
        self._unsynced = self._unsynced or durable or now
        if now:
            self._sync(time.monotonic())
        if self._listener is not None:
            self._listener(event)
        return event

    def sync(self, now_s: float) -> None:
        """Call often: syncs durable lines at most every SYNC_EVERY_S."""
        if self._unsynced and now_s - self._synced_s >= SYNC_EVERY_S:
            self._sync(now_s)

    def _sync(self, now_s: float) -> None:
        os.fdatasync(self._descriptor)
        self._unsynced, self._synced_s = False, now_s

    def close(self) -> None:
        self._sync(time.monotonic())
        os.close(self._descriptor)


def _cut_unfinished_line(descriptor: int) -> None:
    """A supervisor that was killed within a write leaves a line without an end: nothing may be appended to that."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - MAX_LINE_BYTES)
    tail = os.pread(descriptor, size - start, start)
    os.ftruncate(descriptor, start + tail.rfind(b"\n") + 1)


def read_journal(path: Path) -> Iterator[JournalEvent]:
    """Events in order. A last line that was cut short by a crash is left out."""
    decoder = msgspec.json.Decoder(JournalEvent)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


def follow(path: Path, is_over: Callable[[], bool], poll_s: float = 0.2) -> Iterator[JournalEvent]:
    """Events as they come, from the first one on, until `is_over` and no more are there."""
    decoder = msgspec.json.Decoder(JournalEvent)
    rest = b""
    with path.open("rb") as file:
        while True:
            ended = is_over()
            chunk = file.read(1 << 20)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield decoder.decode(line)
            if not chunk:
                if ended:
                    return
                time.sleep(poll_s)
