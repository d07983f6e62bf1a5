"""Processes that describe a model: build it once, on the meta device, and tell the supervisor what it consists of;
before a run also what it computes with."""

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

__all__ = ["build_on_meta", "main", "size", "size_strictly"]


def main(arguments_json: bytes) -> int:
    """Entry of the probe of a run; returns its exit code."""
    return _run(arguments_json, _describe)


def size(arguments_json: bytes) -> int:
    """Entry before a run. The supervisor gets ModelDescribedMsg with two frames: the initial dense vector, as from the
    probe, and the `WorkingSet` (MessagePack), or null with a warning when the model fails on the first samples."""
    return _run(arguments_json, lambda job, control: _describe_with_sizes(job, control, is_strict=False))


def size_strictly(arguments_json: bytes) -> int:
    """As `size`, with a whole batch of training samples; a model that fails on it is reported as a typed error."""
    return _run(arguments_json, lambda job, control: _describe_with_sizes(job, control, is_strict=True))


def _run(arguments_json: bytes, describe: Callable[[JobSpec, ControlClient], None]) -> int:
    def run(arguments: ChildArguments, control: ControlClient) -> None:
        control.send(HelloMsg(arguments.role, arguments.index, arguments.incarnation, pid=os.getpid()))
        describe(load_job(Path(arguments.run_dir) / "job.resolved.toml", environ={}), control)

    return run_child(arguments_json, run)


def build_on_meta(job: JobSpec, description: DatasetDescription) -> tuple[nn.Module, tuple[TableSpec, ...]]:
    """The user's model, its collections without memory, and the job's tables. Raises ModelError."""
    tables = resolve_tables(job, description.key_kinds)
    torch.manual_seed(job.job.seed)
    with meta_collections():
        module = build_model(job, tables, table_rows(tables), description.num_dense, description.num_labels)
    return module, tables


def _describe(job: JobSpec, control: ControlClient) -> None:
    module, model = _built(job, open_reader(job, "train").describe())
    control.send(ModelDescribedMsg(model=model), (initial_vector(module, model.dense),))


def _describe_with_sizes(job: JobSpec, control: ControlClient, *, is_strict: bool) -> None:
    reader = open_reader(job, "train")
    module, model = _built(job, reader.describe())
    vector = initial_vector(module, model.dense)
    working: WorkingSet | None = None
    warnings: tuple[str, ...] = ()
    try:
        working = working_set(job, module, model, reader, job.train.batch_size if is_strict else SAMPLES)
    except Exception as error:
        if is_strict:
            raise
        # A run would say it with its own samples and rows; the model itself is known.
        traceback.print_exc()
        said = str(error).strip().splitlines() or [type(error).__name__]
        warnings = (f"the model fails on the first samples, so its activations are guessed: {said[0]}",)
    control.send(ModelDescribedMsg(model=model, warnings=warnings), (vector, msgspec.msgpack.encode(working)))


def _built(job: JobSpec, description: DatasetDescription) -> tuple[nn.Module, ModelSpec]:
    module, tables = build_on_meta(job, description)
    model = ModelSpec(
        tables=tables,
        embeddings=describe_embeddings(module, job, tables),
        dense=describe_dense(module),
        num_dense_features=description.num_dense,
        num_labels=description.num_labels,
    )
    return module, model
