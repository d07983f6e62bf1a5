"""RUN/applied.bin: the record of every committed batch, one fixed-size record each, in the order of the commits.

The record at position `n` is of the commit that made version `n + 1` of the dense vector. The dense owner writes it;
the supervisor of a resumed run reads it, and whoever checks that every sample was trained exactly once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["APPLIED_FILE", "APPLIED_RECORD", "AppliedRecords", "read_applied"]

APPLIED_FILE = "applied.bin"
APPLIED_RECORD = np.dtype(
    [
        ("worker", "<u4"),
        ("life", "<u4"),
        ("sequence", "<u8"),  # 0: there is no such batch
        ("lease_id", "<u8"),
        ("epoch", "<u4"),
        ("unit", "<u4"),
        ("start", "<u8"),
        ("stop", "<u8"),
        ("samples", "<u4"),
        ("skipped", "<u4"),  # also of positions right before `start` that no other batch accounts for
        ("loss_sum", "<f8"),  # over the samples
    ]
)
AppliedRecords = npt.NDArray[np.void]


def read_applied(run_dir: Path) -> AppliedRecords:
    """All records, dtype APPLIED_RECORD; empty when the run has none. One that is half written is left out."""
    path = run_dir / APPLIED_FILE
    if not path.exists():
        return np.zeros(0, dtype=APPLIED_RECORD)
    content = path.read_bytes()
    return np.frombuffer(content, dtype=APPLIED_RECORD, count=len(content) // APPLIED_RECORD.itemsize)
