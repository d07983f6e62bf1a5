"""Which vectors an export is to compute, and from which files. It does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastichost.datasets.files import missing_file
from elastichost.errors import ConfigError, DataError
from elastichost.human_readable import did_you_mean

__all__ = ["VectorFile", "check_vectors", "parse_vectors"]


@dataclass(frozen=True, slots=True)
class VectorFile:
    """The vectors that were asked for: of the ids in `column`, computed from the rows of `file`."""

    column: str
    file: Path


def check_vectors(wanted: Mapping[str, Path], features: Sequence[str]) -> tuple[VectorFile, ...]:
    """What was asked for, by column. Raises ConfigError for a column without ids, DataError for a missing file."""
    for column, file in wanted.items():
        if column not in features:
            raise ConfigError(
                f"there are no vectors of {column!r}: it is no column of ids{did_you_mean(column, features)}",
                hint=f"columns: {', '.join(features)}",
            )
        if not file.is_file():
            raise DataError(f"{file} is a folder" if file.is_dir() else missing_file(str(file)))
    return tuple(VectorFile(column, file) for column, file in wanted.items())


def parse_vectors(options: Sequence[str]) -> dict[str, Path]:
    """The files by column, from options of the form COLUMN=FILE. Raises ConfigError for another form."""
    found: dict[str, Path] = {}
    for option in options:
        column, equals, file = option.partition("=")
        if not (column and equals and file):
            raise ConfigError(
                f"--vectors {option}: is not of the form COLUMN=FILE", hint="--vectors item=items.parquet"
            )
        found[column] = Path(file)
    return found
