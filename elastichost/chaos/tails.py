"""Readers of the two records of a run while they grow: the supervisor's journal, and the log of applied batches."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from elastichost.runs.events import JournalLine, LeaseGranted
from elastichost.runs.journal import LEASES_FILE, LeaseLine
from elastichost.wire.applied import applied_range, read_applied_content, read_applied_range

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

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.records = 1
        self.samples = 0
        self.first_s: dict[tuple[int, int], float] = {}
        self.last_s: dict[tuple[int, int], float] = {}
        self.newest_s = 0.0

    def poll(self, now_s: float | None = None) -> None:
        """Counts the new batches. now_s: the time at which they count as seen; None: now."""
        present = applied_range(self._run_dir)
        if present.stop < self.records or present.start > self.records:
            self.reread()
        numbers = range(self.records, present.stop)
        if not numbers:
            return
        new = read_applied_range(self._run_dir, numbers)
        now_s = time.monotonic() if now_s is None else now_s
        self.records = numbers.stop
        self.samples += int(new["samples"].sum())
        for pair in set(zip(new["worker"].tolist(), new["incarnation"].tolist(), strict=True)):
            self.first_s.setdefault(pair, now_s)
            self.last_s[pair] = now_s
            self.newest_s = now_s

    def reread(self) -> None:
        """Counts the whole file again, because a resumed run has cut it, and forgets first_s and last_s, which
        are of the previous supervisor's workers."""
        found = read_applied_content(self._run_dir)
        self.records = found.end
        self.samples = int(found.records["samples"].sum()) + (found.fold.samples if found.fold is not None else 0)
        self.first_s.clear()
        self.last_s.clear()
