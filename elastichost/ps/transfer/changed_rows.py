"""Which rows have changed since they were copied, of tables that have buckets on their way to another host."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from elastichost.arena.layout import ArenaLayout

__all__ = ["ChangedRows"]

Int64 = npt.NDArray[np.int64]


class ChangedRows:
    """A flag for each row number of such tables. Costs nothing while there are none.

    Memory is virtual until a row is flagged. Of the other buckets of such a table rows are flagged as well, in vain.
    """

    def __init__(self, layout: ArenaLayout) -> None:
        self._layout = layout
        self._flags: dict[int, npt.NDArray[np.bool_]] = {}
        self._followed: set[tuple[int, int]] = set()

    def follow(self, table: int, bucket: int, rows: int) -> None:
        """From now on, beginning with none changed. rows: so many the bucket has."""
        self._followed.add((table, bucket))
        if table not in self._flags:
            self._flags[table] = _flags(self._layout.row_space(table))
        self.clear(table, bucket, slice(0, rows))

    def leave(self, table: int, bucket: int) -> None:
        """Nobody wants to know any more."""
        self._followed.discard((table, bucket))
        if not any(followed == table for followed, _ in self._followed):
            self._flags.pop(table, None)

    def changed(self, rows: Int64, bounds: Int64) -> None:
        """Row numbers int64 that were updated; those of table t are rows[bounds[t] : bounds[t + 1]]."""
        for table, flags in self._flags.items():
            flags[rows[bounds[table] : bounds[table + 1]]] = True

    def made(self, table: int, rows: Int64) -> None:
        """Row numbers int64 that hold initial weights now."""
        flags = self._flags.get(table)
        if flags is not None:
            flags[rows] = True

    def clear(self, table: int, bucket: int, part: slice) -> None:
        """These rows of the bucket were copied just now."""
        first = self._layout.bucket_first_row(table, bucket)
        self._flags[table][first + part.start : first + part.stop] = False

    def mark(self, table: int, bucket: int, rows: Int64) -> None:
        """These rows of the bucket (int64, counted within it) were not copied after all."""
        self._flags[table][self._layout.bucket_first_row(table, bucket) + rows] = True

    def take(self, table: int, bucket: int, part: slice, most: int) -> tuple[Int64, int]:
        """(rows that have changed in this part of the bucket, counted within it, int64, at most so many; how many more
        there are). They count as copied now."""
        first = self._layout.bucket_first_row(table, bucket)
        flags = self._flags[table][first + part.start : first + part.stop]
        found = np.flatnonzero(flags)
        flags[found[:most]] = False
        return found[:most] + part.start, max(0, len(found) - most)


def _flags(rows: int) -> npt.NDArray[np.bool_]:
    """All False; a page takes memory when something in it is flagged. (numpy's own zeros ask for huge pages: a bucket
    of a few rows would take 2 MB.)"""
    return np.frombuffer(mmap.mmap(-1, max(1, rows), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.bool_)
