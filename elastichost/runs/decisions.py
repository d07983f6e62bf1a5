"""decisions.jsonl: the inputs of every decision of the tuner. `elastichost replay` repeats the decisions from it."""

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
MOST_BYTES = 256 << 20  # recording stops at this size, so that it does not fill the disk
HELD_BYTES = 4 << 20  # limit of records that wait for space; above it recording stops, because `replay` allows no gaps


class Recorder:
    """Appends a JSON line for each record. Without a path it records nothing.

    On a full disk, lines wait in memory, and the next `write` or `flush` tries to write them; `waits` is then the
    reason. With more than HELD_BYTES waiting, or after any other error, recording stops: training continues, and `tell`
    is called once with the reason. If a crash left an incomplete last line in the file, the next record starts on a new
    line."""

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
            self._give_up(f"the record of decisions reached {MOST_BYTES >> 20} MiB, and recording stops")
            return
        self._held += line
        self._bytes += len(line)
        self.flush()

    def flush(self) -> None:
        """Tries to write the lines that wait for space."""
        if not self._held:
            return
        try:
            append_whole(self._descriptor, bytes(self._held))
        except OSError as error:
            self.waits = error.strerror or str(error)
            if not is_out_of_space(error) or len(self._held) > HELD_BYTES:
                self._give_up(f"the recording of decisions stops: {self.waits}")
            return
        self._held.clear()
        self.waits = ""

    def _give_up(self, problem: str) -> None:
        self.problem, self.waits = problem, ""
        self._held.clear()
        self._tell(problem)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_records(path: Path) -> Iterator[Record]:
    """Yields the records of a file in order, without lines that a crash cut short.

    Raises PreflightError if the file does not exist, or if a line is not a record of this version."""
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
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue  # a crash cut the line short, and the next record follows on the same line
    except FileNotFoundError:
        raise PreflightError(
            f"{path}: this run recorded no decisions", hint="runs of elastichost 0.1 and later record them"
        ) from None
