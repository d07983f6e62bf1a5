"""RUN/applied.bin: the record of every committed batch, one fixed-size record each, in the order of the commits.

The record at position `n` is of the commit that made version `n + 1` of the dense vector. The dense owner writes it;
the supervisor of a resumed run reads it, and whoever checks that every sample was trained exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = [
    "APPLIED_FILE",
    "APPLIED_RECORD",
    "NONE_LEFT_OUT",
    "AppliedRecord",
    "AppliedRecords",
    "left_out_words",
    "micros_left_out",
    "read_applied",
    "read_applied_record",
]

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
        ("left_out", "<u8", (2,)),  # sync mode: a bit for each micro-batch that is skipped because workers died on it
    ]
)
AppliedRecords = npt.NDArray[np.void]
AppliedRecord = np.void  # one of them
NONE_LEFT_OUT = (0, 0)


def read_applied(run_dir: Path) -> AppliedRecords:
    """All records, dtype APPLIED_RECORD; empty when the run has none. One that is half written is left out."""
    path = run_dir / APPLIED_FILE
    if not path.exists():
        return np.zeros(0, dtype=APPLIED_RECORD)
    content = path.read_bytes()
    return np.frombuffer(content, dtype=APPLIED_RECORD, count=len(content) // APPLIED_RECORD.itemsize)


def read_applied_record(run_dir: Path, number: int) -> AppliedRecord:
    """The record of the commit that made version `number + 1`; zeros when it is not there."""
    with (run_dir / APPLIED_FILE).open("rb") as file:
        file.seek(number * APPLIED_RECORD.itemsize)
        content = file.read(APPLIED_RECORD.itemsize)
    found: AppliedRecord = np.frombuffer(content.ljust(APPLIED_RECORD.itemsize, b"\0"), dtype=APPLIED_RECORD)[0]
    return found


def left_out_words(micros: Iterable[int]) -> tuple[int, int]:
    """A record's field `left_out` for these micro-batches of a step (0 to 127)."""
    bits = sum(1 << micro for micro in set(micros))
    return bits & (1 << 64) - 1, bits >> 64


def micros_left_out(record: AppliedRecord) -> tuple[int, ...]:
    """The micro-batches that were left out of a step."""
    low, high = (int(word) for word in record["left_out"])
    bits = low | high << 64
    return tuple(micro for micro in range(bits.bit_length()) if bits >> micro & 1)
