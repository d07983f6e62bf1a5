"""`elastichost export`: writes a trained model to a directory that can be used without elastichost.

model.safetensors   format "torchrec": all weights, with torchrec's names
models/ or source/  format "torchrec": the model's code
model.pt2           format "pt2": weights and operations as one program of torch.export
ids.safetensors     one int64 tensor for each dynamic table: the key of each row
preprocess.json     how samples become inputs of the model: columns, kinds of ids, rules
preprocess.py       applies these rules
reader.py           loads the model and scores Parquet tables, without elastichost
README.md           how to load it
embeddings/         the vectors of the tables that were asked for
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from elastichost import models
from elastichost.atomic_write import cause_words, is_out_of_space
from elastichost.checkpoint.format import Manifest
from elastichost.config.job import JobSpec
from elastichost.config.tables import table_settings
from elastichost.errors import ConfigError, ElastichostError
from elastichost.results.assemble import CheckpointTensors, find_checkpoint, load_run_job
from elastichost.results.embeddings import check_tables, write_embeddings
from elastichost.results.preprocess import SCHEMA
from elastichost.results.readme import readme
from elastichost.results.safetensors_file import write_safetensors
from elastichost.specs import KeyKind, TableSpec
from elastichost.user_model.build import torchrec_names
from elastichost.user_model.source import BuildSpec, local_sources, parse_build_spec, source_file

__all__ = ["ExportFormat", "ExportReport", "Preprocess", "export"]

ExportFormat = Literal["torchrec", "pt2"]
IdRule = Literal["dynamic", "range", "modulo", "hash_modulo"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export. `id`: that of the export in `preprocess.json`. `table_rows`: rows of every table in the
    exported model. `embeddings`: the files with vectors. `warnings`: one line each."""

    directory: Path
    checkpoint: Path
    samples_trained: int
    id: str
    format: ExportFormat
    table_rows: tuple[tuple[str, int], ...]
    model_bytes: int
    ids_bytes: int
    embeddings: tuple[Path, ...]
    warnings: tuple[str, ...]


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


def export(
    run_dir: Path,
    destination: Path,
    checkpoint: Path | None = None,
    *,
    format: ExportFormat = "torchrec",  # noqa: A002 - the name of the option
    embeddings: Sequence[str] = (),
) -> ExportReport:
    """Exports the newest good checkpoint of a run (or the given one) to `destination`, which must be empty or not
    exist. The directory appears only when it is complete. `embeddings`: tables whose vectors are written beside the
    model, see `write_embeddings`.

    The memory needed is that of one bucket, for tables of any size; format "pt2" needs the whole model in memory.
    Raises ConfigError (no run, destination in use, no such table), CheckpointError, ModelError (the model's source is
    missing; it cannot be exported as a program), DataError (`embeddings`: the training data cannot be read).
    """
    job = load_run_job(run_dir)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ConfigError(f"{destination} exists already", hint="name a directory that does not exist yet")
    found = find_checkpoint(run_dir, job, checkpoint)
    tensors = CheckpointTensors(found.directory, found.manifest)
    wanted = check_tables(tensors.model, embeddings)
    parsed = parse_build_spec(job.model.build, run_dir)
    partial = destination.with_name(f".{destination.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        source = _copy_source(parsed, run_dir, partial)
        model_bytes, ids_bytes = _write_tensors(tensors, partial)
        preprocess = _describe(job, found.manifest, tensors, parsed, source, format)
        _write_description(partial, preprocess)
        for name in ("reader.py", "preprocess.py"):
            shutil.copyfile(Path(__file__).with_name(name), partial / name)
        if format == "pt2":
            model_bytes = _to_program(partial, preprocess)
        vectors = write_embeddings(job, tensors, wanted, partial / "embeddings")
        partial.rename(destination)
    except OSError as error:
        hint = "free some disk space" if is_out_of_space(error) else "choose a place that you may write to"
        raise ElastichostError(f"cannot export to {destination}: {cause_words(error)}", hint=hint) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    missing = f"the model's code is in the installed package {parsed.module!r} and was not copied"
    return ExportReport(
        directory=destination,
        checkpoint=found.directory,
        samples_trained=found.manifest.samples_trained,
        id=preprocess.id,
        format=format,
        table_rows=tuple((table.name, tensors.rows(table)) for table in found.manifest.model.tables),
        model_bytes=model_bytes,
        ids_bytes=ids_bytes,
        embeddings=tuple(destination / "embeddings" / name for name in vectors.files),
        warnings=(*found.warnings, *vectors.warnings, *([] if source or format == "pt2" else [missing])),
    )


def _write_description(directory: Path, preprocess: Preprocess) -> None:
    content = msgspec.json.format(msgspec.json.encode(preprocess), indent=2) + b"\n"
    (directory / "preprocess.json").write_bytes(content)
    (directory / "README.md").write_text(readme(preprocess), encoding="utf-8")


def _to_program(directory: Path, preprocess: Preprocess) -> int:
    """Replaces weights and code in `directory` by one program. Returns its size in bytes. Raises ModelError."""
    from elastichost.results.program import write_program  # loads torch

    needs_fbgemm = write_program(directory, preprocess.model.build)
    (directory / "model.safetensors").unlink()
    for name in ("models", "source"):
        shutil.rmtree(directory / name, ignore_errors=True)
    model = msgspec.structs.replace(preprocess.model, source="", needs_fbgemm=needs_fbgemm)
    _write_description(directory, msgspec.structs.replace(preprocess, model=model))
    return (directory / "model.pt2").stat().st_size


def _write_tensors(tensors: CheckpointTensors, directory: Path) -> tuple[int, int]:
    metadata = {"format": "pt", "samples_trained": str(tensors.manifest.samples_trained)}
    model_bytes = write_safetensors(directory / "model.safetensors", tensors.weights(), metadata)
    dynamic = [tensors.ids(table) for table in tensors.model.tables if table.is_dynamic]
    ids_bytes = write_safetensors(directory / "ids.safetensors", dynamic, metadata) if dynamic else 0
    return model_bytes, ids_bytes


def _copy_source(parsed: BuildSpec, run_dir: Path, directory: Path) -> str:
    """Copies the model's code. Returns the file to load, relative to `directory`; "" for an installed package."""
    if parsed.module == models.__name__:
        folder = Path(models.__file__).parent
        shutil.copytree(folder, directory / "models", ignore=shutil.ignore_patterns("__pycache__"))
        return "models/__init__.py"
    file = source_file(parsed, run_dir)
    if parsed.file is None or file is None:
        return ""
    (directory / "source").mkdir()
    for path in (file, *local_sources(file)):
        shutil.copyfile(path, directory / "source" / path.name)
    return f"source/{file.name}"


def _describe(
    job: JobSpec,
    manifest: Manifest,
    tensors: CheckpointTensors,
    parsed: BuildSpec,
    source: str,
    format: ExportFormat,  # noqa: A002
) -> Preprocess:
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
    identity = msgspec.json.encode(manifest) + format.encode()  # the manifest has checksums of all weights
    return Preprocess(
        id=hashlib.sha256(identity).hexdigest()[:16],
        format=format,
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
