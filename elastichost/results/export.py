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
vectors/            the vectors that the model computes, such as those of an item tower
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from elastichost import models
from elastichost.atomic_write import cause_words, is_out_of_space
from elastichost.datasets.files import read_pinned
from elastichost.errors import ConfigError, ElastichostError, ModelError
from elastichost.results.assemble import CheckpointTensors, find_checkpoint, load_run_job
from elastichost.results.description import ExportFormat, Preprocess, describe
from elastichost.results.embeddings import check_tables, write_embeddings
from elastichost.results.readme import readme
from elastichost.results.safetensors_file import write_safetensors
from elastichost.results.vector_files import VectorFile, check_vectors
from elastichost.user_model.fresh_modules import no_modules_of
from elastichost.user_model.source import BuildSpec, imported_files, local_module, parse_build_spec, source_file

__all__ = ["ExportReport", "export"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export. `id`: that of the export in `preprocess.json`. `table_rows`: rows of every table in the
    exported model. `embeddings`, `vectors`: the files with vectors. `warnings`: one line each."""

    directory: Path
    checkpoint: Path
    samples_trained: int
    id: str
    format: ExportFormat
    table_rows: tuple[tuple[str, int], ...]
    model_bytes: int
    ids_bytes: int
    embeddings: tuple[Path, ...]
    vectors: tuple[Path, ...]
    warnings: tuple[str, ...]


def export(
    run_dir: Path,
    destination: Path,
    checkpoint: Path | None = None,
    *,
    best: bool = False,
    format: ExportFormat = "torchrec",  # noqa: A002 - the name of the option
    embeddings: Sequence[str] = (),
    vectors: Mapping[str, str | os.PathLike[str]] = MappingProxyType({}),
) -> ExportReport:
    """Exports the newest good checkpoint of a run (or the given one, or with `best` the one of the best evaluation by
    `checkpoint.keep_best`) to `destination`, which must be empty or not exist. The directory appears only when it is
    complete. `embeddings`: tables whose vectors are written beside the model, see `write_embeddings`. `vectors`: by
    column of ids a Parquet file, for whose rows the model's method `vectors` is called, see `write_vectors`.

    The memory needed is that of one bucket, for tables of any size; format "pt2" and `vectors` need the whole model in
    memory. Raises ConfigError (no run, destination in use, no such table or column), CheckpointError, ModelError (the
    model's source is missing; it cannot be exported as a program; it computes no such vectors), DataError
    (`embeddings`: the training data cannot be read; `vectors`: the file cannot be read or lacks a column).
    """
    job, destination = load_run_job(run_dir), destination.resolve()
    _check_free(destination)
    found = find_checkpoint(run_dir, job, checkpoint, best=best)
    tensors = CheckpointTensors(found.directory, found.manifest)
    wanted = check_tables(tensors.model, embeddings)
    vector_files = check_vectors(vectors, job.data.categorical)
    parsed = parse_build_spec(job.model.build, run_dir)
    partial = destination.with_name(f".{destination.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        source = _copy_source(parsed, run_dir, partial)
        model_bytes, ids_bytes = _write_tensors(tensors, partial)
        preprocess = describe(job, found.manifest, tensors, parsed, source, format)
        _write_description(partial, preprocess)
        for name in ("reader.py", "preprocess.py"):
            shutil.copyfile(Path(__file__).with_name(name), partial / name)
        computed = _write_vectors(partial, vector_files)
        if format == "pt2":
            model_bytes = _to_program(partial, preprocess)
        written = write_embeddings(job, tensors, wanted, partial / "embeddings", read_pinned(run_dir).train)
        partial.rename(destination)
    except OSError as error:
        raise _cannot_write(destination, error) from error
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
        embeddings=tuple(destination / "embeddings" / name for name in written.files),
        vectors=tuple(destination / "vectors" / name for name in computed),
        warnings=(*found.warnings, *written.warnings, *([] if source or format == "pt2" else [missing])),
    )


def _check_free(destination: Path) -> None:
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ConfigError(f"{destination} exists already", hint="name a directory that does not exist yet")


def _cannot_write(destination: Path, error: OSError) -> ElastichostError:
    hint = "free some disk space" if is_out_of_space(error) else "choose a place that you may write to"
    return ElastichostError(f"cannot export to {destination}: {cause_words(error)}", hint=hint)


def _write_description(directory: Path, preprocess: Preprocess) -> None:
    content = msgspec.json.format(msgspec.json.encode(preprocess), indent=2) + b"\n"
    (directory / "preprocess.json").write_bytes(content)
    (directory / "README.md").write_text(readme(preprocess), encoding="utf-8")


def _write_vectors(directory: Path, files: Sequence[VectorFile]) -> tuple[str, ...]:
    if not files:
        return ()
    from elastichost.results.vectors import write_vectors  # loads torch

    with no_modules_of(directory):
        return write_vectors(directory, files, directory / "vectors")


def _to_program(directory: Path, preprocess: Preprocess) -> int:
    """Replaces weights and code in `directory` by one program. Returns its size in bytes. Raises ModelError."""
    from elastichost.results.program import write_program  # loads torch

    with no_modules_of(directory):
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
    file, root = _source_of(parsed, run_dir)
    if file is None:
        return ""
    (directory / "source").mkdir()
    for path in imported_files(file, root):
        copy = directory / "source" / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return f"source/{file.relative_to(root)}"


def _source_of(parsed: BuildSpec, run_dir: Path) -> tuple[Path | None, Path]:
    """(the file of the model, the folder from which it imports). A module may be in the working directory, as it was
    for the run; None: it is installed, and is not copied. Raises ModelError."""
    here = Path.cwd()
    if parsed.file is not None:
        return source_file(parsed, run_dir), parsed.file.parent
    is_own = parsed.module.partition(".")[0] == models.__name__.partition(".")[0]  # in a checkout
    if not is_own and (file := local_module(parsed.module, here)) is not None:
        return file, here
    try:
        source_file(parsed, here)
    except ModelError as error:
        hint = "call this in the directory in which the run was started, or install the package into this environment"
        raise ModelError(error.message, hint=hint) from None
    return None, here
