"""Processes that describe a model: they build it once, on the meta device, and send the supervisor its description.

`main` is the probe of a run. `size` and `size_strictly` also measure the tensors of a training step; they are used
before a run, to estimate the memory of the job. `time_steps` measures how long a step takes.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from torch import nn

from elastichost.config.job import JobSpec, load_job
from elastichost.config.tables import resolve_tables
from elastichost.datasets import DatasetDescription, open_reader
from elastichost.host.process_meter import anonymous_bytes
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.specs import ModelSpec, TableSpec
from elastichost.user_model.build import build_model
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import HelloMsg, ModelDescribedMsg
from elastichost.wire.entry import run_child
from elastichost.wire.facts import WorkingSet
from elastichost.wire.sockets import ControlClient
from elastichost.worker.footprint import SAMPLES, working_set
from elastichost.worker.model.dense_vector import describe_dense, initial_vector
from elastichost.worker.model.embedding import describe_embeddings, meta_collections, table_rows
from elastichost.worker.steps.step_times import step_times

__all__ = ["build_and_describe", "build_on_meta", "main", "size", "size_strictly", "time_steps"]

OWN_MODELS = "elastichost.models:"  # the fork server has imported them


def main(arguments_json: bytes) -> int:
    """Entry of the probe of a run: sends ModelDescribedMsg with the initial dense vector. Returns its exit code."""
    return _run(arguments_json, _describe)


def size(arguments_json: bytes) -> int:
    """Entry of the measurement before a run; returns the exit code.

    Sends ModelDescribedMsg with three frames: the initial dense vector, as the probe does, the `WorkingSet` in
    MessagePack, and no times. When the model fails on the first samples, the second frame is null and the message has a
    warning.
    """
    return _run(arguments_json, lambda job, control: _describe_with_sizes(job, control, is_strict=False))


def size_strictly(arguments_json: bytes) -> int:
    """`size` with one full batch of training samples. A model that fails on it is reported as a typed error."""
    return _run(arguments_json, lambda job, control: _describe_with_sizes(job, control, is_strict=True))


def time_steps(arguments_json: bytes) -> int:
    """Entry of the timing before a run: sends the frames of `size` with times, and without a `WorkingSet`. Returns the
    exit code."""
    return _run(arguments_json, _describe_with_times)


def _run(arguments_json: bytes, describe: Callable[[JobSpec, ControlClient], None]) -> int:
    def run(arguments: ChildArguments, control: ControlClient) -> None:
        control.send(HelloMsg(arguments.role, arguments.index, arguments.incarnation, pid=os.getpid()))
        describe(load_job(Path(arguments.run_dir) / RESOLVED_JOB_FILE, environ={}), control)

    return run_child(arguments_json, run)


def build_on_meta(job: JobSpec, description: DatasetDescription) -> tuple[nn.Module, tuple[TableSpec, ...]]:
    """(the user's model, its collections on the meta device, without memory; the job's tables). Raises ModelError."""
    tables = resolve_tables(job, description.key_kinds)
    torch.manual_seed(job.job.seed)
    with meta_collections():
        module = build_model(job, tables, table_rows(tables), description.num_dense, description.num_labels)
    return module, tables


def _describe(job: JobSpec, control: ControlClient) -> None:
    module, model = build_and_describe(job, open_reader(job, "train").describe())
    control.send(ModelDescribedMsg(model=model), (initial_vector(module, model.dense),))


def _describe_with_sizes(job: JobSpec, control: ControlClient, *, is_strict: bool) -> None:
    with _Growth() as of_reader:
        reader = open_reader(job, "train")
        description = reader.describe()
    with _Growth() as of_model:
        module, model = build_and_describe(job, description)
    vector = initial_vector(module, model.dense)
    working: WorkingSet | None = None
    warnings: tuple[str, ...] = ()
    try:
        working = working_set(job, module, model, reader, job.train.batch_size if is_strict else SAMPLES)
    except Exception as error:
        if is_strict:
            raise
        # The description of the model is valid all the same. The run itself reports the failure if it occurs there.
        traceback.print_exc()
        said = str(error).strip().splitlines() or [type(error).__name__]
        warnings = (f"the model fails on the first samples, so the size of its activations is a guess: {said[0]}",)
    frames = (vector, msgspec.msgpack.encode(working), msgspec.msgpack.encode(()))
    message = ModelDescribedMsg(
        model=model,
        warnings=warnings,
        reader_bytes=of_reader.bytes if job.data.has_own_reader else 0,
        model_bytes=0 if job.model.build.startswith(OWN_MODELS) else of_model.bytes,
    )
    control.send(message, frames)


class _Growth:
    """A context manager. `bytes`: by how much the memory of this process grew meanwhile, without files."""

    bytes = 0

    def __enter__(self) -> _Growth:
        self._before = anonymous_bytes(os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = max(0, anonymous_bytes(os.getpid()) - self._before)


def _describe_with_times(job: JobSpec, control: ControlClient) -> None:
    reader = open_reader(job, "train")
    description = reader.describe()
    module, model = build_and_describe(job, description)
    vector = initial_vector(module, model.dense)
    times = step_times(job, reader, lambda trial: build_and_describe(trial, description))
    control.send(ModelDescribedMsg(model=model), (vector, msgspec.msgpack.encode(None), msgspec.msgpack.encode(times)))


def build_and_describe(job: JobSpec, description: DatasetDescription) -> tuple[nn.Module, ModelSpec]:
    """The model of a job on the meta device, and its description. Raises ModelError."""
    module, tables = build_on_meta(job, description)
    model = ModelSpec(
        tables=tables,
        embeddings=describe_embeddings(module, job, tables),
        dense=describe_dense(module),
        num_dense_features=description.num_dense,
        num_labels=description.num_labels,
        list_features=description.multi_valued,
    )
    return module, model
