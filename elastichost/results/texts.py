"""Finds the texts of hashed ids in the training data of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.config.job import JobSpec
from elastichost.datasets.arrow_columns import is_list
from elastichost.datasets.files import FileStamp, find_files, stamp
from elastichost.datasets.kernels.hashing import hash_arrow_strings
from elastichost.datasets.parquet.schema import opened_parquet
from elastichost.datasets.text.convert import convert
from elastichost.errors import ConfigError, DataError
from elastichost.results.assemble import CheckpointTensors
from elastichost.specs import TableSpec

__all__ = ["Texts", "find_texts"]

Int64Array = npt.NDArray[np.int64]
BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a table. words: string [n], or binary [n] where some are no UTF-8; rows: int64 [n], ascending, the
    row of each text; missing: the number of rows without a text."""

    words: pa.Array
    rows: Int64Array
    missing: int


def find_texts(job: JobSpec, table: TableSpec, tensors: CheckpointTensors, pinned: Sequence[FileStamp] = ()) -> Texts:
    """The texts of a table with text ids. Every different text is in memory once. pinned: the training data of the run;
    none: what the patterns of the job find now. Raises DataError: a file cannot be read; ConfigError: the format holds
    no texts."""
    ids = np.asarray(tensors.ids(table).array(), dtype=np.int64) if table.is_dynamic else None
    order = None if ids is None else np.argsort(ids)
    known = np.empty(0, dtype=np.int64)  # hashes of the texts found so far, ascending
    words: list[pa.Array] = []
    hashes: list[Int64Array] = []
    for column in _columns(job, table.features, pinned):
        found = hash_arrow_strings(column)
        found, first = np.unique(found, return_index=True)
        is_new = ~np.isin(found, known, assume_unique=True)
        if ids is not None:
            is_new &= np.isin(found, ids, assume_unique=True)
        known = np.union1d(known, found[is_new])
        words.append(column.take(pa.array(first[is_new])))
        hashes.append(found[is_new])
    keys = np.concatenate(hashes) if hashes else known
    if ids is not None and order is not None:
        rows = order[np.searchsorted(ids, keys, sorter=order)] if len(keys) else keys
    else:
        rows = (keys.view(np.uint64) % np.uint64(table.rows)).astype(np.int64)
    by_row = np.argsort(rows, kind="stable")
    text = _strings(pa.concat_arrays(words)) if words else pa.array([], pa.string())
    missing = 0 if ids is None else len(ids) - len(keys)
    return Texts(text.take(pa.array(by_row)), rows[by_row], missing)


def _strings(words: pa.Array) -> pa.Array:
    """The words as strings; as they are where some are no UTF-8: training takes any bytes as ids."""
    try:
        return words.cast(pa.string())
    except pa.ArrowInvalid:
        return words


def _columns(job: JobSpec, features: tuple[str, ...], pinned: Sequence[FileStamp]) -> Iterator[pa.Array]:
    """The different texts of each batch of rows and feature, as bytes."""
    files, problems = find_files(job.data.train, pinned)
    if problems:
        raise DataError(problems[0], hint="the texts of ids are read from the training data: put the files back")
    for file in files:
        with tempfile.TemporaryDirectory(prefix="elastichost-") as folder:
            for batch in _batches(file, job, features, Path(folder)):
                for name in features:
                    yield _different(batch.column(name))


def _batches(file: str, job: JobSpec, features: tuple[str, ...], folder: Path) -> Iterator[pa.RecordBatch]:
    if job.data.format in ("csv", "criteo_tsv"):
        parquet = folder / "rows.parquet"
        csv = job.data.csv
        types = {name: str(csv.types.get(name, "string")) for name in features}
        if job.data.format == "csv":
            convert(
                file,
                parquet,
                format="csv",
                types=types,
                columns=features,
                delimiter=csv.delimiter,
                list_delimiter=csv.list_delimiter,
                decimal=csv.decimal,
                bad_rows="skip",
            )
        else:
            convert(file, parquet, format="criteo_tsv", bad_rows="skip")
        file = str(parquet)
    elif job.data.format != "parquet":
        raise ConfigError(
            f"the text of ids cannot be found: the data of this run has the format {job.data.format!r}",
            hint="vectors of text ids need training data in Parquet, CSV or Criteo's format",
        )
    with opened_parquet(stamp(file)) as opened, pq.ParquetFile(opened) as parquet_file:
        yield from parquet_file.iter_batches(BATCH_ROWS, columns=list(features))


def _different(column: pa.Array) -> pa.Array:
    while is_list(column.type):
        column = column.flatten()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary.take(column.indices.unique().drop_null())
    return column.cast(pa.binary()).unique().drop_null()
