"""Datasets: units of samples, read into batches that are ready for a KeyedJaggedTensor.

    api          the interface: Unit, DatasetDescription, SampleBatch, Reader
    settings     the settings of a job that a reader uses   reader_factory     the reader of a format
    reader       one decoded unit at a time -> batches      decoded, tabular, arrow_columns    arrays of a unit
    parquet/     row groups, footers, statistics            kernels/           hashes, ragged columns
    text/        byte ranges of lines, text -> Parquet      synthetic/         generated data with known probabilities
    preflight    finds problems before a job starts         bad_rows, id_ranges    rows that cannot be trained on
    spool/       rows of Python, written once as Parquet
    remote       training data at the rate of a remote store
    sources/     what a worker reads ahead: knobs, memory, connections, meters
    inference/   what a file holds, and the job file that follows from it
    files/       finds the files of a dataset, here or at addresses, and detects changes of them
    file_stamp   size and version of a file
    warm         loads kernels before a fork

Importing this package loads neither pyarrow nor numba; opening a reader does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from elastichost.datasets.api import DatasetDescription, Reader, SampleBatch, Unit
from elastichost.datasets.settings import DataSettings, Split, data_settings
from elastichost.specs import KeyKind

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.datasets.files.pinned import PinnedFiles
    from elastichost.datasets.sources.control import InputControl
    from elastichost.datasets.sources.single_requests import RequestPolicy

__all__ = [
    "DataSettings",
    "DatasetDescription",
    "Reader",
    "SampleBatch",
    "Split",
    "Unit",
    "data_settings",
    "open_reader",
]

NO_KINDS: Mapping[str, tuple[KeyKind, bool]] = MappingProxyType({})


def open_reader(
    job: JobSpec,
    split: Split,
    *,
    files: Sequence[str] | None = None,
    labels_required: bool = True,
    null_kinds: Mapping[str, tuple[KeyKind, bool]] = NO_KINDS,
    pinned: PinnedFiles | None = None,
    control: InputControl | None = None,
    waiting: RequestPolicy | None = None,
) -> Reader:
    """The reader of a job's train or test data. It has not read anything yet.

    `files` (absolute paths or globs) replaces the split's own files. With `labels_required=False` files without
    label columns are allowed, and their labels are NaN. null_kinds: see `DataSettings`. pinned: the files of a run that
    has begun; None: none has. control: the knobs and meters of a worker's input. waiting: how a worker waits for a
    source; None: for a few seconds, as before a run. Raises DataError when a custom reader cannot be loaded."""
    from elastichost.datasets.reader_factory import make_reader  # pyarrow and numba are loaded by this import
    from elastichost.datasets.sources.single_requests import BEFORE_RUN

    stamps = pinned.of(split) if pinned is not None else ()
    settings = data_settings(job, split, files=files, labels_required=labels_required, pinned=stamps)
    settings = replace(settings, null_kinds=null_kinds)
    return make_reader(job, settings, control, waiting or BEFORE_RUN)
