"""The settings of a job that a reader uses, as plain values. Other modules here take them, and not a `JobSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from elastichost.config.metric_names import group_columns
from elastichost.datasets.bad_rows import HOW_TO_SKIP
from elastichost.specs import KeyKind

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.datasets.file_stamp import FileStamp

__all__ = [
    "CRITEO_CATEGORICAL",
    "CRITEO_DENSE",
    "CRITEO_LABEL",
    "TEXT_UNIT_LINES",
    "ColumnType",
    "DataSettings",
    "DenseTransform",
    "Split",
    "data_settings",
    "extra_groups",
]

Split = Literal["train", "test"]
DenseTransform = Literal["none", "log1p", "signed_log1p"]
ColumnType = Literal["int", "string", "list[int]", "list[string]"]

CRITEO_LABEL = "label"
CRITEO_DENSE = tuple(f"I{number}" for number in range(1, 14))
CRITEO_CATEGORICAL = tuple(f"C{number}" for number in range(1, 27))
TEXT_UNIT_LINES = 65_536


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The settings of one split of a job's data.

    patterns         absolute paths or globs, in the order in which their files are read
    weight           the column of sample weights; "": none
    limit_rows       only the first rows, up to this number, are read; 0: all
    test_fraction    share of the rows, the last ones, that are the test data and are not trained; 0: none
    null_fill        replaces null and NaN in dense columns, after the transform
    csv_types        column of a CSV file -> its type; categorical columns without a type hold strings
    text_unit_lines  number of lines in one unit of a text file
    pinned           the files of a run that has begun, which are read instead; (): the patterns name the files
    labels_required  False: in files without label columns the labels are NaN, and files may lack the weight (to score
                     data)
    null_kinds       categorical column -> (kind of its ids, whether it holds lists), for a Parquet file in which the
                     column has no value at all, and so no type that tells it
    """

    split: Split
    patterns: tuple[str, ...]
    format: str
    labels: tuple[str, ...]
    dense: tuple[str, ...]
    categorical: tuple[str, ...]
    weight: str = ""
    skip_bad_rows: bool = False
    limit_rows: int = 0
    test_fraction: float = 0.0
    null_fill: float = 0.0
    dense_transform: DenseTransform = "none"
    csv_types: Mapping[str, ColumnType] = field(default_factory=dict)
    csv_delimiter: str = ","
    csv_list_delimiter: str = "|"
    csv_decimal: str = "."
    text_unit_lines: int = TEXT_UNIT_LINES
    pinned: tuple[FileStamp, ...] = ()
    labels_required: bool = True
    null_kinds: Mapping[str, tuple[KeyKind, bool]] = field(default_factory=dict)

    @property
    def how_to_skip(self) -> str:
        """What a person may do about a bad row instead of correcting it."""
        return HOW_TO_SKIP if self.labels_required else "leave the row out: each row of the file gets a score"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once, labels first."""
        weight = (self.weight,) if self.weight else ()
        return tuple(dict.fromkeys((*self.labels, *weight, *self.dense, *self.categorical)))


def data_settings(
    job: JobSpec,
    split: Split,
    *,
    files: Sequence[str] | None = None,
    labels_required: bool = True,
    pinned: tuple[FileStamp, ...] = (),
) -> DataSettings:
    """The settings of one split of `job`; `files` replaces the split's own paths (absolute paths or globs). pinned: the
    files of a run that has begun.

    Of its own test data, the group columns of metrics are read too, as further categorical columns at the end."""
    data = job.data
    extra = extra_groups(job) if split == "test" and files is None else ()
    own_patterns = data.train if split == "train" or data.test_fraction else data.test
    return DataSettings(
        split=split,
        patterns=tuple(own_patterns if files is None else files),
        format=data.format,
        labels=(data.label,) if isinstance(data.label, str) else tuple(data.label),
        weight=data.weight,
        dense=tuple(data.dense),
        categorical=(*data.categorical, *extra),
        skip_bad_rows=data.bad_rows == "skip",
        limit_rows=data.limit_rows if split == "train" else 0,
        test_fraction=data.test_fraction if files is None else 0.0,
        null_fill=data.null_fill,
        dense_transform=data.dense_transform,
        csv_types=cast("Mapping[str, ColumnType]", dict(data.csv.types)),
        csv_delimiter=data.csv.delimiter,
        csv_list_delimiter=data.csv.list_delimiter,
        csv_decimal=data.csv.decimal,
        pinned=pinned,
        labels_required=labels_required,
    )


def extra_groups(job: JobSpec) -> tuple[str, ...]:
    """The group columns of `evaluate.metrics` that are not features of the job."""
    return tuple(name for name in group_columns(job.evaluate.metrics) if name not in job.data.categorical)
