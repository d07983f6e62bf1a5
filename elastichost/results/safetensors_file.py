"""Writes a safetensors file as a stream. The library's writer needs all tensors in memory at once.

The format: an unsigned little-endian 64-bit length; JSON of that length (name -> dtype, shape, data_offsets), padded
with spaces to a multiple of eight; then the bytes of the tensors, one after another.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from elastichost.errors import CheckpointError
from elastichost.results.assemble import TensorSource

__all__ = ["write_safetensors"]

DTYPE_NAMES = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def write_safetensors(path: Path, sources: Sequence[TensorSource], metadata: Mapping[str, str]) -> int:
    """Writes and fsyncs `path`. Returns its size in bytes. Raises CheckpointError when the chunks of a source have
    another total size than its shape; FileExistsError, OSError."""
    entries: dict[str, _Entry | Mapping[str, str]] = {"__metadata__": metadata}
    offset = 0
    for source in sources:
        entries[source.name] = _Entry(DTYPE_NAMES[source.dtype], source.shape, (offset, offset + source.nbytes))
        offset += source.nbytes
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        for source in sources:
            written = sum(file.write(_bytes(chunk)) for chunk in source.chunks())
            if written != source.nbytes:
                raise CheckpointError(f"{path}: {source.name} has {written} bytes instead of {source.nbytes}")
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _bytes(chunk: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview:
    little = np.ascontiguousarray(chunk, dtype=chunk.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data
