"""Finds every problem with a job's data before any process is started: checks footers, indexes, statistics, first
rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastichost.config.metric_names import group_columns
from elastichost.datasets.api import DatasetDescription, Reader
from elastichost.datasets.files import NOT_PINNED, FileStamp, PinnedFiles, is_url
from elastichost.datasets.reader import Inspection, UnitReader, ValueFindings, problem_list
from elastichost.datasets.reader_factory import make_reader
from elastichost.datasets.settings import Split, data_settings
from elastichost.errors import DataError, SourceGoneError
from elastichost.specs import TableSpec

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec

__all__ = ["DatasetCheck", "check_data"]


@dataclass(frozen=True, slots=True)
class DatasetCheck:
    """The result of the check of a job's data. `test` is None when the job names no test data. files: those that were
    checked, by which a run names its files."""

    train: DatasetDescription
    test: DatasetDescription | None
    warnings: tuple[str, ...]
    files: PinnedFiles = NOT_PINNED


def check_data(job: JobSpec, tables: Sequence[TableSpec] = (), pinned: PinnedFiles = NOT_PINNED) -> DatasetCheck:
    """Checks train and test data. `tables`: the job's resolved tables; without them ids are not compared with rows.
    pinned: the files of a run that has begun.

    Raises one DataError with every problem, SourceGoneError for a source that does not answer. With
    `bad_rows = "skip"` bad rows are warnings instead.
    """
    splits: list[Split] = ["train"]
    if job.data.has_test:
        splits.append("test")
    problems: list[str] = []
    warnings: list[str] = []
    hints: list[str] = []
    descriptions: list[DatasetDescription] = []
    stamps: dict[Split, tuple[FileStamp, ...]] = {}
    for split in splits:
        reader, inspection = _inspect(job, split, pinned, hints)
        problems.extend(inspection.problems)
        if inspection.description is None:
            continue
        descriptions.append(inspection.description)
        warnings.extend(inspection.description.warnings)
        if split == "test" and job.data.test_fraction and not inspection.description.units:
            problems.append(_nothing_held_back(job, inspection.description))
            continue
        if isinstance(reader, UnitReader) and not inspection.problems:
            stamps[split] = reader.stamps()
            _sort_findings(reader.decoder.check_values(tables), job.data.bad_rows == "skip", problems, warnings)
    if len(descriptions) == 2:
        problems.extend(_mismatches(*descriptions))
        problems.extend(_listed_groups(job, descriptions[1]))
    if problems or len(descriptions) < len(splits):
        hint = "\n".join(dict.fromkeys(hints)) or "correct the settings or the data; nothing was started"
        raise DataError(problem_list(tuple(dict.fromkeys(problems))), hint=hint)
    warnings.extend(_files_twice({} if job.data.test_fraction else stamps))
    test = descriptions[1] if len(descriptions) == 2 else None
    files = PinnedFiles(stamps.get("train", ()), stamps.get("test", ()))
    return DatasetCheck(train=descriptions[0], test=test, warnings=tuple(dict.fromkeys(warnings)), files=files)


def _files_twice(stamps: Mapping[Split, tuple[FileStamp, ...]]) -> Iterator[str]:
    """Warnings for a file that is read under two names, and for test files that are trained, too. Links to a file count
    as the file; at an address a file has the name that it is read by."""
    first: dict[tuple[Split, str], str] = {}
    for split, files in stamps.items():
        for path in (one.path for one in files):
            real = path if is_url(path) else os.path.realpath(path)
            if (other := first.setdefault((split, real), path)) != path:
                yield f"{other} and {path} are the same file, so data.{split} has its rows twice"
            elif split == "test" and (trained := first.get(("train", real))) is not None:
                also = path if trained == path else f"{path} ({trained})"
                yield f"{also} is in data.train and in data.test: its rows are trained, so its metrics are too good"


def _inspect(job: JobSpec, split: Split, pinned: PinnedFiles, hints: list[str]) -> tuple[Reader | None, Inspection]:
    """The reader of a split, None when it cannot be made, and its description. Adds to `hints`."""
    try:
        reader = make_reader(job, data_settings(job, split, pinned=pinned.of(split)))
        if isinstance(reader, UnitReader):
            return reader, reader.decoder.inspect()
        return reader, Inspection(reader.describe(), ())
    except SourceGoneError:
        raise
    except DataError as error:
        hints.extend([error.hint] if error.hint else [])
        return None, Inspection(None, (error.message,))


def _nothing_held_back(job: JobSpec, test: DatasetDescription) -> str:
    """The message for training data of which `data.test_fraction` leaves no row for the test data: it has one row."""
    return (
        f"data.test_fraction = {job.data.test_fraction:g}: no rows are left for the test data, because the training "
        f"data ({', '.join(test.files)}) has only 1 row; name files with more rows in data.train, or remove "
        "data.test_fraction"
    )


def _sort_findings(findings: ValueFindings, skip_bad_rows: bool, problems: list[str], warnings: list[str]) -> None:
    warnings.extend(findings.warnings)
    problems.extend(findings.ids_out_of_range)
    if skip_bad_rows:
        warnings.extend(f"{finding} (such rows will be skipped)" for finding in findings.bad_rows)
    else:
        problems.extend(findings.bad_rows)


def _mismatches(train: DatasetDescription, test: DatasetDescription) -> list[str]:
    """Messages for columns whose type differs between train and test data: an int and a string are different keys."""
    problems = [
        f"column {name!r} holds {kind}s in {train.files[0]}, but {test.key_kinds[name]}s in {test.files[0]}"
        for name, kind in train.key_kinds.items()
        if name in test.key_kinds and test.key_kinds[name] != kind
    ]
    problems += [
        f"column {name!r} holds lists in {'train' if name in train.multi_valued else 'test'} only"
        for name in train.key_kinds
        if (name in train.multi_valued) != (name in test.multi_valued)
    ]
    return problems


def _listed_groups(job: JobSpec, test: DatasetDescription) -> list[str]:
    """Messages for group columns of metrics that hold lists: a sample belongs to one group."""
    return [
        f"evaluate.metrics: column {name!r} of {test.files[0] if test.files else 'the test data'} holds lists; name a "
        "column with one id for each sample"
        for name in group_columns(job.evaluate.metrics)
        if name in test.multi_valued
    ]
