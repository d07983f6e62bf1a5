"""Writes the vectors of tables as Parquet files, with the ids as they are in the training data."""

from __future__ import annotations

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
from elastichost.datasets.parquet.schema import opened_parquet
from elastichost.errors import ConfigError, DataError
from elastichost.human_readable import did_you_mean, plural
from elastichost.results.assemble import CheckpointTensors
from elastichost.results.texts import Texts, find_texts
from elastichost.results.vector_files import file_stems
from elastichost.specs import EmbeddingSpec, ModelSpec, TableSpec

__all__ = ["WrittenEmbeddings", "check_tables", "write_embeddings"]


@dataclass(frozen=True, slots=True)
class WrittenEmbeddings:
    """The names of the files, and one warning for each table with ids whose text was not found."""

    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_tables(model: ModelSpec, names: Sequence[str]) -> tuple[TableSpec, ...]:
    """The tables with these names; the name of a column stands for its table. Raises ConfigError."""
    by_name = {feature: table for table in model.tables for feature in table.features}
    by_name |= {table.name: table for table in model.tables}
    for name in names:
        if name not in by_name:
            raise ConfigError(
                f"there is no table {name!r}{did_you_mean(name, by_name)}", hint=f"tables: {', '.join(by_name)}"
            )
    return tuple({by_name[name].index: by_name[name] for name in names}.values())


def write_embeddings(
    job: JobSpec,
    tensors: CheckpointTensors,
    tables: Sequence[TableSpec],
    folder: Path,
    pinned: Sequence[FileStamp] = (),
) -> WrittenEmbeddings:
    """Writes `<embedding>.parquet` for each embedding of these tables: `id` (int64 or string; uint64 where ids of that
    type do not fit into int64, binary where texts are no UTF-8) and `vector` (a list of float32). A slash in a name
    becomes an underscore, see `file_stems`; embeddings of one name in several modules have the path of their module
    before it.

    A checkpoint holds the hash of a text id, so the texts are looked up in the training data: the files of the run,
    `pinned`, or what the patterns of the job find now. A table of a fixed size that takes integers modulo its rows has
    the numbers of its rows as ids. Raises DataError (the training data cannot be read), ConfigError (they are of a
    format without text), CheckpointError, OSError."""
    files: list[str] = []
    warnings: list[str] = []
    model = tensors.model
    stems = file_stems([model.initial_name(embedding) for embedding in model.embeddings])
    if tables:
        folder.mkdir()
    for table in tables:
        texts = find_texts(job, table, tensors, pinned) if table.key_kind == "string" else None
        if texts is not None and texts.missing:
            warnings.append(
                f"table {table.name!r}: {plural(texts.missing, 'id')} of the checkpoint are not in the training data "
                "any more, and were left out"
            )
        id_type = _integer_type(job, table, tensors, pinned) if texts is None else texts.words.type
        for embedding in model.embeddings_of(table.index):
            files.append(f"{stems[embedding.index]}.parquet")
            schema = pa.schema([("id", id_type), ("vector", pa.list_(pa.float32(), embedding.dim))])
            with pq.ParquetWriter(folder / files[-1], schema) as writer:
                for ids, vectors in _parts(tensors, table, embedding, texts):
                    columns = [
                        ids.view(id_type),
                        pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), embedding.dim),
                    ]
                    writer.write_table(pa.table(columns, schema=schema))
    return WrittenEmbeddings(tuple(files), tuple(warnings))


def _integer_type(
    job: JobSpec, table: TableSpec, tensors: CheckpointTensors, pinned: Sequence[FileStamp]
) -> pa.DataType:
    """uint64 where a checkpoint has negative ids and the training data, if they can be read, have that type: its ids
    are kept as the int64 of the same bits."""
    if not table.is_dynamic or job.data.format != "parquet":
        return pa.int64()
    if not (np.asarray(tensors.ids(table).array(), dtype=np.int64) < 0).any():
        return pa.int64()
    files, problems = find_files(job.data.train, pinned)
    if problems:
        return pa.int64()
    try:
        with opened_parquet(stamp(files[0])) as opened, pq.ParquetFile(opened) as file:
            types = [file.schema_arrow.field(name).type for name in table.features]
    except (DataError, pa.ArrowException, OSError, KeyError):
        return pa.int64()
    single = (one.value_type if is_list(one) else one for one in types)
    return pa.uint64() if any(map(pa.types.is_uint64, single)) else pa.int64()


def _parts(
    tensors: CheckpointTensors, table: TableSpec, embedding: EmbeddingSpec, texts: Texts | None
) -> Iterator[tuple[pa.Array, npt.NDArray[np.float32]]]:
    """(ids [n], vectors float32 [n, dim]), bucket after bucket. A fixed table of text ids is one part: its ids are
    spread over all buckets."""
    if texts is not None and not table.is_dynamic:
        yield texts.words, tensors.embedding(embedding).array()[texts.rows].astype(np.float32, copy=False)
        return
    ids = tensors.ids(table).array() if table.is_dynamic else np.arange(table.rows, dtype=np.int64)
    start = 0
    for chunk in tensors.embedding(embedding).chunks():
        vectors = np.asarray(chunk, dtype=np.float32)[: len(ids) - start]  # without the row for unknown ids
        stop = start + len(vectors)
        if texts is None:
            yield pa.array(ids[start:stop]), vectors
        else:
            first, last = np.searchsorted(texts.rows, (start, stop))
            yield texts.words.slice(first, last - first), vectors[texts.rows[first:last] - start]
        start = stop
