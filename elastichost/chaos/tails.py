"""Readers of the two records of a run while they grow: the supervisor's journal, and the log of applied batches."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import numpy as np

from elastichost.runs.events import JournalLine, LeaseGranted
from elastichost.runs.journal import LEASES_FILE, LeaseLine
from elastichost.wire.applied import APPLIED_RECORD, AppliedHeader, read_applied_content

__all__ = ["AppliedTail", "JournalTail"]


class JournalTail:
    """Gives each complete line of journal.jsonl and of leases.jsonl beside it once. A supervisor that continues a
    journal cuts off an incomplete last line, which was not given."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._decoder = msgspec.json.Decoder(JournalLine)
        self._leases, self._leases_offset, self._leases_file = path.with_name(LEASES_FILE), 0, 0
        self._lease_decoder = msgspec.json.Decoder(LeaseLine)
        self._leased_s = float("-inf")

    def poll(self) -> list[JournalLine]:
        """The new lines, sorted by time."""
        found = [*self._poll_journal(), *self._poll_leases()]
        return sorted(found, key=lambda line: line.monotonic_s)

    def _poll_leases(self) -> list[JournalLine]:
        try:
            with self._leases.open("rb") as file:
                number = os.fstat(file.fileno()).st_ino
                if number != self._leases_file:  # its older lines were folded: skips the lines that were given
                    self._leases_file, self._leases_offset = number, 0
                file.seek(self._leases_offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._leases_offset += len(whole)
        leases = [self._lease_decoder.decode(line).line for line in whole.splitlines()]
        new = [one for one in leases if isinstance(one.event, LeaseGranted) and one.monotonic_s > self._leased_s]
        if new:
            self._leased_s = new[-1].monotonic_s
        return new

    def _poll_journal(self) -> list[JournalLine]:
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return []
        if size <= self._offset:
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._offset += sum(map(len, whole))
        return [self._decoder.decode(line) for line in whole]


class AppliedTail:
    """Counts the committed batches while they come. Batches that a resumed run has lost are subtracted.

    records: one more than the number of the last record; samples: samples of all batches; first_s, last_s:
    (index, incarnation) of a worker -> when its first and its last batch were seen; newest_s: when any batch was last
    seen. Times are seconds of the monotonic clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records = 0
        self.samples = 0
        self.first_s: dict[tuple[int, int], float] = {}
        self.last_s: dict[tuple[int, int], float] = {}
        self.newest_s = 0.0

    def poll(self, now_s: float | None = None) -> None:
        """Counts the new batches. now_s: the time at which they count as seen; None: now."""
        header, records = self._look()
        if records < self.records or header.first > max(1, self.records):
            self.reread()
        if records <= self.records:
            return
        new = self._read(self.records, records)
        now_s = time.monotonic() if now_s is None else now_s
        self.records = records
        self.samples += int(new["samples"].sum())
        for pair in set(zip(new["worker"].tolist(), new["incarnation"].tolist(), strict=True)):
            if pair[1]:  # element 0 is the header, which has incarnation 0
                self.first_s.setdefault(pair, now_s)
                self.last_s[pair] = now_s
                self.newest_s = now_s

    def reread(self) -> None:
        """Counts the whole file again, because a resumed run has cut it, and forgets first_s and last_s, which
        are of the previous supervisor's workers."""
        self.records = self._look()[1]
        self.samples = int(self._read(0, self.records)["samples"].sum()) if self.records else 0
        if self._path.exists() and (fold := read_applied_content(self._path.parent).fold) is not None:
            self.samples += fold.samples
        self.first_s.clear()
        self.last_s.clear()

    def _look(self) -> tuple[AppliedHeader, int]:
        """The header of the file, and one more than the number of its last record."""
        try:
            with self._path.open("rb") as file:
                header = AppliedHeader.of(file.read(APPLIED_RECORD.itemsize))
                return header, header.end(os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return AppliedHeader(), 0

    def _read(self, first: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        with self._path.open("rb") as file:
            header = AppliedHeader.of(file.read(APPLIED_RECORD.itemsize))
            first = max(first, header.first if header.fold_slots else 0)
            file.seek(header.offset(first))
            content = file.read(max(0, stop - first) * APPLIED_RECORD.itemsize)
        whole = len(content) - len(content) % APPLIED_RECORD.itemsize
        return np.frombuffer(content[:whole], dtype=APPLIED_RECORD)
