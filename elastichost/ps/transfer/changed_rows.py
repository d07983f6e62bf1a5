"""Flags the rows that changed since they were copied, for tables that have buckets moving to another host."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from elastichost.arena.layout import ArenaLayout

__all__ = ["ChangedRows"]

Int64 = npt.NDArray[np.int64]


class ChangedRows:
    """One flag for each row number of a table that has a moving bucket; no cost while there is none.

    A page of flags takes memory only when a row in it is flagged. Rows of the table's other buckets are flagged, too;
    these flags are not used.
    """

    def __init__(self, layout: ArenaLayout) -> None:
        self._layout = layout
        self._flags: dict[int, npt.NDArray[np.bool_]] = {}
        self._followed: set[tuple[int, int]] = set()

    def follow(self, table: int, bucket: int, rows: int) -> None:
        """Starts to follow a bucket, with no row flagged. rows: the number of its rows."""
        self._followed.add((table, bucket))
        if table not in self._flags:
            self._flags[table] = _flags(self._layout.row_space(table))
        self.clear(table, bucket, slice(0, rows))

    def leave(self, table: int, bucket: int) -> None:
        """Stops following a bucket."""
        self._followed.discard((table, bucket))
        if not any(followed == table for followed, _ in self._followed):
            self._flags.pop(table, None)

    def changed(self, rows: Int64, bounds: Int64) -> None:
        """Flags row numbers int64 that were updated; table t has rows[bounds[t] : bounds[t + 1]]."""
        for table, flags in self._flags.items():
            flags[rows[bounds[table] : bounds[table + 1]]] = True

    def made(self, table: int, rows: Int64) -> None:
        """Flags row numbers int64 that were made just now, with initial weights."""
        flags = self._flags.get(table)
        if flags is not None:
            flags[rows] = True

    def clear(self, table: int, bucket: int, part: slice) -> None:
        """Clears the flags of these rows of the bucket: they are copied now."""
        first = self._layout.bucket_first_row(table, bucket)
        self._flags[table][first + part.start : first + part.stop] = False

    def mark(self, table: int, bucket: int, rows: Int64) -> None:
        """Flags rows of the bucket again (int64, counted within it): the copy of them did not arrive."""
        self._flags[table][self._layout.bucket_first_row(table, bucket) + rows] = True

    def take(self, table: int, bucket: int, part: slice, most: int) -> tuple[Int64, int]:
        """(flagged rows in this part of the bucket, int64, counted within it, at most `most`; the number of further
        ones). Clears the flags of the returned rows."""
        first = self._layout.bucket_first_row(table, bucket)
        flags = self._flags[table][first + part.start : first + part.stop]
        found = np.flatnonzero(flags)
        flags[found[:most]] = False
        return found[:most] + part.start, max(0, len(found) - most)


def _flags(rows: int) -> npt.NDArray[np.bool_]:
    """bool [rows], all False. A page takes memory when a flag in it is set. (numpy's own zeros request huge pages, so a
    bucket of a few rows would take 2 MB.)"""
    return np.frombuffer(mmap.mmap(-1, max(1, rows), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.bool_)
