"""The rows of a simulated arena: their values, and a record of every update of each row.

An update is w = w / 2 + g in float32, so the value shows a wrong order or number of updates. The record of an update is
its gradient line, which names the batch it comes from, see `computing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from elastichost.arena.index.table import HEAT
from elastichost.errors import ProtocolError
from elastichost.sharding import bucket_count, rows_per_bucket
from elastichost.specs import ModelSpec
from tests.simulation.world import active

__all__ = ["WIDTH", "Row", "RowBook", "SimRowLines", "SimRowStore"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Bucket = tuple[int, int]

WIDTH = 4  # floats in a gradient line


@dataclass
class Row:
    """The weights of a row, and the record of its updates."""

    weights: Float32 = field(default_factory=lambda: np.zeros(WIDTH, np.float32))
    updates: list[tuple[float, ...]] = field(default_factory=list)

    def update(self, gradient: Float32, scale: float) -> None:
        self.weights = self.weights * np.float32(0.5) + gradient * np.float32(scale)
        self.updates.append((*gradient.tolist(), scale))


@dataclass
class RowBook:
    """All rows, by (table, row), and the index of the one PS that owns each bucket."""

    model: ModelSpec
    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    owner: dict[Bucket, int] = field(default_factory=dict)

    def row(self, table: int, row: int) -> Row:
        return self.rows.setdefault((table, row), Row())

    def bucket_of(self, table: int, row: int) -> Bucket:
        return table, row // rows_per_bucket(self.model.tables[table])


def _book() -> RowBook:
    book = active().book
    assert isinstance(book, RowBook)
    return book


def _items(rows: Int64, bounds: Int64) -> list[tuple[int, int]]:
    """(table, row) of each item."""
    return [
        (table, int(row))
        for table in range(len(bounds) - 1)
        for row in rows[bounds[table] : bounds[table + 1]].tolist()
    ]


class SimRowLines:
    """Stands for `ps.rows.row_lines.RowLines` of one PS. The PS may change rows of its predecessor before it has
    adopted them."""

    def __init__(self, server: int) -> None:
        self._server = server

    def floats(self, bounds: Int64) -> int:
        return WIDTH * int(bounds[-1])

    def sizes(self, bounds: Int64) -> tuple[int, int]:
        return self.floats(bounds), int(bounds[-1])

    def check(self, rows: Int64, bounds: Int64, floats: int) -> None:
        if floats != self.floats(bounds) or len(rows) != bounds[-1]:
            raise ProtocolError(f"gradients of {len(rows)} rows must be {self.floats(bounds)} floats, not {floats}")

    def pull(self, rows: Int64, bounds: Int64) -> Float32:
        if len(rows) == 0:
            return np.empty(0, np.float32)
        return np.concatenate([_book().row(*item).weights for item in _items(rows, bounds)])

    def save(self, rows: Int64, bounds: Int64, lines: Float32, states: Float32) -> None:
        for number, item in enumerate(_items(rows, bounds)):
            row = _book().row(*item)
            lines[WIDTH * number : WIDTH * (number + 1)] = row.weights
            states[number] = len(row.updates)

    def put_back(self, rows: Int64, bounds: Int64, lines: Float32, states: Float32) -> None:
        for number, item in enumerate(_items(rows, bounds)):
            row = _book().row(*item)
            row.weights = lines[WIDTH * number : WIDTH * (number + 1)].copy()
            del row.updates[int(states[number]) :]

    def add(self, gradients: Float32, bounds: Int64, places: Int64, sums: Float32, sum_bounds: Int64) -> None:
        lines = sums.reshape(-1, WIDTH)
        np.add.at(lines, places, gradients.reshape(-1, WIDTH))

    def update(
        self, rows: Int64, bounds: Int64, gradients: Float32, learning_rate_scale: float, step: int | None = None
    ) -> None:
        """Applies an update. A kill during it leaves some rows updated and others not."""
        world, book, items = active(), _book(), _items(rows, bounds)
        assert len(set(items)) == len(items), "an update names each row once"
        for number, item in enumerate(items):
            if number == (len(items) + 1) // 2:
                world.crash_point("ps.apply.midway")
            if book.owner.get(book.bucket_of(*item)) != self._server:
                world.violated(f"{world.running.name} changes row {item} of a bucket that it does not own")
            book.row(*item).update(gradients[WIDTH * number : WIDTH * (number + 1)], learning_rate_scale)


class SimRowStore:
    """Stands for `ps.rows.store.RowStore` with fixed tables, where a key is its row number."""

    def __init__(self, arena: Any, seed: int) -> None:
        process = active().running.process
        assert process is not None
        self._server = process.index
        self.lines = SimRowLines(process.index)
        self.needs_grace = False
        self._arena = arena
        self.on_made: Callable[[int, Int64], None] | None = None
        self._owned: set[Bucket] = set()

    def adopt(self, buckets: Iterable[Bucket], *, initialise: bool) -> None:
        owner = _book().owner
        for bucket in buckets:
            if owner.setdefault(bucket, self._server) != self._server:
                active().violated(f"server-{self._server} adopts bucket {bucket} of server-{owner[bucket]}")
            self._owned.add(bucket)

    def release(self, buckets: Iterable[Bucket]) -> None:
        for bucket in buckets:
            if _book().owner.pop(bucket, None) != self._server:
                active().violated(f"server-{self._server} releases bucket {bucket}, which it does not own")
            self._owned.discard(bucket)

    def owns(self, table: int, bucket: int) -> bool:
        return (table, bucket) in self._owned

    def rows_of(self, keys: Int64, bounds: Int64, create: bool, clock: int) -> Int64:
        for item in _items(keys, bounds):
            bucket = _book().bucket_of(*item)
            if bucket not in self._owned:
                raise ProtocolError(f"server-{self._server} does not own row {item}")
            self._arena.header(*bucket)[HEAT] += 1
        return keys.copy()

    def evict_after(self, table: int) -> int:
        return 0

    def confirm_grace(self) -> None:
        """Does nothing: no row is ever evicted."""

    def copy_bytes(self) -> int:
        return 0

    def snapshot_bucket(self, table: int, bucket: int, copy: Callable[[Any], Any] = np.copy) -> list[Any]:
        """One block: the bucket's rows as objects."""
        if (table, bucket) not in self._owned:
            active().violated(f"server-{self._server} copies bucket {(table, bucket)}, which it does not own")
        found = [
            (key[1], row.weights.tobytes(), tuple(row.updates))
            for key, row in sorted(_book().rows.items())
            if _book().bucket_of(*key) == (table, bucket)
        ]
        array = np.empty(len(found), dtype=object)
        array[:] = found
        return [("rows", table, array)]


def all_buckets(model: ModelSpec) -> Sequence[Bucket]:
    return [(table.index, bucket) for table in model.tables for bucket in range(bucket_count(table))]
