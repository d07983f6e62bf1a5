"""The files of the benchmark, each with its decoder and a model of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.reader import sample_files
from benchmarks.workload.samples import draw_samples, write_parquet
from benchmarks.workload.shape import SMALL
from elastichost.arena.arena import Arena
from elastichost.datasets.parquet.reader import ParquetDecoder
from elastichost.datasets.reader import Decoder
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, CRITEO_LABEL, DataSettings
from elastichost.datasets.text.criteo import criteo_decoder
from elastichost.datasets.text.csv import csv_decoder
from elastichost.ps.rows.store import RowStore
from elastichost.specs import DenseSpec, EmbeddingSpec, KeyKind, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.worker.access.served import PulledRows

__all__ = ["OwnRows", "Source", "make_sources", "model_of"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file and the columns to read. `table_rows` 0: dynamic tables."""

    name: str
    decoder: Decoder
    settings: DataSettings
    table_rows: int


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
    """Writes the files and opens them. The line indexes of text files are kept in `folder` too."""
    environ = {"ELASTICHOST_CACHE": str(folder / "cache")}
    path = folder / "integers.parquet"
    write_parquet(draw_samples(SMALL, rows, seed=0), path)
    settings = criteo_settings(path, "parquet")
    yield Source("parquet-integers", ParquetDecoder(settings), settings, SMALL.rows)
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


def model_of(source: Source, kinds: Mapping[str, KeyKind]) -> ModelSpec:
    """A model with a table of 16 floats for each categorical column; lists of items share the items' table."""
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
    """Replaces a worker's channel to a PS: this process owns every bucket."""

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
