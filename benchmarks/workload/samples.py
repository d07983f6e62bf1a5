"""The samples that benchmarks train: 13 numbers a sample, and Zipf-distributed ids for each table of a shape.

Every table has its own exponent (1.05 to 1.2) and its own order of ids, so that hot rows are scattered. The samples are
written twice: as Parquet for elastichost, and as one file of batches, which the peers map into memory, so that reading
costs them nothing. A batch of that file is its ids int64 [tables, B, ids] (feature-major, as in a KeyedJaggedTensor),
dense float32 [B, 13] and labels float32 [B], one after another as raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.workload.shape import DENSE, DENSE_COLUMNS, Shape

__all__ = ["Batch", "BatchFile", "Samples", "draw_samples", "write_batches", "write_parquet"]

ROW_GROUP_SAMPLES = 65_536
LEAST_EXPONENT, MOST_EXPONENT = 1.05, 1.2


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples: dense float32 [samples, 13], ids int64 [tables, samples, ids], labels float32 [samples]."""

    dense: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]
    labels: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: dense float32 [B, 13], ids int64 [tables * B * ids] feature-major, labels float32 [B]."""

    dense: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]
    labels: npt.NDArray[np.float32]


def draw_samples(shape: Shape, count: int, seed: int) -> Samples:
    """Draws `count` independent samples. The label depends weakly on two numbers and on the first column's id."""
    random = np.random.default_rng(seed)
    ids = np.empty((shape.tables, count, shape.ids), dtype=np.int64)
    exponents = np.linspace(LEAST_EXPONENT, MOST_EXPONENT, shape.tables)
    for column, exponent in zip(ids, exponents, strict=True):
        column[:] = _zipf_ids(column.size, shape.rows, float(exponent), random).reshape(column.shape)
    dense = random.standard_normal((count, DENSE), dtype=np.float32)
    logit = dense[:, 0] - 0.5 * dense[:, 1] + np.where(ids[0, :, 0] % 2 == 0, 0.5, -0.5) - 1.0
    labels = (random.random(count, dtype=np.float32) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return Samples(dense, ids, labels)


def _zipf_ids(count: int, rows: int, exponent: float, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draws ids int64 [count] with P(rank k) ~ k^-exponent; ranks are mapped to ids in random order.

    The count of each rank is drawn at once (multinomial), then the draws are shuffled. This has the same distribution
    as drawing one id at a time, without a search for each draw.
    """
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    times = random.multinomial(count, weights / weights.sum())
    drawn = np.repeat(random.permutation(rows), times)
    random.shuffle(drawn)
    return drawn


def write_parquet(samples: Samples, path: Path) -> None:
    """Writes the columns label int8, I1..I13 float32, C1.. int64 (lists of int64 for several ids) in row groups of
    65,536."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, object] = {"label": samples.labels.astype(np.int8)}
    columns.update({name: np.ascontiguousarray(samples.dense[:, i]) for i, name in enumerate(DENSE_COLUMNS)})
    for number, ids in enumerate(samples.ids, 1):
        flat = ids.reshape(-1)
        offsets = np.arange(0, flat.size + 1, ids.shape[1], dtype=np.int32)
        columns[f"C{number}"] = flat if ids.shape[1] == 1 else pa.ListArray.from_arrays(offsets, flat)
    pq.write_table(pa.table(columns), path, row_group_size=ROW_GROUP_SAMPLES)


def write_batches(samples: Samples, batch_size: int, path: Path) -> None:
    """Writes the file of batches. Samples at the end that do not fill a batch are left out."""
    with path.open("wb") as file:
        for start in range(0, len(samples.labels) - batch_size + 1, batch_size):
            part = slice(start, start + batch_size)
            file.write(samples.ids[:, part].tobytes())
            file.write(samples.dense[part].tobytes())
            file.write(samples.labels[part].tobytes())


class BatchFile:
    """The memory-mapped file of batches. It returns arrays that are views of the mapping."""

    def __init__(self, path: Path, shape: Shape, batch_size: int) -> None:
        self.batch_size = batch_size
        self._ids_bytes = 8 * shape.tables * shape.ids * batch_size
        self._dense_bytes = 4 * DENSE * batch_size
        self.record_bytes = self._ids_bytes + self._dense_bytes + 4 * batch_size
        # copy-on-write, because torch needs writable arrays
        self._bytes: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="c")

    def __len__(self) -> int:
        return len(self._bytes) // self.record_bytes

    def __getitem__(self, number: int) -> Batch:
        if not 0 <= number < len(self):
            raise IndexError(number)
        record = np.asarray(self._bytes[number * self.record_bytes : (number + 1) * self.record_bytes])
        ids, dense, labels = np.split(record, [self._ids_bytes, self._ids_bytes + self._dense_bytes])
        return Batch(dense.view(np.float32).reshape(-1, DENSE), ids.view(np.int64), labels.view(np.float32))
