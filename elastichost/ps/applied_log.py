"""The dense owner's log of every committed batch: RUN/applied.bin, one fixed-size record per batch.

With the supervisor's journal it is the second, independent record from which exactly-once accounting is checked
(invariant L).

Rules
1. Only the dense owner writes. The record of a batch is written before the batch is committed, at the position that
   the version of the dense vector gives.
2. Without space for the record the batch is not committed (DiskFullError).
3. Records at and beyond the present version count for nothing.

A kill between the record and the commit leaves a record beyond the version. A successor that repeats the commit
overwrites it; so does a run that is resumed from a checkpoint. `take_over` cuts such records off, and empties the file
of a run that was rolled back to its beginning. When the file has grown to FOLD_BYTES, the older half of the records is
folded into what they sum up to; a rename puts the folded file in place, so a kill leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from elastichost.atomic_write import is_out_of_space, write_atomically, write_whole_at
from elastichost.errors import DiskFullError
from elastichost.wire.applied import (
    APPLIED_FILE,
    APPLIED_RECORD,
    AppliedHeader,
    applied_bytes,
    is_audited,
    read_applied,
    read_applied_content,
)
from elastichost.wire.applied_fold import fold_records

__all__ = ["APPLIED_RECORD", "AppliedLog", "read_applied"]

FOLD_BYTES = 16 << 20  # 200,000 batches


class AppliedLog:
    """The log file. The dense owner writes it from `take_over` on.

    problem: why the last record could not be written; "" if it was written. fold_bytes: the file size at which records
    are folded; 0: never, so that a check of the run finds every record.
    """

    def __init__(self, run_dir: Path, fold_bytes: int | None = None) -> None:
        self._run_dir, self._path = run_dir, run_dir / APPLIED_FILE
        self._fold_bytes = (0 if is_audited() else FOLD_BYTES) if fold_bytes is None else fold_bytes
        self._fold_beyond_bytes = self._fold_bytes
        self._record = np.zeros(1, dtype=APPLIED_RECORD)
        self._descriptor, self._header = -1, AppliedHeader()
        self._open()
        self.problem = ""

    def _open(self) -> None:
        """Opens the present file: another PS may have replaced it when it folded the records."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._header = AppliedHeader.of(os.pread(self._descriptor, APPLIED_RECORD.itemsize, 0))

    def write(self, number: int, values: tuple[int | float | tuple[int, int], ...]) -> None:
        """Writes the record of a commit. number: version of the dense vector before the commit; values: the fields of
        APPLIED_RECORD in order. Raises DiskFullError without space: the batch must not be committed then."""
        self._record[0] = values
        at = self._header.offset(number)
        try:
            write_whole_at(self._descriptor, self._record.tobytes(), at)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self.problem = error.strerror or str(error)
            raise DiskFullError(
                f"{self._path}: no space for the record of a commit ({self.problem})", hint="free some space"
            ) from error
        self.problem = ""
        if self._fold_bytes and at > self._fold_beyond_bytes:
            self._fold()

    def look_for_space(self, version: int) -> None:
        """Tests whether there is space for the next record, and updates `problem`: writes a record and cuts it off."""
        at = self._header.offset(version)
        try:
            write_whole_at(self._descriptor, bytes(APPLIED_RECORD.itemsize), at)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return
        os.ftruncate(self._descriptor, at)
        self.problem = ""

    def take_over(self, version: int) -> None:
        """Starts writing as the new dense owner. Keeps the records before `version` and cuts the others off: they were
        never committed, or a run that was resumed from a checkpoint has gone back behind them. A run that was rolled
        back to its beginning has gone back behind the folded records too: the file becomes empty."""
        self._open()
        if version < self._header.first:
            os.ftruncate(self._descriptor, 0)  # one step, so a kill leaves the old file or the empty one
            self._header, self._fold_beyond_bytes = AppliedHeader(), self._fold_bytes
            return
        end = self._header.offset(version)
        if os.fstat(self._descriptor).st_size > end:
            os.ftruncate(self._descriptor, end)

    def _fold(self) -> None:
        """Replaces the older half of the records by their sum. Without space on the disk it is tried again later."""
        self._fold_beyond_bytes += self._fold_bytes // 16
        found = read_applied_content(self._run_dir)
        half = len(found.records) // 2
        fold = fold_records(found.fold, found.first + half, found.records[:half])
        try:
            write_atomically(self._path, applied_bytes(fold, found.records[half:]))
        except OSError as error:
            if not is_out_of_space(error):
                raise
            return
        self._open()
        # The folded part takes space, too; with very many units it is most of the file.
        self._fold_beyond_bytes = self._fold_bytes + 2 * self._header.offset(self._header.first)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
