"""Blocks: arrays as raw little-endian bytes in one file. Each begins at a multiple of 64 bytes and has a crc32."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.checkpoint.files import (
    USE_ANOTHER,
    check_block_file_name,
    create_exclusively,
    disk_error,
    open_for_reading,
    sync_directory,
)
from elastichost.errors import CheckpointError

__all__ = [
    "ALIGNMENT_BYTES",
    "Array",
    "BlockKey",
    "BlockKind",
    "BlockRecord",
    "BlockWriter",
    "check_record",
    "read_block",
    "read_block_into",
]

ALIGNMENT_BYTES = 64
DTYPES = ("<f4", "<f8", "<i4", "<i8", "<u2", "<u4", "<u8", "|u1")
MAX_BLOCK_BYTES = 1 << 50

BlockKind = Literal["rows", "state", "ids", "seen", "dense", "dense_state"]
BlockKey = tuple[BlockKind, int, int]
Array = npt.NDArray[Any]


class BlockRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest's record of one array in a block file, by kind:

    rows         float32 [rows of the bucket, padded_dim], or bfloat16 as uint16; owner: embedding index
    state        float32 [rows of the bucket] or [rows of the bucket, padded_dim]; owner: embedding index
    ids, seen    int64, uint32 [rows of the bucket]; owner: index of a dynamic table; seen 0: a free row
    dense        float32 [dense.elements]; owner and bucket 0
    dense_state  float32 [2 * dense.parameters], the dense optimizer's state; owner and bucket 0
    """

    kind: BlockKind
    owner: int
    bucket: int
    file: str
    offset: int  # bytes
    dtype: str  # numpy's name of the little-endian type, such as "<f4"
    shape: tuple[int, ...]
    crc32: int

    @property
    def key(self) -> BlockKey:
        return self.kind, self.owner, self.bucket

    @property
    def nbytes(self) -> int:
        total = np.dtype(self.dtype).itemsize
        for extent in self.shape:
            total *= extent
        return total

    def __str__(self) -> str:
        return f"block {self.kind} {self.owner} bucket {self.bucket}"


def check_record(directory: Path, record: BlockRecord) -> None:
    """Raises CheckpointError for a record that no BlockWriter can have written. Readers call it before they allocate
    memory for the block."""
    check_block_file_name(record.file, directory)
    if record.dtype not in DTYPES or record.offset < 0 or record.offset % ALIGNMENT_BYTES:
        raise CheckpointError(
            f"{directory / record.file}: {record} has dtype {record.dtype} and offset {record.offset}; a dtype is "
            f"one of {', '.join(DTYPES)}, an offset is a multiple of {ALIGNMENT_BYTES}"
        )
    if any(extent < 0 for extent in record.shape) or record.nbytes > MAX_BLOCK_BYTES:
        raise CheckpointError(f"{directory / record.file}: {record} has the impossible shape {record.shape}")


def _as_bytes(array: Array) -> memoryview:
    """The bytes of a C-contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


class BlockWriter:
    """Writes one block file, as a context manager. On a normal exit the file is on disk (fsync). On an exit by an error
    the file is removed. Raises CheckpointError, which names the file, when it exists already or cannot be written."""

    def __init__(self, path: Path) -> None:
        check_block_file_name(path.name, path.parent)
        self.path = path
        self._records: list[BlockRecord] = []
        self._offset = 0
        try:
            self._file = os.fdopen(create_exclusively(path), "wb")
        except OSError as error:
            raise disk_error("cannot create", path, error) from error

    @property
    def records(self) -> tuple[BlockRecord, ...]:
        return tuple(self._records)

    def add(self, kind: BlockKind, owner: int, bucket: int, array: Array) -> BlockRecord:
        """Appends one array of any shape. Raises ValueError for a dtype that is not in DTYPES."""
        block = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
        if block.dtype.str not in DTYPES:
            raise ValueError(f"dtype {block.dtype.str} is not supported in checkpoints; use {', '.join(DTYPES)}")
        content = _as_bytes(block)
        record = BlockRecord(
            kind=kind,
            owner=owner,
            bucket=bucket,
            file=self.path.name,
            offset=self._offset,
            dtype=block.dtype.str,
            shape=tuple(block.shape),
            crc32=zlib.crc32(content),
        )
        padding_bytes = -len(content) % ALIGNMENT_BYTES
        try:
            self._file.write(content)
            self._file.write(bytes(padding_bytes))
        except OSError as error:
            raise disk_error("cannot write", self.path, error) from error
        self._offset += len(content) + padding_bytes
        self._records.append(record)
        return record

    def __enter__(self) -> BlockWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync_directory(self.path.parent)
        except OSError as failure:
            self._abandon()
            raise disk_error("cannot write", self.path, failure) from failure

    def _abandon(self) -> None:
        # Closing writes the rest of the buffer, which may fail again; the file is removed in any case.
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)


def read_block(directory: Path, record: BlockRecord) -> Array:
    """Reads the array of one record. Raises CheckpointError, which names file and block, when the bytes are not those
    that were written."""
    check_record(directory, record)
    out = np.empty(record.shape, dtype=np.dtype(record.dtype))
    read_block_into(directory, record, out)
    return out


def read_block_into(directory: Path, record: BlockRecord, out: Array) -> None:
    """Reads the array of one record into `out`, a C-contiguous array. Raises ValueError when `out` has another dtype or
    shape than the record, and CheckpointError as `read_block` does."""
    check_record(directory, record)
    if out.shape != record.shape or out.dtype != np.dtype(record.dtype) or not out.flags.c_contiguous:
        raise ValueError(f"{record} is {record.dtype} {record.shape}; the target is {out.dtype.str} {out.shape}")
    path = directory / record.file
    content = _as_bytes(out)
    try:
        with os.fdopen(open_for_reading(path), "rb") as file:
            file.seek(record.offset)
            bytes_read = file.readinto(content)
    except OSError as error:
        raise disk_error("cannot read", path, error) from error
    if bytes_read != record.nbytes:
        raise CheckpointError(
            f"{path}: {record} is cut short: the file has {bytes_read} of its {record.nbytes} bytes", hint=USE_ANOTHER
        )
    if zlib.crc32(content) != record.crc32:
        raise CheckpointError(f"{path}: {record} is corrupt (its crc32 differs)", hint=USE_ANOTHER)
