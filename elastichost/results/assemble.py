"""From the blocks of a checkpoint to the tensors of a plain torchrec model.

The buckets of a table become one tensor again. For a fixed table they are consecutive row ranges. For a dynamic table
they are its live rows in the order (bucket, id): the row of an id depends on the order of training, its place in the
tensor does not. Padding columns are dropped. Tensors come in chunks of one bucket, so that writing a table to a file
does not need the whole table in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.checkpoint.format import (
    BlockKind,
    FoundCheckpoint,
    Manifest,
    latest,
    load_manifest,
    newest_best,
    read_block,
)
from elastichost.checkpoint.places import checkpoint_source, read_identity
from elastichost.config.job import JobSpec, load_job
from elastichost.errors import CheckpointError, ConfigError
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.specs import DenseTensor, EmbeddingSpec, TableSpec

__all__ = ["CheckpointTensors", "TensorSource", "find_checkpoint", "load_run_job", "weight_name"]

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A tensor that is not in memory yet. `chunks()` gives its rows in order, as C-contiguous arrays of `dtype`;
    `shape` is that of the whole tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunks: Callable[[], Iterator[Array]]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def array(self) -> Array:
        """The whole tensor in memory."""
        out = np.empty(self.shape, dtype=self.dtype)
        elements = out.reshape(-1)  # a view; a tensor without a dimension has one element, and no rows
        start = 0
        for chunk in self.chunks():
            elements[start : start + chunk.size] = chunk.reshape(-1)
            start += chunk.size
        return out


def load_run_job(run_dir: Path) -> JobSpec:
    """The job of a run; environment variables do not change it. Raises ConfigError when the directory holds no run, and
    for an emulated run."""
    file = run_dir / RESOLVED_JOB_FILE
    if not file.is_file():
        raise ConfigError(
            f"{run_dir} is not a run directory: it has no {RESOLVED_JOB_FILE}", hint="name one under runs/"
        )
    job = load_job(file, environ={})
    if job.emulate.enabled:
        raise ConfigError(
            f"{run_dir} is an emulated run: it has no trained model", hint="train the job with emulate.enabled = false"
        )
    return job


def find_checkpoint(
    run_dir: Path, job: JobSpec, checkpoint: Path | None = None, *, best: bool = False
) -> FoundCheckpoint:
    """The given checkpoint, or the newest good one of the run and its mirror. best: the one with the weights of the
    best evaluation instead (`checkpoint.keep_best`). Raises CheckpointError without one.

    The blocks are checked later, when they are read, so that they are read only once."""
    if checkpoint is not None:
        return FoundCheckpoint(directory=checkpoint, manifest=load_manifest(checkpoint))
    identity = read_identity(run_dir)
    if identity is None:
        raise CheckpointError(
            f"{run_dir} has no checkpoint: no run was started in it", hint="name another run directory"
        )
    source = checkpoint_source(run_dir, identity, job)
    if best:
        kept = newest_best(*source.places, run_id=source.run_id)
        if kept is None:
            raise CheckpointError(
                f"{source.places[0]} has no checkpoint of a best evaluation",
                hint='a run keeps one with checkpoint.keep_best = "auc", for example; without --best (Python: best) '
                "the newest one is taken",
            )
        return kept
    found = latest(*source.places, verify=False, run_id=source.run_id)
    if found is None:
        raise CheckpointError(
            f"{source.places[0]} has no checkpoint",
            hint="a run writes one every checkpoint.every_s, and when it is done or stopped; `elastichost status` says "
            "how it goes or how it ended",
        )
    return found


def weight_name(embedding: EmbeddingSpec) -> str:
    """The name of the weights in torchrec's state dict."""
    prefix = f"{embedding.module}." if embedding.module else ""
    return f"{prefix}{'embedding_bags' if embedding.kind == 'bag' else 'embeddings'}.{embedding.name}.weight"


class CheckpointTensors:
    """The tensors of one checkpoint. Reading them raises CheckpointError, with file and block, for corrupt bytes."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.model = manifest.model
        self._records = manifest.by_key()
        # For every bucket of a dynamic table: the number of its rows, and its live rows in the order of their ids.
        self._live: dict[int, tuple[tuple[int, npt.NDArray[np.int64]], ...]] = {
            table.index: tuple(self._live_rows(table, bucket) for bucket in self._buckets(table))
            for table in self.model.tables
            if table.is_dynamic
        }

    def _live_rows(self, table: TableSpec, bucket: int) -> tuple[int, npt.NDArray[np.int64]]:
        ids, seen = self._block("ids", table.index, bucket), self._block("seen", table.index, bucket)
        if ids.shape != seen.shape:
            raise CheckpointError(
                f"{self.directory}: table {table.name!r} bucket {bucket}: the blocks of ids and seen differ in length"
            )
        live = np.flatnonzero(seen)
        return len(seen), live[np.argsort(ids[live])]

    def rows(self, table: TableSpec) -> int:
        """num_embeddings of the table in the plain model, at least 1, because torchrec requires it. A dynamic table has
        its live rows. When a sequence feature reads it, a last row of zeros is added, for ids without a row."""
        if not table.is_dynamic:
            return table.rows
        return max(1, self.ids_count(table) + bool(self.sequence_features(table)))

    def sequence_features(self, table: TableSpec) -> tuple[str, ...]:
        """The features of a dynamic table in which an id without a row keeps its place in the sequence."""
        if not table.is_dynamic:
            return ()
        return tuple(feature for feature in table.features if feature in self.model.sequence_features)

    def ids_count(self, table: TableSpec) -> int:
        return sum(len(live) for _, live in self._live[table.index])

    def weights(self) -> list[TensorSource]:
        """All tensors of the plain model's state dict: dense tensors first, then embeddings."""
        return [*self.dense(), *(self.embedding(e) for e in self.model.embeddings)]

    def embedding(self, embedding: EmbeddingSpec) -> TensorSource:
        """The weights of an embedding, float32 [rows(table), dim]."""
        table = self.model.tables[embedding.table]
        return TensorSource(
            name=weight_name(embedding),
            shape=(self.rows(table), embedding.dim),
            dtype=np.dtype(np.float32),
            chunks=lambda: self._embedding_chunks(embedding, table),
        )

    def ids(self, table: TableSpec) -> TensorSource:
        """The key of each row of a dynamic table, int64 [ids_count(table)]."""
        return TensorSource(
            name=table.name,
            shape=(self.ids_count(table),),
            dtype=np.dtype(np.int64),
            chunks=lambda: self._id_chunks(table),
        )

    def dense(self) -> list[TensorSource]:
        """The dense parameters and buffers, float32, with the names and shapes of the model."""
        spec = self.model.dense
        if not spec.elements:
            return []
        vector = self._block("dense", 0, 0)
        if vector.shape != (spec.elements,):
            raise CheckpointError(
                f"{self.directory}: the dense vector has shape {vector.shape}, not {(spec.elements,)}"
            )
        return [_dense_source(tensor, vector) for tensor in spec.tensors]

    def _buckets(self, table: TableSpec) -> range:
        return range(self.manifest.bucket_counts[table.index])

    def _block(self, kind: BlockKind, owner: int, bucket: int) -> Array:
        return read_block(self.directory, self._records[kind, owner, bucket])

    def _embedding_chunks(self, embedding: EmbeddingSpec, table: TableSpec) -> Iterator[Array]:
        rows = 0
        for bucket in self._buckets(table):
            block = self._block("rows", embedding.index, bucket)
            if block.ndim != 2 or block.shape[1] != embedding.padded_dim:
                raise self._misfit(embedding, bucket, block.shape)
            if table.is_dynamic:
                count, live = self._live[table.index][bucket]
                if count != len(block):
                    raise self._misfit(embedding, bucket, block.shape)
                block = block[live]
            rows += len(block)
            yield np.ascontiguousarray(_float32(block)[:, : embedding.dim])
        missing = self.rows(table) - rows
        if table.is_dynamic and missing:
            yield np.zeros((missing, embedding.dim), dtype=np.float32)
        elif missing:
            raise CheckpointError(f"{self.directory}: embedding {embedding.name!r} has {rows} rows, not {table.rows}")

    def _id_chunks(self, table: TableSpec) -> Iterator[Array]:
        for bucket in self._buckets(table):
            yield self._block("ids", table.index, bucket)[self._live[table.index][bucket][1]]

    def _misfit(self, embedding: EmbeddingSpec, bucket: int, shape: Sequence[int]) -> CheckpointError:
        return CheckpointError(
            f"{self.directory}: rows of embedding {embedding.name!r} bucket {bucket} have the shape {tuple(shape)}, "
            "which does not fit the model"
        )


def _float32(rows: Array) -> Array:
    """Rows as float32. bfloat16 is stored as uint16 and is the upper half of a float32."""
    if rows.dtype != np.uint16:
        return rows
    return (rows.astype(np.uint32) << 16).view(np.float32)


def _dense_source(tensor: DenseTensor, vector: Array) -> TensorSource:
    def chunks() -> Iterator[Array]:
        yield vector[tensor.offset : tensor.offset + tensor.elements].reshape(tensor.shape)

    return TensorSource(tensor.name, tensor.shape, np.dtype(np.float32), chunks)
