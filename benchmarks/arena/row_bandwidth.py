"""How near the row kernels are to the memory bandwidth of one core, for wide rows.

The ids are uniform over a table larger than the caches, one id a sample. Bytes that count: for a lookup the row read
and the output written; for an update the gradient read, the row read and written (row-wise Adagrad's one number a row
is left out). The bandwidth is that of a plain copy of large arrays, bytes read and written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from elastichost.arena.kernels import pool_bags
from elastichost.arena.rows import bag_kernels as entry
from elastichost.arena.rows import bag_updates as update
from elastichost.arena.rows.bag_chains import UpdateWorkspace

__all__ = ["DIMS", "Bandwidth", "bandwidth_benchmark"]

Float32 = npt.NDArray[np.float32]

DIMS = (64, 128, 256)
TABLE_BYTES = 256 << 20
IDS = 1 << 15
COPY = "copy"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """GB/s of lookups and of updates; of a plain copy both are its own."""

    lookup: float
    update: float


def bandwidth_benchmark(rounds: int, table_bytes: int = TABLE_BYTES) -> Benchmark[Bandwidth]:
    """One arm for each width of rows, and the plain copy."""
    rows = np.full(table_bytes // 4, 0.01, np.float32)
    target = np.zeros(table_bytes // 8, np.float32)
    arms: dict[str, Callable[[int], Bandwidth]] = {COPY: lambda _: _copied(rows, target)}
    for dim in DIMS:
        arms[_name(dim)] = _Rows(rows, dim).measure
    return Benchmark(
        title="row kernels and memory bandwidth, one core",
        arms=arms,
        rounds=Rounds(rounds),
        figures=(
            Figure[Bandwidth]("lookup", "GB/s", lambda one: one.lookup, form=".1f"),
            Figure[Bandwidth]("update", "GB/s", lambda one: one.update, form=".1f"),
        ),
        pairs=tuple(
            PairedFigure[Bandwidth](f"{_name(dim)}: {kind}, share of a copy's bandwidth", "", _name(dim), COPY, share)
            for dim in DIMS
            for kind, share in (("lookup", _lookup_share), ("update", _update_share))
        ),
    )


def _name(dim: int) -> str:
    return f"rows of {dim}"


def _lookup_share(rows: Bandwidth, copy: Bandwidth) -> float:
    return rows.lookup / copy.lookup


def _update_share(rows: Bandwidth, copy: Bandwidth) -> float:
    return rows.update / copy.update


def _copied(source: Float32, target: Float32) -> Bandwidth:
    began_s = time.perf_counter()
    np.copyto(target, source[: len(target)])
    speed = 2 * target.nbytes / (time.perf_counter() - began_s) / 1e9
    return Bandwidth(speed, speed)


class _Rows:
    """One embedding over the whole memory of `rows`, in rows of `dim` elements."""

    def __init__(self, rows: Float32, dim: int) -> None:
        self._rows, self._dim, self._count = rows, dim, len(rows) // dim
        self._state = np.zeros(self._count, np.float32)
        self._entries = np.zeros((1, entry.ENTRY_FIELDS), np.int64)
        for column, value in (
            (entry.BAGS, IDS),
            (entry.DIM, dim),
            (entry.PADDED_DIM, dim),
            (entry.STRIDE, dim),
        ):
            self._entries[0, column] = value
        self._updates = np.zeros((1, update.UPDATE_FIELDS), np.int64)
        self._updates[0, update.STOP_ENTRY], self._updates[0, update.OPTIMIZER] = 1, update.ROWWISE_ADAGRAD
        self._rates = np.array([[0.01, 1e-8, 0.0, 0.1, 1e-3]], np.float32)
        self._offsets = np.arange(IDS + 1)
        self._output = np.zeros(IDS * dim, np.float32)
        self._gradient = np.full(IDS * dim, 1e-3, np.float32)
        self._workspace = UpdateWorkspace(dim)
        self._workspace.reserve(IDS)

    def measure(self, number: int) -> Bandwidth:
        ids = np.random.default_rng(number).integers(0, self._count, IDS)
        began_s = time.perf_counter()
        pool_bags(self._rows, self._entries, ids, self._offsets, self._output)
        looked_up_s = time.perf_counter()
        update.update_rows(
            self._rows,
            self._state,
            self._entries,
            self._updates,
            self._rates,
            ids,
            self._offsets,
            self._gradient,
            *self._workspace.arrays(),
            np.uint64(1),
        )
        updated_s = time.perf_counter()
        line_bytes = 4 * self._dim
        return Bandwidth(
            2 * IDS * line_bytes / (looked_up_s - began_s) / 1e9,
            (IDS + 2 * len(np.unique(ids))) * line_bytes / (updated_s - looked_up_s) / 1e9,
        )
