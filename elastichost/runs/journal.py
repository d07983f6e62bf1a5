"""journal.jsonl: one JSON line for every event and decision of a run (`events.JournalLine`).

Most events are leases, and a resume needs only the newest leases. So leases are in a separate file, leases.jsonl. Each
of its lines has the length of the journal at the time of the lease, and `read_journal` merges both files in the right
order. When leases.jsonl exceeds LEASES_BYTES, its older half is folded into one line with what a resume needs.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from elastichost.atomic_write import append_whole, is_out_of_space, write_atomically
from elastichost.runs.events import AnyEvent, JournalLine, LeaseGranted, LeasesFolded
from elastichost.wire.crash import crash_point

__all__ = ["LEASES_FILE", "Journal", "LeaseLine", "read_journal", "unix_s_of", "utc_now"]

SYNC_EVERY_S = 0.5
MAX_LINE_BYTES = 1 << 20
LEASES_FILE = "leases.jsonl"
LEASES_BYTES = 1 << 20
HELD_BYTES = 8 << 20  # limit of lines that wait for space


class LeaseLine(msgspec.Struct, frozen=True):
    """A line of leases.jsonl. journal_bytes: length of the journal when the lease was granted."""

    journal_bytes: int
    line: JournalLine


class _WaitingLine(msgspec.Struct, frozen=True):
    """An encoded line that waits for space on the disk."""

    line: bytes
    is_lease: bool


def utc_now() -> str:
    """The present time in UTC, as ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_s_of(time_utc: str) -> float:
    """The time of a journal line in seconds since 1970. time_utc: as `utc_now` writes it."""
    return datetime.fromisoformat(time_utc).timestamp()


class Journal:
    """Appends events to the journal.

    A line is written at once. The durability of its kind decides when it is synced to the disk: in the same call
    ("at_once"), at the next `sync` ("soon"), or when the operating system does it ("later").

    On a full disk, lines wait in memory, in order, and `sync` tries to write them. `problem` is the reason why lines
    wait, "" if none waits. When more than HELD_BYTES wait, only kinds that a resume reads are kept (these are few,
    because no lease is granted and no process is started while the disk is full); `dropped` counts the others.

    listener: called with every line. keeps_leases: leases are never folded, so that a checker of the run can read all
    of them. Raises OSError for any error other than a full disk.
    """

    def __init__(
        self, path: Path, listener: Callable[[JournalLine], None] | None = None, *, keeps_leases: bool = False
    ) -> None:
        self._descriptor = _open_to_append(path)
        self._bytes = os.fstat(self._descriptor).st_size  # includes the lines that wait
        self._leases_path, self._leases = path.with_name(LEASES_FILE), -1
        self._keeps_leases, self._fold_beyond_bytes = keeps_leases, LEASES_BYTES
        self._encoder = msgspec.json.Encoder()
        self._listener = listener
        self._held: deque[_WaitingLine] = deque()
        self._held_bytes = 0
        self._unsynced = False
        self._written: set[int] = set()  # descriptors with writes that are not synced yet
        self._synced_s = 0.0
        self.problem = ""
        self.dropped = 0

    def write(self, event: AnyEvent, cause: str = "") -> JournalLine:
        """Appends an event. cause: id of what the event follows from (`JournalLine.cause`)."""
        line = JournalLine(utc_now(), time.monotonic(), event, cause)
        crash_point("supervisor.journal.write")
        if isinstance(event, LeaseGranted):
            held = _WaitingLine(self._encoder.encode(LeaseLine(self._bytes, line)) + b"\n", is_lease=True)
        else:
            held = _WaitingLine(self._encoder.encode(line) + b"\n", is_lease=False)
        self._put(held, is_needed=event.is_replayed)
        crash_point("supervisor.journal.written")
        self._unsynced = self._unsynced or event.durability != "later"
        if event.durability == "at_once":
            self._sync(time.monotonic())
        if self._listener is not None:
            self._listener(line)
        return line

    def sync(self, now_s: float) -> None:
        """Syncs durable lines and tries to write waiting lines, at most once every SYNC_EVERY_S. Call it often."""
        if (self._unsynced or self._held) and now_s - self._synced_s >= SYNC_EVERY_S:
            self._sync(now_s)

    def close(self) -> None:
        """Syncs and closes the files. Lines that still wait for space are lost; `problem` is then the reason."""
        self._sync(time.monotonic())
        os.close(self._descriptor)
        if self._leases >= 0:
            os.close(self._leases)

    # --- inside ---------------------------------------------------------------------------------------------

    def _put(self, line: _WaitingLine, *, is_needed: bool) -> None:
        """Puts a line behind the waiting lines, and writes all of them unless the disk is full."""
        if self._held_bytes + len(line.line) > HELD_BYTES and not is_needed:
            self.dropped += 1
            return
        self._held.append(line)
        self._held_bytes += len(line.line)
        if not line.is_lease:
            self._bytes += len(line.line)
        if not self.problem:
            self._write_held()

    def _write_held(self) -> None:
        self.problem = ""
        try:
            while self._held:
                line = self._held[0]
                descriptor = self._leases_descriptor() if line.is_lease else self._descriptor
                append_whole(descriptor, line.line)
                self._written.add(descriptor)
                self._held.popleft()
                self._held_bytes -= len(line.line)
            self._fold_leases()
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self.problem = error.strerror or str(error)

    def _sync(self, now_s: float) -> None:
        self._synced_s = now_s
        self._write_held()
        try:
            for descriptor in sorted(self._written):
                os.fdatasync(descriptor)
                self._written.discard(descriptor)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self.problem = error.strerror or str(error)
        self._unsynced = bool(self.problem)

    def _leases_descriptor(self) -> int:
        if self._leases < 0:
            self._leases = _open_to_append(self._leases_path)
        return self._leases

    def _fold_leases(self) -> None:
        """Replaces the older half of the leases by one line. If the disk has no space for this, it is tried again when
        the file has grown by another LEASES_BYTES / 8."""
        if self._leases < 0 or self._keeps_leases:
            return
        size = os.fstat(self._leases).st_size
        if size <= self._fold_beyond_bytes:
            return
        self._fold_beyond_bytes = size + LEASES_BYTES // 8
        lines = list(_lease_lines(self._leases_path))
        older, newer = lines[: len(lines) // 2], lines[len(lines) // 2 :]
        kept = [_folded(older), *newer]
        write_atomically(self._leases_path, b"".join(self._encoder.encode(line) + b"\n" for line in kept))
        self._written.discard(self._leases)
        os.close(self._leases)
        self._leases, self._fold_beyond_bytes = _open_to_append(self._leases_path), LEASES_BYTES


def _open_to_append(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    _cut_unfinished_line(descriptor)
    return descriptor


def _cut_unfinished_line(descriptor: int) -> None:
    """Removes an incomplete last line, which a supervisor leaves if it is killed during a write; a line appended to it
    could not be decoded."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - MAX_LINE_BYTES)
    tail = os.pread(descriptor, size - start, start)
    os.ftruncate(descriptor, start + tail.rfind(b"\n") + 1)


def _folded(lines: Sequence[LeaseLine]) -> LeaseLine:
    """One line that replaces the given lines (at least one): the highest lease, the highest incarnation of each worker,
    and the epoch of the last lease."""
    highest: dict[str, int] = {}
    leases = lease = epoch = 0
    for one in lines:
        match one.line.event:
            case LeaseGranted() as granted:
                leases, lease, epoch = leases + 1, max(lease, granted.lease), granted.epoch
                found = {granted.process.name: granted.process.incarnation}
            case LeasesFolded() as folded:
                leases, lease, epoch = leases + folded.leases, max(lease, folded.lease), folded.epoch
                found = folded.incarnations
            case _:
                continue
        for name, incarnation in found.items():
            highest[name] = max(highest.get(name, 0), incarnation)
    newest = lines[-1]
    event = LeasesFolded(leases, lease, epoch, highest)
    return LeaseLine(newest.journal_bytes, JournalLine(newest.line.time_utc, newest.line.monotonic_s, event))


def _lease_lines(path: Path) -> Iterator[LeaseLine]:
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(LeaseLine)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


def read_journal(path: Path) -> Iterator[JournalLine]:
    """Yields the lines of a journal and its leases in order, without a last line that a crash cut short."""
    decoder = msgspec.json.Decoder(JournalLine)
    leases = _lease_lines(path.with_name(LEASES_FILE))
    lease, at = next(leases, None), 0
    with path.open("rb") as file:
        for line in file:
            while lease is not None and lease.journal_bytes <= at:
                yield lease.line
                lease = next(leases, None)
            if line.endswith(b"\n"):
                yield decoder.decode(line)
            at += len(line)
    while lease is not None:
        yield lease.line
        lease = next(leases, None)
