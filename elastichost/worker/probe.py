"""The probe: builds the user's model once, on the meta device, and tells the supervisor what it consists of."""

from __future__ import annotations

import os
from pathlib import Path

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
from elastichost.wire.sockets import ControlClient
from elastichost.worker.model.dense_vector import describe_dense, initial_vector
from elastichost.worker.model.embedding import describe_embeddings, meta_collections, table_rows

__all__ = ["build_on_meta", "main"]


def main(arguments_json: bytes) -> int:
    """Entry of the probe process; returns its exit code."""

    def run(arguments: ChildArguments, control: ControlClient) -> None:
        control.send(HelloMsg(arguments.role, arguments.index, arguments.incarnation, pid=os.getpid()))
        _describe(load_job(Path(arguments.run_dir) / "job.resolved.toml", environ={}), control)

    return run_child(arguments_json, run)


def build_on_meta(job: JobSpec, description: DatasetDescription) -> tuple[nn.Module, tuple[TableSpec, ...]]:
    """The user's model, its collections without memory, and the job's tables. Raises ModelError."""
    tables = resolve_tables(job, description.key_kinds)
    torch.manual_seed(job.job.seed)
    with meta_collections():
        module = build_model(job, tables, table_rows(tables), description.num_dense, description.num_labels)
    return module, tables


def _describe(job: JobSpec, control: ControlClient) -> None:
    description = open_reader(job, "train").describe()
    module, tables = build_on_meta(job, description)
    embeddings = describe_embeddings(module, job, tables)
    for embedding in embeddings:
        parent = module.get_submodule(embedding.module)
        bags = parent.embedding_bags if embedding.kind == "bag" else parent.embeddings
        bags[embedding.name]._parameters.pop("weight", None)  # type: ignore[union-attr,index]
    dense = describe_dense(module)
    model = ModelSpec(
        tables=tables,
        embeddings=embeddings,
        dense=dense,
        num_dense_features=description.num_dense,
        num_labels=description.num_labels,
    )
    control.send(ModelDescribedMsg(model=model), (initial_vector(module, dense),))
