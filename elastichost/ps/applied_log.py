"""The PS' own record of every committed batch: RUN/applied.bin, one fixed-size record a batch.

With the supervisor's journal it is the second, independent record from which exact-once accounting is checked
(invariant L). A record is written before its batch is committed, at the position given by the version of
the dense vector: a successor that repeats a half-done commit overwrites the same record, and so does a run that is
resumed from a checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from elastichost.wire.applied import APPLIED_FILE, APPLIED_RECORD, read_applied

__all__ = ["APPLIED_RECORD", "AppliedLog", "read_applied"]


class AppliedLog:
    """Written by the dense owner only."""

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / APPLIED_FILE
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._record = np.zeros(1, dtype=APPLIED_RECORD)

    def write(self, number: int, values: tuple[int | float | tuple[int, int], ...]) -> None:
        """`number`: version of the dense vector before this commit; `values`: APPLIED_RECORD's fields in order."""
        self._record[0] = values
        content, at = self._record.tobytes(), number * APPLIED_RECORD.itemsize
        while content:  # a disk that is nearly full may take a part
            written = os.pwrite(self._descriptor, content, at)
            content, at = content[written:], at + written

    def truncate(self, number: int) -> None:
        """Keeps the first `number` records. What lies beyond the version was never committed, or belongs to what a
        run resumed from a checkpoint has forgotten."""
        if os.fstat(self._descriptor).st_size > number * APPLIED_RECORD.itemsize:
            os.ftruncate(self._descriptor, number * APPLIED_RECORD.itemsize)

    def close(self) -> None:
        os.close(self._descriptor)
