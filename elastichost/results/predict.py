"""`elastichost predict`: scores a file with a run's newest checkpoint, in one process and without parameter servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import nn

from elastichost.atomic_write import cause_words
from elastichost.config.job import JobSpec
from elastichost.datasets import open_reader
from elastichost.datasets.api import DatasetDescription, Reader, SampleBatch
from elastichost.datasets.files import PinnedFiles, absolute_name, base_name, is_url, named_file
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.errors import ConfigError, DataError, ElastichostError, IdOutOfRangeError
from elastichost.quality.binary import QualityReport, evaluate_labels, probabilities
from elastichost.results.assemble import CheckpointTensors, find_checkpoint, load_run_job
from elastichost.results.preprocess import IdTable, kind_words
from elastichost.results.reader import leave_last_row_out, with_all_names
from elastichost.specs import KeyKind, ModelSpec, TableSpec
from elastichost.user_model.build import build_model, user_error
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import NOTHING_PULLED
from elastichost.worker.model.embedding import meta_collections
from elastichost.worker.steps.model_runner import ModelRunner

__all__ = ["PredictReport", "load_trained_model", "predict"]

BATCH_SIZE = 4096


@dataclass(frozen=True, slots=True)
class PredictReport:
    """The result of scoring. `quality`: one report for each label column; empty when the file has no labels."""

    output: Path
    checkpoint: Path
    samples: int
    labels: tuple[str, ...]
    quality: tuple[QualityReport, ...]
    wall_s: float
    warnings: tuple[str, ...]


def predict(
    run_dir: Path,
    data_file: str | os.PathLike[str],
    output: Path,
    checkpoint: Path | None = None,
    *,
    best: bool = False,
    waiting: RequestPolicy = BEFORE_RUN,
) -> PredictReport:
    """Scores every row of `data_file` (a path or an address), which has the job's format and may lack labels. It writes
    `output`, a Parquet file or, with the suffix .csv, a CSV file: `row` int64, `probability` float32, and `label`
    float32 when there are labels. With several labels the columns are `probability_<name>` and `label_<name>`. Where
    the file has the weights of the job, the metrics are weighted, as in training. The file appears only when it is
    complete. best: with the checkpoint of the best evaluation by `checkpoint.keep_best`, instead of the newest one. The
    model computes in float32 whatever `train.precision` says, so that every CPU gives the same scores.

    Raises ConfigError, DataError (also for a bad row: a row without a score would shift the others), CheckpointError,
    ModelError.
    """
    began_s = perf_counter()
    make_writer = _writer_for(output)
    trained = load_run_job(run_dir)
    stored = named_file(absolute_name(data_file), waiting=waiting)
    file = stored.path
    if not is_url(file) and output.resolve() == Path(file).resolve():
        raise ConfigError(f"{file}: the scores would replace the rows that they are of", hint="name another output")
    job = _scoring_job(trained, file)
    found = find_checkpoint(run_dir, job, checkpoint, best=best)
    only = PinnedFiles(test=(stored,))  # a name is no glob here
    kinds = _trained_kinds(found.manifest.model)
    reader = open_reader(
        job, "test", files=[file], labels_required=False, null_kinds=kinds, pinned=only, waiting=waiting
    )
    description = reader.describe()
    _check_kinds(found.manifest.model, description, file)
    tensors = CheckpointTensors(found.directory, found.manifest)
    model = load_trained_model(job, tensors).eval()
    runner = ModelRunner(model, job.data.categorical, job.model.outputs, torch.device("cpu"))
    rows = _CheckpointRows(job, tensors, file)
    batches = _batches(reader, description)
    first = next(batches, None)
    has_labels = first is not None and not np.isnan(first[1].labels).any()
    columns = _ScoreColumns(job.data.labels, has_labels)
    with _written(output, make_writer, columns.schema) as writer:
        for row, batch in chain([] if first is None else [first], batches):
            logits = _scores(runner, rows.prepare(batch), row).reshape(batch.labels.shape)
            writer.write_table(columns.add(row, logits, batch))
    return PredictReport(
        output=output,
        checkpoint=found.directory,
        samples=columns.samples,
        labels=job.data.labels if has_labels else (),
        quality=columns.quality(),
        wall_s=perf_counter() - began_s,
        warnings=(*found.warnings, *description.warnings, *runner.warnings),
    )


def _scores(runner: ModelRunner, batch: PreparedBatch, row: int) -> npt.NDArray[np.float32]:
    """The logits of a batch. row: that of its first sample in the file. Raises ModelError, also when the model fails at
    a later batch than its first."""
    try:
        return runner.scores(batch).logits
    except ElastichostError:
        raise
    except Exception as error:  # whatever the user's model raises
        raise user_error(
            f"the model's forward failed for {batch.samples.size} samples from row {row} on", error
        ) from error


def load_trained_model(job: JobSpec, tensors: CheckpointTensors) -> nn.Module:
    """The user's model as plain torchrec, with the weights of the checkpoint. Raises ElastichostError when the model's
    code does not fit the checkpoint, ModelError when it fails."""
    spec = tensors.model
    rows = {table.name: tensors.rows(table) for table in spec.tables}
    with meta_collections():
        model = build_model(job, spec.tables, rows, spec.num_dense_features, spec.num_labels)
    state = with_all_names(model, {one.name: torch.from_numpy(one.array()) for one in tensors.weights()})
    own = model.state_dict()
    # Integer buffers are constants of the model's code; they are not in checkpoints.
    missing = sorted(name for name, value in own.items() if name not in state and value.is_floating_point())
    unexpected = sorted(name for name in state if name not in own or own[name].shape != state[name].shape)
    if missing or unexpected:
        raise ElastichostError(
            f"{job.model.build} builds another model than that of the checkpoint: {', '.join([*missing, *unexpected])} "
            "differ",
            hint="restore the code and the packages with which the run was trained",
        )
    model.load_state_dict(state, strict=False, assign=True)
    leave_last_row_out(model, {name for table in spec.tables for name in tensors.sequence_features(table)})
    return model


def _scoring_job(job: JobSpec, data_file: str) -> JobSpec:
    """The run's job with changes for scoring: bad rows stop it. A Parquet file can be scored whatever the training data
    were, because it has the types of its columns."""
    changes: dict[str, object] = {"bad_rows": "stop"}
    is_parquet = base_name(data_file).endswith(".parquet")
    if job.data.format == "synthetic" and not is_parquet:
        raise ConfigError(f"{data_file}: the run was trained on synthetic data; only Parquet files can be scored")
    if job.data.format in ("csv", "criteo_tsv", "synthetic") and is_parquet:
        changes["format"] = "parquet"
    return job.model_copy(update={"data": job.data.model_copy(update=changes)})


def _trained_kinds(model: ModelSpec) -> dict[str, tuple[KeyKind, bool]]:
    """Categorical column -> (kind of its ids, whether it held lists in training)."""
    lists = model.list_features or ()
    return {name: (table.key_kind, name in lists) for table in model.tables for name in table.features}


def _check_kinds(model: ModelSpec, description: DatasetDescription, data_file: str) -> None:
    """Raises DataError for a column of another kind than in training, in the words of an export's `Preprocessor`."""
    for table in model.tables:
        for feature in table.features:
            is_list = feature in description.multi_valued
            was_list = None if model.list_features is None else feature in model.list_features
            if description.key_kinds[feature] != table.key_kind or is_list != (
                is_list if was_list is None else was_list
            ):
                given = kind_words(description.key_kinds[feature], is_list)
                raise DataError(
                    f"{data_file}, column {feature!r} holds {given}; the run was trained on "
                    f"{kind_words(table.key_kind, was_list)}",
                    hint="write the column with the type of the training data: an int and a string are different keys",
                )


def _ids(tensors: CheckpointTensors, table: TableSpec) -> npt.NDArray[np.int64] | None:
    return np.asarray(tensors.ids(table).array(), dtype=np.int64) if table.is_dynamic else None


class _CheckpointRows:
    """Maps the keys of a batch to rows of the plain model, in the same way as the export's reader."""

    def __init__(self, job: JobSpec, tensors: CheckpointTensors, data_file: str) -> None:
        self._features = job.data.categorical
        self._file = data_file
        self._tables = [next(t for t in tensors.model.tables if name in t.features) for name in self._features]
        ids = {table.index: _ids(tensors, table) for table in tensors.model.tables}
        self._ids = {
            feature: IdTable(
                tensors.rows(table),
                is_string=table.key_kind == "string",
                modulo=table.out_of_range == "modulo",
                ids=ids[table.index],
                keeps_places=feature in tensors.sequence_features(table),
            )
            for table in tensors.model.tables
            for feature in table.features
        }

    def prepare(self, batch: SampleBatch) -> PreparedBatch:
        """The batch with rows instead of keys. Raises IdOutOfRangeError."""
        lengths = batch.lengths.astype(np.int64)
        bounds = np.concatenate(([0], np.cumsum(lengths.reshape(len(self._features), batch.size).sum(axis=1))))
        values = np.empty(len(batch.keys), dtype=np.int64)
        for number, table in enumerate(self._tables):
            part = slice(bounds[number], bounds[number + 1])
            values[part] = self._ids[self._features[number]].rows_of(batch.keys[part])
            if (values[part] == IdTable.OUT_OF_RANGE).any():
                self._refuse(number, table, batch.keys[part][values[part] == IdTable.OUT_OF_RANGE])
        known = values >= 0
        bag = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(bag[known], minlength=len(lengths))
        return PreparedBatch(
            samples=batch,
            lease_id=0,
            epoch=0,
            values=values[known],
            lengths=lengths,
            offsets=np.concatenate(([0], np.cumsum(lengths))),
            length_per_key=lengths.reshape(len(self._features), batch.size).sum(axis=1).tolist(),
            pulled=NOTHING_PULLED,
            lookup_s=0.0,
        )

    def _refuse(self, number: int, table: TableSpec, bad: npt.NDArray[np.int64]) -> None:
        raise IdOutOfRangeError(
            f"{self._file}, column {self._features[number]!r}: id {bad[0]} is outside table {table.name!r}, which has "
            f"rows 0 to {table.rows - 1}"
        )


class _ScoreColumns:
    """Makes the columns of the output, and keeps logits, labels and weights for the metrics: two float32 per sample and
    label, and one per sample."""

    def __init__(self, labels: Sequence[str], has_labels: bool) -> None:
        suffixes = [""] if len(labels) == 1 else [f"_{name}" for name in labels]
        self._has_labels = has_labels
        self._logits: list[npt.NDArray[np.float32]] = []
        self._labels: list[npt.NDArray[np.float32]] = []
        self._weights: list[npt.NDArray[np.float32]] = []
        names = [*(f"probability{s}" for s in suffixes), *(f"label{s}" for s in suffixes if has_labels)]
        self.schema = pa.schema([("row", pa.int64()), *((name, pa.float32()) for name in names)])
        self.samples = 0

    def add(self, first_row: int, logits: npt.NDArray[np.float32], batch: SampleBatch) -> pa.Table:
        self.samples += batch.size
        columns = [np.arange(first_row, first_row + batch.size, dtype=np.int64)]
        columns += list(np.ascontiguousarray(probabilities(logits).astype(np.float32).T))
        if self._has_labels:
            columns += list(np.ascontiguousarray(batch.labels.T))
            self._logits.append(logits)
            self._labels.append(batch.labels)
            if batch.weights is not None:
                self._weights.append(batch.weights)
        return pa.table(columns, schema=self.schema)

    def quality(self) -> tuple[QualityReport, ...]:
        if not self._logits:
            return ()
        weights = np.concatenate(self._weights) if self._weights else None
        return evaluate_labels(np.concatenate(self._logits), np.concatenate(self._labels), weights)


def _batches(reader: Reader, description: DatasetDescription) -> Iterator[tuple[int, SampleBatch]]:
    """(row number of the first sample, batch) for all batches, in file order."""
    for unit in description.units:
        for batch in reader.batches(unit, 0, unit.samples, BATCH_SIZE):
            if batch.size:
                yield unit.first_sample + batch.start, batch


def _writer_for(output: Path) -> Callable[[Path, pa.Schema], Any]:
    """The writer of the format that the suffix of `output` names. Raises ConfigError for another suffix."""
    writers: dict[str, Callable[[Path, pa.Schema], Any]]
    writers = {".csv": pa.csv.CSVWriter, ".parquet": pq.ParquetWriter, "": pq.ParquetWriter}
    if output.suffix in writers:
        return writers[output.suffix]
    raise ConfigError(f"scores cannot be written to {output}", hint="the suffix names the format: .parquet or .csv")


@contextmanager
def _written(output: Path, make_writer: Callable[[Path, pa.Schema], Any], schema: pa.Schema) -> Iterator[Any]:
    """Writes a partial file beside `output`, and renames it at the end. Raises ElastichostError, with the file, for
    errors of the disk."""
    partial = output.with_name(f".{output.name}.partial-{os.getpid()}")
    try:
        with make_writer(partial, schema) as writer:
            yield writer
        descriptor = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(output)
    except OSError as error:
        raise ElastichostError(
            f"cannot write {output}: {cause_words(error)}", hint="name another file with -o"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
