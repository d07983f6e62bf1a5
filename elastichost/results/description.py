"""`preprocess.json`: how samples become inputs of an exported model."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from elastichost.checkpoint.format import Manifest
from elastichost.config.job import JobSpec
from elastichost.config.tables import table_settings
from elastichost.results.assemble import CheckpointTensors
from elastichost.results.preprocess import SCHEMA
from elastichost.specs import KeyKind, TableSpec
from elastichost.user_model.build import torchrec_names
from elastichost.user_model.source import BuildSpec

__all__ = ["ExportFormat", "ExportedModel", "ExportedTable", "Preprocess", "describe"]

ExportFormat = Literal["torchrec", "pt2"]
IdRule = Literal["dynamic", "range", "modulo", "hash_modulo"]


class ExportedTable(msgspec.Struct, frozen=True):
    """One table of an export. `torchrec_name`: its name in the model's code. `rule`: how an id becomes a row:

    dynamic      the position of the key in ids.safetensors. Unknown ids are left out of their bag. In
                 `sequence_features` they get the last row instead, which is zeros and which bags leave out
    range        row = id; an id outside [0, rows) is an error
    modulo       row = id mod rows
    hash_modulo  row = (XXH64 as uint64) mod rows
    """

    name: str
    torchrec_name: str
    features: tuple[str, ...]
    key_kind: KeyKind
    rule: IdRule
    rows: int
    dim: int
    pooling: str
    sequence_features: tuple[str, ...]


class ExportedModel(msgspec.Struct, frozen=True):
    """The model's code in an export. `source`: the file to load, relative to the directory; "": `module` of an
    installed package is imported instead. `needs_fbgemm`: whether a program uses operators of fbgemm."""

    build: str
    source: str
    module: str
    function: str
    args: dict[str, Any]
    outputs: str
    needs_fbgemm: bool = False


class Preprocess(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `preprocess.json`. `id`: equal for exports of one checkpoint in one format. `features`: the keys
    of the KeyedJaggedTensor, in order. `list_features`: those that hold lists of ids; None: not known, both are
    accepted."""

    schema: str = SCHEMA
    id: str
    format: ExportFormat
    job: str
    samples_trained: int
    model: ExportedModel
    num_dense: int
    num_labels: int
    labels: tuple[str, ...]
    dense: tuple[str, ...]
    dense_transform: str
    null_fill: float
    features: tuple[str, ...]
    list_features: tuple[str, ...] | None
    string_hash: str = "XXH64 seed 0 of the UTF-8 bytes, reinterpreted as int64"
    null_id: str = "an empty bag"
    tables: tuple[ExportedTable, ...]


def describe(
    job: JobSpec,
    manifest: Manifest,
    tensors: CheckpointTensors,
    parsed: BuildSpec,
    source: str,
    form: ExportFormat,
) -> Preprocess:
    """The description of an export. source: the file with the model's code in it; "" for an installed package."""
    model = ExportedModel(
        build=job.model.build,
        source=source,
        module=parsed.module,
        function=parsed.function,
        args=job.model.args,
        outputs=job.model.outputs,
    )
    names = torchrec_names(manifest.model.tables)
    lists = manifest.model.list_features
    identity = msgspec.json.encode(manifest) + form.encode()  # the manifest has checksums of all weights
    return Preprocess(
        id=hashlib.sha256(identity).hexdigest()[:16],
        format=form,
        job=manifest.job_name,
        samples_trained=manifest.samples_trained,
        model=model,
        num_dense=manifest.model.num_dense_features,
        num_labels=manifest.model.num_labels,
        labels=job.data.labels,
        dense=job.data.dense,
        dense_transform=job.data.dense_transform,
        null_fill=job.data.null_fill,
        features=job.data.categorical,
        list_features=None if lists is None else tuple(name for name in job.data.categorical if name in lists),
        tables=tuple(_table(job, table, names[table.name], tensors) for table in manifest.model.tables),
    )


def _table(job: JobSpec, table: TableSpec, torchrec_name: str, tensors: CheckpointTensors) -> ExportedTable:
    settings = table_settings(job, table.name)
    return ExportedTable(
        name=table.name,
        torchrec_name=torchrec_name,
        features=table.features,
        key_kind=table.key_kind,
        rule=_rule(table),
        rows=tensors.rows(table),
        dim=settings.dim,
        pooling=settings.pooling,
        sequence_features=tensors.sequence_features(table),
    )


def _rule(table: TableSpec) -> IdRule:
    if table.is_dynamic:
        return "dynamic"
    if table.key_kind == "string":
        return "hash_modulo"
    return "modulo" if table.out_of_range == "modulo" else "range"
