"""decisions.jsonl: what every decision of the tuner was made from. `elastichost replay` makes them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from elastichost.atomic_write import append_whole, is_out_of_space
from elastichost.errors import PreflightError
from elastichost.tuner.records import Record

__all__ = ["DECISIONS_FILE", "Recorder", "read_records"]

DECISIONS_FILE = "decisions.jsonl"
MOST_BYTES = 256 << 20  # then nothing more is recorded: a record must not fill a disk
HELD_BYTES = 4 << 20  # of records that wait for space; `replay` needs all of them or none of what follows


class Recorder:
    """Appends a JSON line for each record; without a path nothing is recorded. On a full disk lines wait in memory, and
    the next `write` or `flush` tries them again; `waits` says why. With more than HELD_BYTES of them, or after another
    error, nothing more is recorded: training goes on, and `tell` hears why, once. After a line that a crash cut short a
    new one is begun."""

    def __init__(self, path: Path | None = None, tell: Callable[[str], object] = lambda problem: None) -> None:
        self._tell = tell
        self._descriptor, self._bytes, self._before = -1, 0, b""
        if path is not None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            self._bytes = os.fstat(self._descriptor).st_size
            is_cut = self._bytes > 0 and os.pread(self._descriptor, 1, self._bytes - 1) != b"\n"
            self._before = b"\n" if is_cut else b""
        self._encoder = msgspec.json.Encoder()
        self._held = bytearray()
        self.problem = ""
        self.waits = ""

    def write(self, record: Record) -> None:
        if self._descriptor < 0 or self.problem:
            return
        line, self._before = self._before + self._encoder.encode(record) + b"\n", b""
        if self._bytes + len(line) > MOST_BYTES:
            self._give_up(f"the record of decisions has reached {MOST_BYTES >> 20} MiB: no more is recorded")
            return
        self._held += line
        self._bytes += len(line)
        self.flush()

    def flush(self) -> None:
        """Writes what waits for space."""
        if not self._held:
            return
        try:
            append_whole(self._descriptor, bytes(self._held))
        except OSError as error:
            self.waits = error.strerror or str(error)
            if not is_out_of_space(error) or len(self._held) > HELD_BYTES:
                self._give_up(f"decisions are not recorded any more: {self.waits}")
            return
        self._held.clear()
        self.waits = ""

    def _give_up(self, problem: str) -> None:
        self.problem, self.waits = problem, ""
        self._held.clear()
        self._tell(f"{problem}; `replay` knows nothing of what follows")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_records(path: Path) -> Iterator[Record]:
    """In order; lines that a crash cut short are left out. Raises PreflightError when there is no such file, or a line
    is none of this version's records."""
    decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"}\n"):
                    continue
                try:
                    yield decoder.decode(line)
                except msgspec.ValidationError as error:
                    raise PreflightError(
                        f"{path}, line {number}: not a record of this version: {error}",
                        hint="replay it with the version that wrote it (versions.json names it)",
                    ) from None
                except msgspec.DecodeError:
                    continue  # cut short within
    except FileNotFoundError:
        raise PreflightError(
            f"{path}: this run recorded no decisions", hint="runs of elastichost 0.1 and later do"
        ) from None
