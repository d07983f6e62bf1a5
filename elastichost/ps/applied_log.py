"""The PS' own record of every committed batch: RUN/applied.bin, one fixed-size record a batch.

With the supervisor's journal it is the second, independent record from which exact-once accounting is checked
(invariant L). A record is written before its batch is committed, at the position given by the version of
the dense vector: a successor that repeats a half-done commit overwrites the same record, and so does a run that is
resumed from a checkpoint. When the file has grown to FOLD_BYTES the older half of the records is folded.
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
    """Written by the dense owner only, from `take_over` on. `problem`: why the last record could not be written, ""
    when it was. fold_bytes: the size at which it is folded; 0: never, for whoever checks the run."""

    def __init__(self, run_dir: Path, fold_bytes: int | None = None) -> None:
        self._run_dir, self._path = run_dir, run_dir / APPLIED_FILE
        self._fold_bytes = (0 if is_audited() else FOLD_BYTES) if fold_bytes is None else fold_bytes
        self._fold_beyond_bytes = self._fold_bytes
        self._record = np.zeros(1, dtype=APPLIED_RECORD)
        self._descriptor, self._header = -1, AppliedHeader()
        self._open()
        self.problem = ""

    def _open(self) -> None:
        """The file there is now: another PS may have folded it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._header = AppliedHeader.of(os.pread(self._descriptor, APPLIED_RECORD.itemsize, 0))

    def write(self, number: int, values: tuple[int | float | tuple[int, int], ...]) -> None:
        """`number`: version of the dense vector before this commit; `values`: APPLIED_RECORD's fields in order. Raises
        DiskFullError when there is no space for it: the batch must not be committed now."""
        self._record[0] = values
        at = self._header.offset(number)
        try:
            write_whole_at(self._descriptor, self._record.tobytes(), at)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self.problem = error.strerror or str(error)
            raise DiskFullError(f"{self._path}: {self.problem}", hint="free some space") from error
        self.problem = ""
        if self._fold_bytes and at > self._fold_beyond_bytes:
            self._fold()

    def look_for_space(self, version: int) -> None:
        """Whether there is space for the next record now."""
        at = self._header.offset(version)
        try:
            write_whole_at(self._descriptor, bytes(APPLIED_RECORD.itemsize), at)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return
        os.ftruncate(self._descriptor, at)
        self.problem = ""

    def take_over(self, version: int) -> None:
        """Another PS may have written until now. Keeps the records before `version`: what lies beyond was never
        committed, or belongs to what a run resumed from a checkpoint has forgotten."""
        self._open()
        end = self._header.offset(version)
        if os.fstat(self._descriptor).st_size > end:
            os.ftruncate(self._descriptor, end)

    def _fold(self) -> None:
        """Replaces the older half of the records by what they come to. Without space it is tried again later."""
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
        # What is folded takes space, too: with very many units most of it.
        self._fold_beyond_bytes = self._fold_bytes + 2 * self._header.offset(self._header.first)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
