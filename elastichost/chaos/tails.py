"""Reading the two records of a run while they grow: the supervisor's journal, and the log of applied batches."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np

from elastichost.metrics import JournalEvent
from elastichost.wire.applied import APPLIED_RECORD

__all__ = ["AppliedTail", "JournalTail"]


class JournalTail:
    """Complete lines of journal.jsonl, each given once. A supervisor that takes over a journal cuts an unfinished
    last line off; what was given stays."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._decoder = msgspec.json.Decoder(JournalEvent)

    def poll(self) -> list[JournalEvent]:
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
    """Committed batches as they come. `poll` notes the moment at which each life's first batch was seen.
    `samples` is of the surviving lineage: what a resumed run has forgotten is forgotten here."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records = 0
        self.samples = 0
        self.first_s: dict[tuple[int, int], float] = {}
        self.last_s: dict[tuple[int, int], float] = {}
        self.newest_s = 0.0

    def poll(self, now_s: float | None = None) -> None:
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return
        records = size // APPLIED_RECORD.itemsize
        if records < self.records:
            self.reread()
        if records == self.records:
            return
        new = self._read(self.records, records)
        now_s = time.monotonic() if now_s is None else now_s
        self.records = records
        self.samples += int(new["samples"].sum())
        for pair in set(zip(new["worker"].tolist(), new["life"].tolist(), strict=True)):
            if pair[1]:  # the place before the first version is blank
                self.first_s.setdefault(pair, now_s)
                self.last_s[pair] = now_s
                self.newest_s = now_s

    def reread(self) -> None:
        """Counts the file anew: a resumed run has cut it. Lives are told apart from those of the run before."""
        self.records = self._path.stat().st_size // APPLIED_RECORD.itemsize if self._path.exists() else 0
        self.samples = int(self._read(0, self.records)["samples"].sum()) if self.records else 0
        self.first_s.clear()
        self.last_s.clear()

    def _read(self, first: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        with self._path.open("rb") as file:
            file.seek(first * APPLIED_RECORD.itemsize)
            content = file.read((stop - first) * APPLIED_RECORD.itemsize)
        whole = len(content) - len(content) % APPLIED_RECORD.itemsize
        return np.frombuffer(content[:whole], dtype=APPLIED_RECORD)
