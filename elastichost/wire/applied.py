"""RUN/applied.bin: one record of fixed size for every committed batch, in the order of the commits.

Record `n` belongs to the commit that made version `n + 1` of the dense vector. The dense owner writes the file. The
supervisor of a resumed run reads it, and so do checks that every sample was trained exactly once.

The file consists of slots of RECORD_BYTES bytes:

    slot 0            the header. `start`: number of the first record that is kept, 0 when no record was folded. `stop`:
                      length of the fold in bytes. `lease_id`: number of slots of the fold
    next slots        the fold: the sums of all records before the first kept one (`AppliedFold`, msgpack)
    next slots        the records

A file without a fold has record `n` in slot `n`. To fold records, the dense owner writes a new file and renames it over
the old one, so a reader opens the file again for each read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError

__all__ = [
    "APPLIED_FILE",
    "APPLIED_RECORD",
    "AUDIT_VARIABLE",
    "NONE_LEFT_OUT",
    "AppliedContent",
    "AppliedFold",
    "AppliedHeader",
    "AppliedRecord",
    "AppliedRecords",
    "applied_bytes",
    "applied_range",
    "is_audited",
    "left_out_words",
    "micros_left_out",
    "read_applied",
    "read_applied_content",
    "read_applied_range",
    "read_applied_record",
]

APPLIED_FILE = "applied.bin"
AUDIT_VARIABLE = "ELASTICHOST_AUDIT"  # "1": all records are kept for a check of the run, so none is folded
APPLIED_RECORD = np.dtype(
    [
        ("worker", "<u4"),
        ("incarnation", "<u4"),
        ("sequence", "<u8"),  # 0: the slot holds no batch
        ("lease_id", "<u8"),
        ("epoch", "<u4"),
        ("unit", "<u4"),
        ("start", "<u8"),
        ("stop", "<u8"),
        ("samples", "<u4"),
        ("skipped", "<u4"),  # includes positions right before `start` that belong to no other batch
        ("loss_sum", "<f8"),  # over the samples
        ("left_out", "<u8", (2,)),  # sync mode: a bit for each micro-batch that was skipped because workers died on it
    ]
)
RECORD_BYTES = APPLIED_RECORD.itemsize
AppliedRecords = npt.NDArray[np.void]
AppliedRecord = np.void  # one element of AppliedRecords
NONE_LEFT_OUT = (0, 0)


class AppliedFold(msgspec.Struct, frozen=True):
    """The sums of the records with numbers below `first`.

    committed: (worker, incarnation, sequence) of the last batch of each incarnation. spans: int64 [n, 4], the ranges
    (epoch, unit, start, stop) that the batches account for, of the newest epoch alone, because all earlier epochs are
    complete. left_out: the records of steps from which micro-batches were left out.
    """

    first: int
    samples: int = 0
    lease_id: int = 0  # the highest one
    committed: tuple[tuple[int, int, int], ...] = ()
    spans: bytes = b""
    left_out: bytes = b""

    def spans_array(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.spans, "<i8").reshape(-1, 4).astype(np.int64)

    def left_out_records(self) -> AppliedRecords:
        return np.frombuffer(self.left_out, APPLIED_RECORD)


@dataclass(frozen=True, slots=True)
class AppliedHeader:
    """The header of applied.bin, which gives the offsets of records. first: number of the first kept record."""

    first: int = 1
    fold_bytes: int = 0
    fold_slots: int = 0

    @classmethod
    def of(cls, content: bytes) -> AppliedHeader:
        """Reads the header from the first bytes of the file."""
        if len(content) < RECORD_BYTES:
            return cls()
        slot = np.frombuffer(content, APPLIED_RECORD, count=1)[0]
        if slot["incarnation"] or not slot["start"]:
            return cls()
        return cls(int(slot["start"]), int(slot["stop"]), int(slot["lease_id"]))

    def offset(self, number: int) -> int:
        """Where the record begins in the file, in bytes."""
        return (number - self.first + 1 + self.fold_slots) * RECORD_BYTES

    def end(self, size_bytes: int) -> int:
        """One more than the number of the last complete record in a file of this size."""
        return max(self.first if self.fold_slots else 0, size_bytes // RECORD_BYTES - 1 - self.fold_slots + self.first)


@dataclass(frozen=True, slots=True)
class AppliedContent:
    """The content of applied.bin. records: the kept records, with the numbers first to first + n - 1."""

    first: int
    fold: AppliedFold | None
    records: AppliedRecords

    @property
    def end(self) -> int:
        """One more than the number of the last record."""
        return self.first + len(self.records)


def is_audited(environ: Mapping[str, str] | None = None) -> bool:
    """Whether all records are kept for a check of the run (ELASTICHOST_AUDIT=1)."""
    return (os.environ if environ is None else environ).get(AUDIT_VARIABLE) == "1"


def applied_bytes(fold: AppliedFold, records: AppliedRecords) -> bytes:
    """The content of a file with a fold. records: those from number `fold.first` on."""
    content = msgspec.msgpack.encode(fold)
    slots = -(-len(content) // RECORD_BYTES)
    header = np.zeros(1, APPLIED_RECORD)
    header["start"], header["stop"], header["lease_id"] = fold.first, len(content), slots
    return header.tobytes() + content.ljust(slots * RECORD_BYTES, b"\0") + records.tobytes()


def read_applied_content(run_dir: Path) -> AppliedContent:
    """Reads the complete records and the fold. Raises ProtocolError when the fold cannot be read."""
    path = run_dir / APPLIED_FILE
    content = path.read_bytes() if path.exists() else b""
    header = AppliedHeader.of(content)
    fold: AppliedFold | None = None
    if header.fold_slots:
        try:
            fold = msgspec.msgpack.decode(content[RECORD_BYTES:][: header.fold_bytes], type=AppliedFold)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"{path}: the sums of its first records cannot be read: {error}") from error
    count = max(0, header.end(len(content)) - header.first)
    records = np.frombuffer(content, APPLIED_RECORD, count=count, offset=header.offset(header.first) if count else 0)
    return AppliedContent(header.first, fold, records)


def read_applied(run_dir: Path) -> AppliedRecords:
    """All slots of a file without a fold, dtype APPLIED_RECORD: record `n` is element `n`, and element 0 is the header.

    Empty when the run has no file. An incomplete last record is left out. Raises ProtocolError when records are folded.
    """
    found = read_applied_content(run_dir)
    if found.fold is not None:
        raise ProtocolError(
            f"{run_dir / APPLIED_FILE}: the first {found.first - 1} records are folded into sums",
            hint=f"start the run with {AUDIT_VARIABLE}=1 to keep the record of every batch",
        )
    path = run_dir / APPLIED_FILE
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content, dtype=APPLIED_RECORD, count=len(content) // RECORD_BYTES)


def applied_range(run_dir: Path) -> range:
    """The numbers of the complete records that the file has now; empty when the run has no file."""
    try:
        with (run_dir / APPLIED_FILE).open("rb") as file:
            header = AppliedHeader.of(file.read(RECORD_BYTES))
            return range(header.first, header.end(os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        return range(1, 1)


def read_applied_range(run_dir: Path, numbers: range) -> AppliedRecords:
    """The complete records with these numbers that the file has; the first ones may be folded. Raises OSError."""
    with (run_dir / APPLIED_FILE).open("rb") as file:
        header = AppliedHeader.of(file.read(RECORD_BYTES))
        first = max(numbers.start, header.first)
        file.seek(header.offset(first))
        content = file.read(max(0, numbers.stop - first) * RECORD_BYTES)
    return np.frombuffer(content, APPLIED_RECORD, count=len(content) // RECORD_BYTES)


def read_applied_record(run_dir: Path, number: int) -> AppliedRecord:
    """The record of the commit that made version `number + 1`; zeros when the file does not have it."""
    with (run_dir / APPLIED_FILE).open("rb") as file:
        header = AppliedHeader.of(file.read(RECORD_BYTES))
        content = b""
        if number >= header.first:
            file.seek(header.offset(number))
            content = file.read(RECORD_BYTES)
    whole = content if len(content) == RECORD_BYTES else b""
    found: AppliedRecord = np.frombuffer(whole.ljust(RECORD_BYTES, b"\0"), dtype=APPLIED_RECORD)[0]
    return found


def left_out_words(micros: Iterable[int]) -> tuple[int, int]:
    """The value of a record's field `left_out` for these micro-batches (0 to 127) of a step."""
    bits = sum(1 << micro for micro in set(micros))
    return bits & (1 << 64) - 1, bits >> 64


def micros_left_out(record: AppliedRecord) -> tuple[int, ...]:
    """The micro-batches that were left out of the record's step, ascending."""
    low, high = (int(word) for word in record["left_out"])
    bits = low | high << 64
    return tuple(micro for micro in range(bits.bit_length()) if bits >> micro & 1)
