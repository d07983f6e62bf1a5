"""A batch of samples as bytes: a header of 8-byte words, then its arrays at aligned places. Pure.

The header says what the record is and how long each array is; the arrays follow in the order of `_arrays`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from elastichost.datasets.api import SampleBatch

__all__ = ["Kind", "Record", "batch_record_bytes", "note_of", "read_batch", "read_record", "write_batch", "write_note"]

ALIGNMENT_BYTES = 64
HEADER_BYTES = 128
_WORDS = HEADER_BYTES // 8

Bytes: TypeAlias = npt.NDArray[np.uint8]


class Kind(IntEnum):
    """batch: samples. end: an order has no more batches. failed: an order ended with an error, whose report follows.
    moved: the reader goes on in its next ring."""

    BATCH = 1
    END = 2
    FAILED = 3
    MOVED = 4


@dataclass(frozen=True, slots=True)
class Record:
    """The facts of a record: what it is, and the order that it belongs to."""

    kind: Kind
    round: int
    order: int


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _arrays(
    size: int, dense: int, labels: int, keys: int, lengths: int, weights: int, truth: int
) -> tuple[tuple[type[Any], tuple[int, ...]], ...]:
    """Type and shape of each array. weights, truth: 0 or 1."""
    return (
        (np.float32, (size, dense)),
        (np.float32, (size, labels)),
        (np.int64, (keys,)),
        (np.int32, (lengths,)),
        (np.float32, (size * weights,)),
        (np.float32, (size * truth,)),
    )


def _shape(batch: SampleBatch) -> tuple[int, int, int, int, int, int, int]:
    columns = batch.dense.shape[1], batch.labels.shape[1]
    optional = int(batch.weights is not None), int(batch.truth is not None)
    return (batch.size, *columns, len(batch.keys), len(batch.lengths), *optional)


def batch_record_bytes(batch: SampleBatch) -> int:
    """The bytes of a batch's record."""
    return HEADER_BYTES + sum(
        _aligned(np.dtype(kind).itemsize * int(np.prod(shape))) for kind, shape in _arrays(*_shape(batch))
    )


def write_batch(into: Bytes, batch: SampleBatch, record: Record) -> None:
    """Writes the record of a batch. into: uint8, at least `batch_record_bytes`."""
    shape = _shape(batch)
    facts = (batch.unit, batch.start, batch.stop, batch.skipped, int(batch.is_single_valued))
    _header(into)[:15] = (record.kind, record.round, record.order, *facts, *shape)
    given = (batch.dense, batch.labels, batch.keys, batch.lengths, batch.weights, batch.truth)
    at = HEADER_BYTES
    for (kind, of), array in zip(_arrays(*shape), given, strict=True):
        size = np.dtype(kind).itemsize * int(np.prod(of))
        if array is not None and size:
            np.copyto(into[at : at + size].view(kind).reshape(of), array, casting="same_kind")
        at += _aligned(size)


def read_record(from_: Bytes) -> Record:
    """What a record is."""
    kind, number, order = _header(from_)[:3].tolist()
    return Record(Kind(kind), number, order)


def read_batch(from_: Bytes) -> SampleBatch:
    """The batch of a record, in arrays of its own."""
    unit, start, stop, skipped, is_single_valued, *shape = _header(from_)[3:15].tolist()
    at, arrays = HEADER_BYTES, []
    for kind, of in _arrays(*shape):
        size = np.dtype(kind).itemsize * int(np.prod(of))
        arrays.append(from_[at : at + size].view(kind).reshape(of).copy())
        at += _aligned(size)
    dense, labels, keys, lengths, weights, truth = arrays
    return SampleBatch(
        unit=unit,
        start=start,
        stop=stop,
        size=shape[0],
        skipped=skipped,
        dense=dense,
        keys=keys,
        lengths=lengths,
        labels=labels,
        weights=weights if shape[5] else None,
        truth=truth if shape[6] else None,
        is_single_valued=bool(is_single_valued),
    )


def write_note(into: Bytes, record: Record, note: bytes = b"") -> None:
    """Writes a record without samples. note: cut to the room that there is."""
    note = note[: len(into) - HEADER_BYTES]
    _header(into)[:4] = (record.kind, record.round, record.order, len(note))
    into[HEADER_BYTES : HEADER_BYTES + len(note)] = np.frombuffer(note, dtype=np.uint8)


def note_of(from_: Bytes) -> bytes:
    """The note of a record without samples."""
    size = int(_header(from_)[3])
    return from_[HEADER_BYTES : HEADER_BYTES + size].tobytes()


def _header(record: Bytes) -> npt.NDArray[np.int64]:
    return record[:HEADER_BYTES].view(np.int64)
