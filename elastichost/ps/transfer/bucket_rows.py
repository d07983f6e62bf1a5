"""Reads and writes the rows of one bucket in parts, as they travel when it moves to another host, with checksums.

A part is a list of arrays: for each embedding of the table its rows, then its optimizer state if it has one. Rows are
counted within the bucket.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.words import load_word
from elastichost.errors import ProtocolError
from elastichost.wire.codec import Frame

__all__ = ["ID_BYTES", "BucketRows", "checksum"]

Array = npt.NDArray[np.generic]
Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

ID_BYTES = 12  # id (8) and stamp (4) of a row of a dynamic table


def checksum(arrays: Iterable[Frame], before: int = 0) -> int:
    """crc32 of the concatenated arrays. before: the crc32 of what comes before them."""
    for array in arrays:
        before = zlib.crc32(cast(Buffer, array), before)
    return before


class BucketRows:
    """Reads and writes buckets of an arena. It does not check ownership; its callers do."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def is_bucket(self, table: int, bucket: int) -> bool:
        tables = self._arena.layout.tables
        return 0 <= table < len(tables) and 0 <= bucket < tables[table].buckets

    def is_filled(self, table: int, bucket: int) -> bool:
        """Whether this arena holds the bucket's rows."""
        return bool(load_word(self._arena.header(table, bucket), index.FILLED))

    def is_dynamic(self, table: int) -> bool:
        return self._arena.model.tables[table].is_dynamic

    def rows(self, table: int, bucket: int) -> int:
        """The number of rows ever handed out; of a fixed bucket the number of all its rows."""
        if self.is_dynamic(table):
            return int(self._arena.header(table, bucket)[index.NEXT_ROW])
        return self._arena.layout.bucket_rows(table, bucket)

    def heat(self, table: int, bucket: int) -> int:
        return int(self._arena.header(table, bucket)[index.HEAT])

    def row_bytes(self, table: int) -> int:
        """Bytes of one row: weights and optimizer state in all embeddings of the table."""
        return sum(
            e.bytes_per_element * e.padded_dim + 4 * e.state_floats_per_row
            for e in self._arena.model.embeddings_of(table)
        )

    def bucket_bytes(self, table: int, bucket: int) -> int:
        """Bytes to send when the bucket moves."""
        of_row = self.row_bytes(table) + ID_BYTES * self.is_dynamic(table)
        return self.rows(table, bucket) * of_row

    def _views(self, table: int, bucket: int) -> list[Array]:
        """Views of the bucket's rows in the order of a part's arrays."""
        layout, views = self._arena.layout, list[Array]()
        first, rows = layout.bucket_first_row(table, bucket), layout.bucket_rows(table, bucket)
        for e in self._arena.model.embeddings_of(table):
            state = self._arena.state_view(e.index)
            views.append(self._arena.rows_view(e.index)[first : first + rows])
            views += [] if state is None else [state[first : first + rows]]
        return views

    def read(self, table: int, bucket: int, which: slice | Int64) -> list[Array]:
        """Copies of these rows. Their memory must be allocated."""
        return [np.array(view[which], order="C") for view in self._views(table, bucket)]

    def write(self, table: int, bucket: int, which: slice | Int64, count: int, frames: Sequence[memoryview]) -> None:
        """Writes the arrays of `read` into these rows. count: their number; their memory must be allocated. Raises
        ProtocolError for a wrong number or size of arrays."""
        views = self._views(table, bucket)
        if len(frames) != len(views):
            raise ProtocolError(f"bucket {bucket} of table {table}: {len(frames)} arrays came, expected {len(views)}")
        for view, frame in zip(views, frames, strict=True):
            shape = (count, *view.shape[1:])
            size_bytes = int(np.prod(shape)) * view.itemsize
            if frame.nbytes != size_bytes:
                raise ProtocolError(
                    f"{count} rows of table {table} came as {frame.nbytes} bytes, expected {size_bytes} bytes"
                )
            view[which] = np.frombuffer(frame, view.dtype).reshape(shape)

    def ids(self, table: int, bucket: int, part: slice) -> tuple[Int64, UInt32]:
        """Copies of (ids int64, stamps uint32) of some rows of a dynamic table."""
        first = self._arena.layout.bucket_first_row(table, bucket)
        rows = slice(first + part.start, first + part.stop)
        return self._arena.ids_view(table)[rows].copy(), self._arena.seen_view(table)[rows].copy()

    def checksum(self, table: int, bucket: int, part: slice, ids: Iterable[Frame]) -> int:
        """crc32 of some rows, followed by their ids and stamps if the table has them."""
        return checksum(ids, checksum(view[part] for view in self._views(table, bucket)))
