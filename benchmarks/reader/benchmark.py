"""Reading: CPU microseconds for each sample, from a file to a KeyedJaggedTensor, in one thread.

    reading    decoding, cutting batches, making the KeyedJaggedTensor of ids; shuffling before it with `--shuffle`
    and rows   the same with ids turned into row numbers, as a worker with direct access trains on them

Files are in the page cache; footers and line indexes, which are read once a run, are not counted. The files are
generated: `parquet-integers` has Criteo's 13 + 26 columns as numbers (fixed tables), `parquet-strings` the columns of
a shop's click log (ints, strings, a list of 6.5 strings; dynamic tables), `criteo-tsv` Criteo's own text format with
empty fields, `csv` the same columns with a header line. `--data DIR` adds the real click log in DIR/train.parquet.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.data_plane.criteo26 import ROWS_PER_TABLE, draw_samples, write_parquet
from benchmarks.harness.measuring import Spread, interleaved, print_table, write_json
from benchmarks.reader import sample_files
from elastichost.arena import kernels
from elastichost.arena.arena import Arena
from elastichost.arena.host import arena_root
from elastichost.arena.layout import plan_layout
from elastichost.datasets.parquet.reader import ParquetDecoder
from elastichost.datasets.reader import Decoder, UnitReader
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, CRITEO_LABEL, DataSettings
from elastichost.datasets.text.criteo import criteo_decoder
from elastichost.datasets.text.csv import csv_decoder
from elastichost.datasets.warm import warm_kernels
from elastichost.ps.rows.store import RowStore
from elastichost.specs import DenseSpec, EmbeddingSpec, KeyKind, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.worker.access.row_channels import PullChannel
from elastichost.worker.access.rows import PreparedBatch, RowPreparer
from elastichost.worker.access.served import PulledRows

__all__ = ["main"]

BATCH_SIZE = 2048
AIMS_US = {"parquet-integers": 0.8, "parquet-strings": 1.2, "retail": 1.2, "criteo-tsv": 2.0}
ARENA_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Source:
    """A file and what is read of it. `table_rows` 0: dynamic tables."""

    name: str
    decoder: Decoder
    settings: DataSettings
    table_rows: int


class Cost(msgspec.Struct, frozen=True):
    """CPU microseconds for each sample."""

    reading_us: Spread
    and_rows_us: Spread
    samples: int
    aim_us: float | None


class Figures(msgspec.Struct, frozen=True):
    """By source."""

    batch_size: int
    costs: dict[str, Cost]


# --- sources ------------------------------------------------------------------------------------------------------


def criteo_settings(path: Path, file_format: str) -> DataSettings:
    return DataSettings(
        split="train",
        patterns=(str(path),),
        format=file_format,
        labels=(CRITEO_LABEL,),
        dense=CRITEO_DENSE,
        categorical=CRITEO_CATEGORICAL,
    )


def click_settings(path: Path) -> DataSettings:
    return DataSettings(
        split="train",
        patterns=(str(path),),
        format="parquet",
        labels=("label",),
        dense=sample_files.CLICK_DENSE,
        categorical=sample_files.CLICK_CATEGORICAL,
    )


def make_sources(folder: Path, rows: int, data: Path | None) -> Iterator[Source]:
    """Writes the files and opens them; what is indexed of text files is kept in `folder` too."""
    environ = {"ELASTICHOST_CACHE": str(folder / "cache")}
    path = folder / "integers.parquet"
    write_parquet(draw_samples(rows, seed=0), path)
    settings = criteo_settings(path, "parquet")
    yield Source("parquet-integers", ParquetDecoder(settings), settings, ROWS_PER_TABLE)
    path = folder / "strings.parquet"
    sample_files.write_clicks(path, rows, seed=0)
    settings = click_settings(path)
    yield Source("parquet-strings", ParquetDecoder(settings), settings, 0)
    if data is not None:
        settings = click_settings(data / "train.parquet")
        yield Source("retail", ParquetDecoder(settings), settings, 0)
    table = sample_files.criteo_table(rows, seed=0)
    path = folder / "criteo.tsv"
    sample_files.write_text(table, path, delimiter="\t", header=False)
    settings = criteo_settings(path, "criteo_tsv")
    yield Source("criteo-tsv", criteo_decoder(settings, environ), settings, 0)
    path = folder / "criteo.csv"
    sample_files.write_text(table, path, delimiter=",", header=True)
    settings = criteo_settings(path, "csv")
    yield Source("csv", csv_decoder(settings, environ), settings, 0)


# --- rows ---------------------------------------------------------------------------------------------------------


def model_of(source: Source, kinds: Mapping[str, KeyKind]) -> ModelSpec:
    """A table of 16 floats for every categorical column; lists of items share the items' table."""
    columns = source.settings.categorical
    features: dict[str, tuple[str, ...]] = {name: (name,) for name in columns if name != sample_files.CLICK_LIST}
    if sample_files.CLICK_LIST in columns:
        features[sample_files.CLICK_ITEM] = (sample_files.CLICK_ITEM, sample_files.CLICK_LIST)
    tables = tuple(
        TableSpec(name, index, of_table, kinds[name], source.table_rows)
        for index, (name, of_table) in enumerate(features.items())
    )
    embeddings = tuple(
        EmbeddingSpec(t.name, t.index, t.index, "m", "bag", t.features, 16, "sum", RowOptimizerSpec(), -0.1, 0.1)
        for t in tables
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 0, 0), len(source.settings.dense), 1)


class OwnRows:
    """In place of a worker's channel to a PS: this process owns every bucket itself."""

    def __init__(self, arena: Arena) -> None:
        self._store = RowStore(arena, 0)
        self._store.adopt(
            [(t.index, b) for t in arena.model.tables for b in range(arena.layout.bucket_count(t.index))],
            initialise=True,
        )

    def pull(
        self, keys: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], *, create: bool, **_: object
    ) -> PulledRows:
        rows = self._store.rows_of(keys, bounds, create, 0)
        return PulledRows(rows, bounds, weights=np.empty(0, np.float32), offsets=np.empty(0, np.int64), epoch=0)


@contextmanager
def made_arena(model: ModelSpec) -> Iterator[Arena]:
    """An arena where runs have theirs, gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix=f"elastichost-{os.geteuid()}-benchmark-", dir=arena_root()))
    try:
        with Arena.create(root, plan_layout(model, 0, ARENA_BYTES)) as arena:
            yield arena
    finally:
        shutil.rmtree(root)


# --- measuring ----------------------------------------------------------------------------------------------------


def tensor_of_ids(batch_lengths: npt.NDArray[np.int32], keys: npt.NDArray[np.int64], columns: list[str]) -> None:
    KeyedJaggedTensor(keys=columns, values=torch.from_numpy(keys), lengths=torch.from_numpy(batch_lengths)).offsets()


def tensor_of_rows(batch: PreparedBatch, columns: list[str]) -> None:
    KeyedJaggedTensor(
        keys=columns,
        values=torch.from_numpy(batch.values),
        lengths=torch.from_numpy(batch.lengths),
        offsets=torch.from_numpy(batch.offsets),
        stride=batch.samples.size,
        length_per_key=batch.length_per_key,
    )


def read_once(source: Source, preparer: RowPreparer | None, shuffle: bool, number: int) -> float:
    """CPU microseconds of this process for each sample of one pass over the file."""
    reader, columns = UnitReader(source.decoder), list(source.settings.categorical)
    description = reader.describe()
    # Of the process: whatever thread pyarrow reads in is counted.
    began_ns = time.process_time_ns()
    for unit in description.units:
        for batch in reader.batches(unit, 0, unit.samples, BATCH_SIZE, number if shuffle else None):
            if preparer is None:
                tensor_of_ids(batch.lengths, batch.keys, columns)
            else:
                tensor_of_rows(preparer.prepare(batch, lease_id=0, epoch=0, create=True, clock=0), columns)
    return (time.process_time_ns() - began_ns) / 1e3 / description.samples


def measure_source(source: Source, repeat: int, shuffle: bool) -> Cost:
    description = UnitReader(source.decoder).describe()
    with made_arena(model_of(source, description.key_kinds)) as arena:
        channel = cast(PullChannel, OwnRows(arena))
        preparer = RowPreparer(arena, source.settings.categorical, description.files, channel, served=False)
        read_once(source, preparer, shuffle, 0)  # makes the rows, brings the file into memory
        arms: dict[str, Callable[[int], float]] = {
            "reading": partial(read_once, source, None, shuffle),
            "and_rows": partial(read_once, source, preparer, shuffle),
        }
        found = interleaved(arms, repeat)
    return Cost(found["reading"], found["and_rows"], description.samples, AIMS_US.get(source.name))


def measure(rows: int, repeat: int, data: Path | None, shuffle: bool) -> Figures:
    pa.set_cpu_count(1)
    torch.set_num_threads(1)
    kernels.warm()
    warm_kernels()
    with tempfile.TemporaryDirectory(prefix="elastichost-benchmark-") as folder:
        sources = make_sources(Path(folder), rows, data)
        costs = {source.name: measure_source(source, repeat, shuffle) for source in sources}
    return Figures(BATCH_SIZE, costs)


def show(figures: Figures) -> None:
    """On stdout."""
    print(f"CPU us for each sample, one thread, batches of {figures.batch_size}: median (least-most)")
    print_table(
        ("", "samples", "reading", "aim", "and rows"),
        (
            (
                name,
                f"{c.samples:,}",
                str(c.reading_us),
                "" if c.aim_us is None else f"<= {c.aim_us}",
                str(c.and_rows_us),
            )
            for name, c in figures.costs.items()
        ),
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="reader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000, help="samples of each generated file (400,000)")
    parser.add_argument("--repeat", type=int, default=5, help="passes over each file (5)")
    parser.add_argument("--data", type=Path, help="folder of the real click log's train.parquet")
    parser.add_argument("--shuffle", action="store_true", help="samples of each row group in random order")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    chosen = parser.parse_args(argv)
    figures = measure(chosen.rows, chosen.repeat, chosen.data, chosen.shuffle)
    show(figures)
    if chosen.json:
        write_json("reader", figures)


if __name__ == "__main__":
    main()
