"""The workload "Criteo-26": 13 numbers and 26 ids a sample, tables of 100,000 rows x 16, Zipf-distributed ids.

Every table has its own exponent (1.05 to 1.2) and its own order of ids, so that hot rows are scattered. The samples are
written twice: as Parquet for elastichost, and as one file of batches, which the peers map into memory, so that reading
costs them nothing. A batch of that file is its ids int64 [26, B] (feature-major, as in a KeyedJaggedTensor), dense
float32 [B, 13] and labels float32 [B], one after another as raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "CATEGORICAL",
    "DENSE",
    "DIM",
    "ROWS_PER_TABLE",
    "Batch",
    "BatchFile",
    "JobSettings",
    "ModelName",
    "Samples",
    "draw_samples",
    "job_text",
    "write_batches",
    "write_parquet",
]

ModelName = Literal["dlrm", "wide_deep"]

DENSE = tuple(f"I{number}" for number in range(1, 14))
CATEGORICAL = tuple(f"C{number}" for number in range(1, 27))
ROWS_PER_TABLE = 100_000
DIM = 16
ROW_GROUP_SAMPLES = 65_536
LEAST_EXPONENT, MOST_EXPONENT = 1.05, 1.2
ENDLESS_EPOCHS = 1_000_000
NEVER_S = 1e6


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples: dense float32 [samples, 13], ids int64 [26, samples], labels float32 [samples]."""

    dense: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]
    labels: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: dense float32 [B, 13], ids int64 [26 * B] feature-major, labels float32 [B]."""

    dense: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]
    labels: npt.NDArray[np.float32]


def draw_samples(count: int, seed: int) -> Samples:
    """Draws `count` independent samples. The label depends weakly on two numbers and on the first column's id."""
    random = np.random.default_rng(seed)
    ids = np.empty((len(CATEGORICAL), count), dtype=np.int64)
    exponents = np.linspace(LEAST_EXPONENT, MOST_EXPONENT, len(CATEGORICAL))
    for column, exponent in zip(ids, exponents, strict=True):
        column[:] = _zipf_ids(count, float(exponent), random)
    dense = random.standard_normal((count, len(DENSE)), dtype=np.float32)
    logit = dense[:, 0] - 0.5 * dense[:, 1] + np.where(ids[0] % 2 == 0, 0.5, -0.5) - 1.0
    labels = (random.random(count, dtype=np.float32) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return Samples(dense, ids, labels)


def _zipf_ids(count: int, exponent: float, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draws ids int64 [count] with P(rank k) ~ k^-exponent; ranks are mapped to ids in random order.

    The count of each rank is drawn at once (multinomial), then the draws are shuffled. This has the same distribution
    as drawing one id at a time, without a search for each draw.
    """
    weights = np.arange(1, ROWS_PER_TABLE + 1, dtype=np.float64) ** -exponent
    times = random.multinomial(count, weights / weights.sum())
    drawn = np.repeat(random.permutation(ROWS_PER_TABLE), times)
    random.shuffle(drawn)
    return drawn


def write_parquet(samples: Samples, path: Path) -> None:
    """Writes the columns label int8, I1..I13 float32, C1..C26 int64 in row groups of 65,536."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, npt.NDArray[np.generic]] = {"label": samples.labels.astype(np.int8)}
    columns.update({name: np.ascontiguousarray(samples.dense[:, i]) for i, name in enumerate(DENSE)})
    columns.update(zip(CATEGORICAL, samples.ids, strict=True))
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

    def __init__(self, path: Path, batch_size: int) -> None:
        self.batch_size = batch_size
        self._ids_bytes = 8 * len(CATEGORICAL) * batch_size
        self._dense_bytes = 4 * len(DENSE) * batch_size
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
        return Batch(dense.view(np.float32).reshape(-1, len(DENSE)), ids.view(np.int64), labels.view(np.float32))


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings that differ between elastichost's runs. `fused` None: the default of the job file."""

    model: ModelName
    batch_size: int
    access: Literal["direct", "served"]
    workers: int
    fused: bool | None


def job_text(settings: JobSettings, parquet: Path) -> str:
    """The job file: endless, without checkpoints or test data, and without hang detection, because arms are stopped."""
    fused = "" if settings.fused is None else f"fused = {str(settings.fused).lower()}\n"
    dense, categorical = (", ".join(f'"{column}"' for column in columns) for columns in (DENSE, CATEGORICAL))
    return f"""\
[job]
name = "criteo26"

[model]
build = "elastichost.models:{settings.model}"
{fused}
[data]
train = ["{parquet}"]
label = "label"
dense = [{dense}]
categorical = [{categorical}]

[tables.default]
dim = {DIM}
rows = {ROWS_PER_TABLE}

[train]
epochs = {ENDLESS_EPOCHS}
batch_size = {settings.batch_size}
access = "{settings.access}"
optimizer_rows = {{ name = "rowwise_adagrad", lr = 0.1 }}
optimizer_dense = {{ name = "adam", lr = 1e-3 }}

[tuner]
mode = "off"
[resources]
workers = {settings.workers}
servers = 1

[checkpoint]
every_s = 0

[supervision]
hang_timeout_s = {NEVER_S}
start_timeout_s = {NEVER_S}
"""
