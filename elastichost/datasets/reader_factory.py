"""Makes the reader of one split of a job. Importing this module loads pyarrow and numba."""

from __future__ import annotations

import importlib
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, cast

from elastichost.datasets.api import Reader
from elastichost.datasets.files import cache_directory
from elastichost.datasets.parquet.reader import ParquetDecoder
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.read_ahead import ReadAhead
from elastichost.datasets.sources.settings import cache_bytes, ranges_directory
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.unit_cache import StampedDecoder, UnitCache
from elastichost.datasets.synthetic.reader import SyntheticReader, synthetic_shape
from elastichost.datasets.text.criteo import criteo_decoder
from elastichost.datasets.text.csv import csv_decoder
from elastichost.errors import DataError
from elastichost.user_model.source import import_path

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec

__all__ = ["make_decoder", "make_reader"]


def make_reader(
    job: JobSpec, settings: DataSettings, control: InputControl | None = None, waiting: RequestPolicy = BEFORE_RUN
) -> Reader:
    """The reader of the job's format. control: lets a reader of files decode the next units ahead. waiting: for what
    one connection requests, such as footers. Raises DataError for an unknown format, or a custom reader that cannot be
    loaded."""
    if settings.format == "synthetic":
        return SyntheticReader(synthetic_shape(job.data.synthetic, settings), settings)
    decoder = make_decoder(settings, _connections(job, control), waiting)
    if decoder is None:
        return _custom_reader(job, settings)
    if control is None:
        return UnitReader(decoder)
    cached = decoder if control.shared is None else UnitCache(decoder, settings, control, control.shared)
    return UnitReader(ReadAhead(cached, control))


def _connections(job: JobSpec, control: InputControl | None) -> SourceConnections | None:
    if control is None:
        return None
    given = job.data.input
    cache = (ranges_directory(given, cache_directory(os.environ)), cache_bytes(given))
    control.connections = connections = SourceConnections(control, given.stall_s, given.patience_s, *cache)
    return connections


def make_decoder(
    settings: DataSettings, connections: SourceConnections | None = None, waiting: RequestPolicy = BEFORE_RUN
) -> StampedDecoder | None:
    """The decoder of a built-in file format; None for synthetic data and custom readers. connections: for files at
    URLs; None: one connection at a time, as for checks before a run."""
    match settings.format:
        case "parquet":
            return ParquetDecoder(settings, connections, waiting, cache_directory(os.environ) / "footers")
        case "criteo_tsv":
            return criteo_decoder(settings, os.environ, connections, waiting)
        case "csv":
            return csv_decoder(settings, os.environ, connections, waiting)
        case _:
            return None


def _custom_reader(job: JobSpec, settings: DataSettings) -> Reader:
    """The reader `package.module:Reader`: the result of its call with the job and the split."""
    module_name, _, class_name = settings.format.partition(":")
    known = "parquet, csv, criteo_tsv, synthetic, or package.module:Reader"
    if not module_name or not class_name:
        raise DataError(f"data.format {settings.format!r} is not a format", hint=f"use {known}")
    try:
        with import_path(Path.cwd()):  # as for a module of the model
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise DataError(
            f"data.format {settings.format!r}: the module {module_name} cannot be imported ({error})",
            hint="install it, start elastichost in its folder, or put this folder on PYTHONPATH",
        ) from error
    except Exception as error:
        raise _failed(settings.format, f"the module {module_name} fails when it is imported", error) from error
    reader = getattr(module, class_name, None)
    if not callable(reader):
        raise DataError(
            f"data.format {settings.format!r}: the module {module_name} has no reader {class_name!r}",
            hint="name a class that takes the job and the split, and has the methods describe() and batches()",
        )
    try:
        return cast(Reader, reader(_with_pinned(job, settings), settings.split))
    except DataError:
        raise
    except Exception as error:
        raise _failed(settings.format, f"{class_name}(job, split) fails", error) from error


def _with_pinned(job: JobSpec, settings: DataSettings) -> JobSpec:
    """The job, with the files of the run that has begun in place of its paths and globs."""
    if not settings.pinned:
        return job
    split = "train" if job.data.test_fraction else settings.split
    files = [one.path for one in settings.pinned]
    return job.model_copy(update={"data": job.data.model_copy(update={split: files})})


def _failed(file_format: str, what: str, error: Exception) -> DataError:
    """The error of a custom reader, with the line of code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return DataError(
        f"data.format {file_format!r}: {what}: {type(error).__name__}: {error}",
        hint=f"correct {last.filename}, line {last.lineno}; a reader is called with the job and the split",
    )
