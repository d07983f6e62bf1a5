"""Entry of a process that describes a model before a run of it: what the probe says, and what it computes with."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec, load_job
from elastichost.datasets import open_reader
from elastichost.specs import ModelSpec
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import HelloMsg, ModelDescribedMsg
from elastichost.wire.entry import run_child
from elastichost.wire.facts import WorkingSet
from elastichost.wire.sockets import ControlClient
from elastichost.worker.footprint import SAMPLES, working_set
from elastichost.worker.model.dense_vector import describe_dense, initial_vector
from elastichost.worker.model.embedding import describe_embeddings
from elastichost.worker.probe import build_on_meta

__all__ = ["main", "main_strict"]


def main(arguments_json: bytes) -> int:
    """Returns the exit code. The supervisor gets ModelDescribedMsg with two frames: the initial dense vector, as from
    the probe, and the `WorkingSet` (MessagePack), or null with a warning when the model fails on the first samples."""
    return _run(arguments_json, is_strict=False)


def main_strict(arguments_json: bytes) -> int:
    """As `main`, with a whole batch of training samples; a model that fails on it is reported as a typed error."""
    return _run(arguments_json, is_strict=True)


def _run(arguments_json: bytes, *, is_strict: bool) -> int:
    def run(arguments: ChildArguments, control: ControlClient) -> None:
        control.send(HelloMsg(arguments.role, arguments.index, arguments.incarnation, pid=os.getpid()))
        _describe(load_job(Path(arguments.run_dir) / "job.resolved.toml", environ={}), control, is_strict=is_strict)

    return run_child(arguments_json, run)


def _describe(job: JobSpec, control: ControlClient, *, is_strict: bool) -> None:
    reader = open_reader(job, "train")
    description = reader.describe()
    module, tables = build_on_meta(job, description)
    embeddings = describe_embeddings(module, job, tables)
    dense = describe_dense(module)
    model = ModelSpec(
        tables=tables,
        embeddings=embeddings,
        dense=dense,
        num_dense_features=description.num_dense,
        num_labels=description.num_labels,
    )
    vector = initial_vector(module, dense)
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
