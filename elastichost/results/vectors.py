"""Writes the vectors that a model computes, such as those of an item tower, as Parquet files for retrieval.

The rows of a table are written by `embeddings`. A tower's vector is not in a table: it depends on several columns and
on the dense parameters. So its model has a method, and the samples to call it with come from a file:

    vectors(column: str, dense [B, num_dense], sparse KeyedJaggedTensor) -> float [B, D]

The file needs only the columns that the method reads. What the others hold must not change a vector, so each missing
column is tried once with NaN: a vector that becomes NaN was computed from it, and the file is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection

from elastichost.datasets.arrow_columns import without_view
from elastichost.datasets.parquet.schema import opened_parquet
from elastichost.datasets.spool.column_fit import plain_type
from elastichost.errors import DataError, ModelError
from elastichost.results.preprocess import ColumnError, Prepared, Preprocessor, column_kind
from elastichost.results.program import load_exported, quiet
from elastichost.results.reader import flat_inputs, sparse_of
from elastichost.results.vector_files import VectorFile, file_stems
from elastichost.user_model.build import user_error

__all__ = ["write_vectors"]

BATCH_ROWS = 4096


def write_vectors(directory: Path, wanted: Sequence[VectorFile], folder: Path) -> tuple[str, ...]:
    """Writes `<column>.parquet` for each of `wanted`: `id` (of the type that `_id_type` chooses) and `vector` (a list
    of float32), one row for each different id. If an id is in several rows of the file, the last of them counts.
    Returns the names.

    directory: an export of format torchrec. Raises DataError (the file cannot be read, lacks a column that the model
    reads, or has a null as an id), ModelError (the model cannot be loaded, or computes no vectors of this column).
    """
    if not wanted:
        return ()
    preprocessor = Preprocessor(directory)
    build = preprocessor.about["model"]["build"]
    model = load_exported(directory, build)
    if not callable(getattr(model, "vectors", None)):
        raise ModelError(
            f"{build} has no method vectors(column, dense, sparse)",
            hint="write the rows of a table with --embeddings, or see docs/how-to/tasks-sequences-retrieval.md",
        )
    folder.mkdir()
    stems = file_stems([one.column for one in wanted])
    parts = (_Vectors(model, preprocessor, one) for one in wanted)
    return tuple(_write(vectors, folder / f"{stem}.parquet") for vectors, stem in zip(parts, stems, strict=True))


def _single_type(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ids without dictionaries and views."""
    return ids.cast(without_view(plain_type(ids.type)))


def _id_type(ids: pa.ChunkedArray, *, is_string: bool) -> pa.DataType:
    """string, or binary where ids are no UTF-8; int64, or uint64 where ids do not fit into it."""
    kinds = (pa.string(), pa.binary()) if is_string else (pa.int64(), pa.uint64())
    try:
        ids.cast(kinds[0])
    except pa.ArrowException:
        return kinds[1]
    return kinds[0]


class _Vectors:
    """The vectors of one file."""

    def __init__(self, model: nn.Module, preprocessor: Preprocessor, wanted: VectorFile) -> None:
        self._model, self._preprocessor = model, preprocessor
        self.column, self._stored, self._file = wanted.column, wanted.file, wanted.file.path
        self._missing: tuple[str, ...] | None = None  # columns that the file lacks; None: not tried yet
        self._id_type = pa.string() if self.is_string else pa.int64()

    @property
    def is_string(self) -> bool:
        return self._preprocessor.tables[self.column].is_string

    def parts(self) -> Iterator[tuple[pa.Array, npt.NDArray[np.float32]]]:
        """(ids [n], vectors float32 [n, D]), batch after batch. Raises DataError, ModelError."""
        with ExitStack() as stack:
            with self._reading():
                source = stack.enter_context(opened_parquet(self._stored))
                opened = stack.enter_context(pq.ParquetFile(source))
            present = self._present(opened.schema_arrow.names)
            last = self._last_rows(opened)
            batches, first = opened.iter_batches(BATCH_ROWS, columns=present), 0
            while True:
                with self._reading():
                    batch = next(batches, None)
                if batch is None:
                    return
                chosen = last[np.searchsorted(last, first) : np.searchsorted(last, first + len(batch))]
                if len(chosen):
                    yield self._vectors_of(pa.Table.from_batches([batch]).take(pa.array(chosen - first)), chosen)
                first += len(batch)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within this context, an error of Arrow or of the file system is one of the file."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._file} cannot be read as Parquet: {str(error).splitlines()[0]}") from error

    def _present(self, names: Sequence[str]) -> list[str]:
        """The columns of the model that the file has. names: of all columns of the file. Raises DataError."""
        columns = dict.fromkeys((*self._preprocessor.dense, *self._preprocessor.features))
        present = [name for name in columns if name in names]
        if self.column not in present:
            raise DataError(f"{self._file} has no column {self.column!r}, of which the vectors are wanted")
        if (twice := next((name for name in present if names.count(name) > 1), None)) is not None:
            raise DataError(f"{self._file} has several columns {twice!r}", hint="write it with other names")
        return present

    def _last_rows(self, opened: pq.ParquetFile) -> npt.NDArray[np.int64]:
        """The number of the last row of each id, ascending. Chooses the type in which ids are written."""
        with self._reading():
            ids = opened.read(columns=[self.column]).column(0)
        kind, is_list = column_kind(ids.type)
        if is_list:
            raise DataError(f"{self._file}, column {self.column!r} holds lists: a vector needs a single id")
        if kind in ("number", "other"):
            expected = self._preprocessor.expected(self.column)
            raise DataError(
                f"{self._file}, column {self.column!r}: {ids.type} is not {expected}",
                hint=f"the model was trained on {expected}",
            )
        ids = _single_type(ids)  # each row group may have a dictionary of its own
        if ids.null_count:
            row = int(np.flatnonzero(ids.is_null().to_numpy())[0])
            raise DataError(
                f"{self._file}, column {self.column!r}, row {row}: a null is no id of a vector",
                hint="leave the row out",
            )
        self._id_type = _id_type(ids, is_string=self.is_string)
        table = pa.table({"id": ids, "row": np.arange(len(ids))})
        return np.sort(table.group_by("id").aggregate([("row", "max")]).column("row_max").to_numpy())

    def _vectors_of(self, table: pa.Table, numbers: npt.NDArray[np.int64]) -> tuple[pa.Array, npt.NDArray[np.float32]]:
        """(ids [n], vectors float32 [n, D]) of rows of the file. numbers: of these rows in the file."""
        try:
            prepared = self._preprocessor.prepare(self._completed(table))
        except ColumnError as error:
            row = "" if error.row is None else f", row {numbers[error.row]}"
            raise DataError(
                f"{self._file}, column {error.column!r}{row}: {error.problem}",
                hint=f"the model was trained on {error.expected}",
            ) from error
        if self._missing is None:
            names = (*self._preprocessor.dense, *self._preprocessor.features)
            self._missing = tuple(name for name in names if name not in table.column_names)
            for name in self._missing:
                self._refuse_if_read(name, prepared)
        found = self._call(prepared)
        if not np.isfinite(found).all():
            raise ModelError(f"vectors({self.column!r}, ...) has values that are not finite")
        return _single_type(table.column(self.column)).cast(self._id_type).combine_chunks(), found

    def _completed(self, table: pa.Table) -> pa.Table:
        """The table with nulls in the columns that the file lacks."""
        for name in self._preprocessor.dense:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table), pa.float32()))
        for name in self._preprocessor.features:
            if name not in table.column_names:
                kind = pa.string() if self._preprocessor.tables[name].is_string else pa.int64()
                is_list = self._preprocessor.lists[name]
                table = table.append_column(name, pa.nulls(len(table), pa.list_(kind) if is_list else kind))
        return table

    def _call(self, prepared: Prepared) -> npt.NDArray[np.float32]:
        """float32 [B, D]"""
        dense, values, offsets = flat_inputs(prepared)
        sparse = sparse_of(self._preprocessor.features, values, offsets, len(dense))
        vectors: Any = self._model.vectors
        try:
            with quiet(), torch.inference_mode():
                found = vectors(self.column, dense, sparse)
        except Exception as error:  # every error of the user's method is an error of the model
            raise user_error(f"vectors({self.column!r}, ...) of the model failed", error) from error
        if not isinstance(found, torch.Tensor) or found.dim() != 2 or len(found) != len(dense):
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise ModelError(
                f"vectors({self.column!r}, ...) returned {shape} for {len(dense)} samples",
                hint="it must return a tensor [B, D]",
            )
        return np.asarray(found.float().numpy())

    def _refuse_if_read(self, name: str, prepared: Prepared) -> None:
        """Raises DataError if the vectors are computed from this column, which the file lacks."""
        one = _first(prepared)
        if name in self._preprocessor.dense:
            dense = one.dense.copy()
            dense[:, self._preprocessor.dense.index(name)] = np.nan
            found = self._call(one._replace(dense=dense))
        else:
            place = self._preprocessor.features.index(name)
            row = self._free_row(name, one)
            rows, lengths = list(one.rows), list(one.lengths)
            rows[place], lengths[place] = np.array([row]), np.array([1])
            with _nan_row(self._model, name, row):
                found = self._call(one._replace(rows=tuple(rows), lengths=tuple(lengths)))
        if np.isnan(found).any():
            raise DataError(
                f"{self._file} has no column {name!r}, from which the model computes the vectors of {self.column!r}",
                hint="add the column; columns that the vectors do not depend on may be left out",
            )

    def _free_row(self, name: str, prepared: Prepared) -> int:
        """A row of the column's table that the sample does not use."""
        table = self._preprocessor.tables[name]
        used = {
            int(row)
            for feature, rows in zip(self._preprocessor.features, prepared.rows, strict=True)
            if self._preprocessor.tables[feature] is table or self._shares(name, feature)
            for row in rows
        }
        free = next((row for row in range(table.rows) if row not in used), None)
        if free is None:
            raise DataError(
                f"{self._file} has no column {name!r}, and its table is too small to find out if it is read",
                hint="add the column",
            )
        return free

    def _shares(self, name: str, feature: str) -> bool:
        return any({name, feature} <= set(table["features"]) for table in self._preprocessor.about["tables"])


def _first(prepared: Prepared) -> Prepared:
    """The first sample alone."""
    rows = tuple(rows[: lengths[0]] for rows, lengths in zip(prepared.rows, prepared.lengths, strict=True))
    return Prepared(prepared.dense[:1], rows, tuple(lengths[:1] for lengths in prepared.lengths))


@contextmanager
def _nan_row(model: nn.Module, feature: str, row: int) -> Iterator[None]:
    """Within this context, this row is NaN in every embedding that the column has."""
    before: list[tuple[torch.Tensor, torch.Tensor]] = []
    module: Any  # torchrec has no types
    for module in model.modules():
        is_bag = isinstance(module, EmbeddingBagCollection)
        if not is_bag and not isinstance(module, EmbeddingCollection):
            continue
        configs = module.embedding_bag_configs() if is_bag else module.embedding_configs()
        held = module.embedding_bags if is_bag else module.embeddings
        for config in configs:
            if feature in config.feature_names:
                weight = held[config.name].weight.data
                before.append((weight, weight[row].clone()))
                weight[row] = torch.nan
    try:
        yield
    finally:
        for weight, values in before:
            weight[row] = values


def _write(vectors: _Vectors, file: Path) -> str:
    writer: pq.ParquetWriter | None = None
    try:
        for ids, found in vectors.parts():
            schema = pa.schema([("id", ids.type), ("vector", pa.list_(pa.float32(), found.shape[1]))])
            writer = writer or pq.ParquetWriter(file, schema)
            listed = pa.FixedSizeListArray.from_arrays(pa.array(found.reshape(-1)), found.shape[1])
            writer.write_table(pa.table([ids, listed], schema=schema))
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise DataError(f"the file of the vectors of {vectors.column!r} has no rows")
    return file.name
