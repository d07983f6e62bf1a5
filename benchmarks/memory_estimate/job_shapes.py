"""The small jobs of the benchmark of memory estimates: names, shapes, job files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["JobShape", "cases", "drawn"]


@dataclass(frozen=True, slots=True)
class JobShape:
    """One job. rows: of each table; 0 for dynamic tables, with ids below id_range. group: rows of a Parquet row group.
    strings: whether ids are strings. every_s: seconds between checkpoints; 0 for a checkpoint at the end only."""

    name: str
    model: Literal["dlrm", "wide_deep", "deepfm", "dcn", "xdeepfm"] = "dlrm"
    data: Literal["synthetic", "parquet"] = "synthetic"
    samples: int = 200_000
    test: int = 10_000
    tables: int = 8
    rows: int = 100_000
    id_range: int = 100_000
    dim: int = 16
    batch: int = 512
    access: Literal["direct", "served"] = "direct"
    workers: int = 1
    servers: int = 1
    row_optimizer: str = "rowwise_adagrad"
    dense_optimizer: str = "adam"
    precision: str = "float32"
    args: str = ""
    mode: str = "async"
    group: int = 65_536
    strings: bool = False
    every_s: float = 0.0
    more: str = ""
    is_alone: bool = False
    is_quick: bool = False

    def text(self, folder: Path) -> str:
        """The text of the job file. Writes its data into the folder."""
        return f"""\
[job]
name = "memory"
[model]
build = "elastichost.models:{self.model}"
args = {{ {self.args} }}
[data]
{self._synthetic() if self.data == "synthetic" else self._parquet(folder)}
[tables.default]
dim = {self.dim}
rows = {self.rows or '"dynamic"'}
precision = "{self.precision}"
out_of_range = "modulo"
{self.more}
[train]
batch_size = {self.batch}
mode = "{self.mode}"
access = "{self.access}"
optimizer_rows = {{ name = "{self.row_optimizer}" }}
optimizer_dense = {{ name = "{self.dense_optimizer}" }}
[tuner]
mode = "off"
[resources]
workers = {self.workers}
servers = {self.servers}
[checkpoint]
every_s = {self.every_s}
"""

    def _synthetic(self) -> str:
        return f"""\
format = "synthetic"
[data.synthetic]
rows = {self.samples}
test_rows = {max(1, self.test)}
tables = {self.tables}
table_rows = {self.id_range}
"""

    def _parquet(self, folder: Path) -> str:
        _write(folder / "train.parquet", self, self.samples, 1)
        if self.test:
            _write(folder / "test.parquet", self, self.test, 2)
        test = f'test = ["{folder / "test.parquet"}"]\n' if self.test else ""
        dense, ids = (
            ", ".join(f'"{kind}{n}"' for n in range(count)) for kind, count in (("d", 13), ("c", self.tables))
        )
        return f"""\
train = ["{folder / "train.parquet"}"]
{test}label = "label"
dense = [{dense}]
categorical = [{ids}]
"""


def _write(path: Path, shape: JobShape, samples: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    columns: dict[str, object] = {"label": (random.random(samples) < 0.3).astype(np.int8)}
    for number in range(13):
        columns[f"d{number}"] = random.standard_normal(samples, dtype=np.float32)
    for number in range(shape.tables):
        ids = np.minimum(random.zipf(1.2, samples), shape.id_range) - 1
        columns[f"c{number}"] = pa.array([f"id{one:08d}" for one in ids.tolist()]) if shape.strings else ids
    pq.write_table(pa.table(columns), path, row_group_size=shape.group)


def cases() -> Iterator[JobShape]:
    """All listed jobs in the order in which they run."""
    yield JobShape("dlrm, tiny", rows=1000, id_range=1000, tables=4, dim=8, batch=256, samples=60_000, is_quick=True)
    yield JobShape("dlrm, batch 256")
    yield JobShape("dlrm, batch 8192", batch=8192, samples=500_000, is_quick=True)
    yield JobShape("dlrm, 26 tables, batch 2048", tables=26, batch=2048, samples=300_000)
    yield JobShape("dlrm, 26 tables of 200k x 32", tables=26, rows=200_000, id_range=200_000, dim=32, samples=100_000)
    yield JobShape("dlrm, 2 tables of 2M x 32", tables=2, rows=2_000_000, id_range=2_000_000, dim=32)
    yield JobShape("dlrm, no test data, parquet", data="parquet", test=0, batch=1024, samples=300_000, is_quick=True)
    yield JobShape("dlrm, two workers", workers=2, batch=1024, samples=400_000, is_quick=True)
    yield JobShape("dlrm, adagrad rows", row_optimizer="adagrad", rows=300_000, id_range=300_000, dim=32)
    yield JobShape("dlrm, sgd rows", row_optimizer="sgd", rows=300_000, id_range=300_000, dim=64)
    yield JobShape("dlrm, bfloat16 rows", precision="bfloat16", rows=300_000, id_range=300_000, dim=64)
    yield JobShape("dlrm, large test set", test=400_000, batch=1024)
    yield JobShape("dlrm, checkpoints", rows=500_000, id_range=500_000, every_s=2.0, samples=900_000, is_quick=True)
    yield JobShape("dlrm, checkpoints, two PS", rows=200_000, every_s=2.0, servers=2, workers=2, samples=900_000)
    yield JobShape("dlrm, served", access="served", batch=1024, samples=150_000, is_quick=True)
    yield JobShape("dlrm, served, 2 + 2", access="served", workers=2, servers=2, batch=4096, tables=16, dim=32)
    yield JobShape("dlrm, sync", mode="sync", access="served", workers=2, batch=2048, samples=150_000)
    yield JobShape("dlrm, dynamic", rows=0, id_range=1_000_000, samples=800_000, batch=2048, is_quick=True)
    yield JobShape("dlrm, dynamic, 26 tables", rows=0, id_range=100_000, tables=26, samples=400_000, batch=1024)
    yield JobShape("dlrm, dynamic, exhausted", rows=0, id_range=20_000, tables=4, dim=64, samples=1_000_000, batch=2048)
    yield JobShape("dlrm, dynamic, checkpoints", rows=0, id_range=2_000_000, samples=900_000, every_s=2.0, batch=2048)
    yield JobShape("dlrm, dynamic, served", rows=0, id_range=1_000_000, samples=200_000, access="served", batch=1024)
    yield JobShape("dlrm, dynamic, admit after 2", rows=0, id_range=1_000_000, samples=600_000, more="admit_after = 2")
    yield JobShape("wide_deep, batch 512", model="wide_deep", dim=8)
    yield JobShape("wide_deep, 26 tables, batch 8192", model="wide_deep", tables=26, batch=8192, samples=400_000)
    yield JobShape("wide_deep, wide layers", model="wide_deep", args="hidden = [1024, 512, 256]", batch=2048)
    yield JobShape(
        "wide_deep, parquet, large groups", model="wide_deep", data="parquet", samples=500_000, group=250_000
    )
    yield JobShape("wide_deep, parquet, strings", model="wide_deep", data="parquet", strings=True, samples=200_000)
    yield JobShape("wide_deep, dynamic", model="wide_deep", rows=0, id_range=500_000, samples=500_000, batch=1024)
    yield JobShape("deepfm, batch 2048", model="deepfm", batch=2048, tables=26, is_quick=True)
    yield JobShape(
        "deepfm, dim 64, batch 4096", model="deepfm", batch=4096, tables=26, dim=64, rows=20_000, samples=60_000
    )
    yield JobShape(
        "deepfm, parquet, dynamic", model="deepfm", data="parquet", rows=0, id_range=300_000, samples=300_000
    )
    yield JobShape("dcn, batch 512", model="dcn", tables=26, samples=100_000)
    yield JobShape("dcn, batch 4096", model="dcn", tables=26, batch=4096, samples=200_000, is_quick=True)
    yield JobShape("dcn, sgd dense", model="dcn", tables=16, dim=32, dense_optimizer="sgd", batch=1024, samples=100_000)
    yield JobShape("dcn, two workers, served", model="dcn", access="served", workers=2, batch=1024, samples=100_000)
    yield JobShape("xdeepfm, batch 256", model="xdeepfm", batch=256, samples=20_000, test=20_000, is_quick=True)
    yield JobShape("xdeepfm, batch 1024", model="xdeepfm", batch=1024, samples=30_000, test=20_000)
    yield JobShape("xdeepfm, 16 tables, batch 512", model="xdeepfm", tables=16, batch=512, samples=12_000, test=1_000)
    yield JobShape(
        "xdeepfm, parquet, two workers", model="xdeepfm", data="parquet", workers=2, samples=20_000, test=2_000
    )
    yield JobShape("dlrm, alone", is_alone=True, samples=400_000, is_quick=True)
    yield JobShape("dlrm, alone, dynamic", is_alone=True, rows=0, id_range=1_000_000, samples=600_000, batch=1024)
    yield JobShape("wide_deep, alone, parquet", is_alone=True, model="wide_deep", data="parquet", samples=300_000)


def drawn(count: int, seed: int) -> Iterator[JobShape]:
    """Draws random shapes, different for every seed, so that they include jobs the estimate was not fitted to."""
    random = np.random.default_rng(seed)

    def one_of(*choices: Any) -> Any:
        return choices[random.integers(len(choices))]

    for number in range(count):
        model = one_of("dlrm", "dlrm", "wide_deep", "deepfm", "dcn", "xdeepfm")
        is_slow, is_dynamic = model == "xdeepfm", bool(random.random() < 0.4)
        tables = int(random.integers(4, 9 if is_slow else 27))
        ids = int(10 ** random.uniform(4, 5.7))
        yield JobShape(
            f"drawn {seed}.{number}: {model}",
            model=model,
            data=one_of("synthetic", "synthetic", "parquet"),
            samples=20_000 if is_slow else int(random.integers(100_000, 400_000)),
            test=int(one_of(0, 5_000, 40_000)) // (5 if is_slow else 1),
            tables=tables,
            rows=0 if is_dynamic else ids,
            id_range=ids,
            dim=int(one_of(8, 16, 24, 32, 64)),
            batch=int(one_of(256, 512, 1024) if is_slow else one_of(256, 512, 1024, 2048, 4096, 8192)),
            access=one_of("direct", "direct", "served"),
            workers=int(one_of(1, 1, 2)),
            row_optimizer=one_of("sgd", "adagrad", "rowwise_adagrad"),
            group=int(one_of(20_000, 65_536, 130_000)),
            strings=bool(random.random() < 0.3),
            every_s=float(one_of(0.0, 0.0, 3.0)),
        )
