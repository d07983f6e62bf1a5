"""RUN/applied.bin: the record of every committed batch, one fixed-size record each, in the order of the commits.

The record with number `n` is of the commit that made version `n + 1` of the dense vector. The dense owner writes it;
the supervisor of a resumed run reads it, and whoever checks that every sample was trained exactly once.

    slot 0            the header: `start` is the number of the first record that is kept, 0 when none was folded;
                      `stop` is the length of the fold in bytes, `lease_id` the number of slots it takes
    then              the fold: what the records before the first one come to (`AppliedFold`)
    then              the records

A file of which nothing was folded has record `n` in slot `n`. A file that is folded takes the place of the one before
in one step (a rename), so whoever reads opens it anew.
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
    "is_audited",
    "left_out_words",
    "micros_left_out",
    "read_applied",
    "read_applied_content",
    "read_applied_record",
]

APPLIED_FILE = "applied.bin"
AUDIT_VARIABLE = "ELASTICHOST_AUDIT"  # "1": whoever checks the run wants all its records, so none is folded
APPLIED_RECORD = np.dtype(
    [
        ("worker", "<u4"),
        ("incarnation", "<u4"),
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
RECORD_BYTES = APPLIED_RECORD.itemsize
AppliedRecords = npt.NDArray[np.void]
AppliedRecord = np.void  # one of them
NONE_LEFT_OUT = (0, 0)


class AppliedFold(msgspec.Struct, frozen=True):
    """What the records with numbers below `first` come to. committed: (worker, incarnation, sequence) of the last batch
    of each incarnation; spans: int64 [n, 4], the ranges (epoch, unit, start, stop) that are accounted for, of the
    newest epoch only: those before it are done; left_out: the records of steps from which micro-batches were left
    out."""

    first: int
    samples: int = 0
    lease_id: int = 0  # the highest
    committed: tuple[tuple[int, int, int], ...] = ()
    spans: bytes = b""
    left_out: bytes = b""

    def spans_array(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.spans, "<i8").reshape(-1, 4).astype(np.int64)

    def left_out_records(self) -> AppliedRecords:
        return np.frombuffer(self.left_out, APPLIED_RECORD)


@dataclass(frozen=True, slots=True)
class AppliedHeader:
    """Where records are. first: number of the first one."""

    first: int = 1
    fold_bytes: int = 0
    fold_slots: int = 0

    @classmethod
    def of(cls, content: bytes) -> AppliedHeader:
        """From the first bytes of the file."""
        if len(content) < RECORD_BYTES:
            return cls()
        slot = np.frombuffer(content, APPLIED_RECORD, count=1)[0]
        if slot["incarnation"] or not slot["start"]:
            return cls()
        return cls(int(slot["start"]), int(slot["stop"]), int(slot["lease_id"]))

    def offset(self, number: int) -> int:
        """Of a record, in bytes."""
        return (number - self.first + 1 + self.fold_slots) * RECORD_BYTES

    def end(self, size_bytes: int) -> int:
        """The number after the last whole record of a file of this size."""
        return max(self.first if self.fold_slots else 0, size_bytes // RECORD_BYTES - 1 - self.fold_slots + self.first)


@dataclass(frozen=True, slots=True)
class AppliedContent:
    """The whole file. records: those with the numbers first to first + n - 1."""

    first: int
    fold: AppliedFold | None
    records: AppliedRecords

    @property
    def end(self) -> int:
        """The number after the last record."""
        return self.first + len(self.records)


def is_audited(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process was started by somebody who checks the run."""
    return (os.environ if environ is None else environ).get(AUDIT_VARIABLE) == "1"


def applied_bytes(fold: AppliedFold, records: AppliedRecords) -> bytes:
    """A file with a fold. records: from number `fold.first` on."""
    content = msgspec.msgpack.encode(fold)
    slots = -(-len(content) // RECORD_BYTES)
    header = np.zeros(1, APPLIED_RECORD)
    header["start"], header["stop"], header["lease_id"] = fold.first, len(content), slots
    return header.tobytes() + content.ljust(slots * RECORD_BYTES, b"\0") + records.tobytes()


def read_applied_content(run_dir: Path) -> AppliedContent:
    """Records that are whole, and what those before them come to. Raises ProtocolError when the fold cannot be read."""
    path = run_dir / APPLIED_FILE
    content = path.read_bytes() if path.exists() else b""
    header = AppliedHeader.of(content)
    fold: AppliedFold | None = None
    if header.fold_slots:
        try:
            fold = msgspec.msgpack.decode(content[RECORD_BYTES:][: header.fold_bytes], type=AppliedFold)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"{path}: what its first records come to cannot be read: {error}") from error
    count = max(0, header.end(len(content)) - header.first)
    records = np.frombuffer(content, APPLIED_RECORD, count=count, offset=header.offset(header.first) if count else 0)
    return AppliedContent(header.first, fold, records)


def read_applied(run_dir: Path) -> AppliedRecords:
    """All records, dtype APPLIED_RECORD, record `n` at place `n`: the place before the first one is blank; empty when
    the run has none. One that is half written is left out. Raises ProtocolError when some are folded."""
    found = read_applied_content(run_dir)
    if found.fold is not None:
        raise ProtocolError(
            f"{run_dir / APPLIED_FILE}: the first {found.first - 1} records are folded into sums",
            hint=f"a run that is to be checked batch by batch is started with {AUDIT_VARIABLE}=1",
        )
    path = run_dir / APPLIED_FILE
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content, dtype=APPLIED_RECORD, count=len(content) // RECORD_BYTES)


def read_applied_record(run_dir: Path, number: int) -> AppliedRecord:
    """The record of the commit that made version `number + 1`; zeros when it is not there."""
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
    """A record's field `left_out` for these micro-batches of a step (0 to 127)."""
    bits = sum(1 << micro for micro in set(micros))
    return bits & (1 << 64) - 1, bits >> 64


def micros_left_out(record: AppliedRecord) -> tuple[int, ...]:
    """The micro-batches that were left out of a step."""
    low, high = (int(word) for word in record["left_out"])
    bits = low | high << 64
    return tuple(micro for micro in range(bits.bit_length()) if bits >> micro & 1)
