"""Which vectors an export is to compute, from which files, and the names of files with vectors.

The module does not import torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastichost.datasets.files import FileStamp, named_file
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["VectorFile", "check_vectors", "file_stems", "parse_vectors"]


@dataclass(frozen=True, slots=True)
class VectorFile:
    """The vectors that were asked for: of the ids in `column`, computed from the rows of `file`."""

    column: str
    file: FileStamp


def check_vectors(wanted: Mapping[str, str | os.PathLike[str]], features: Sequence[str]) -> tuple[VectorFile, ...]:
    """What was asked for, by column. Raises ConfigError for a column without ids, DataError for a missing file."""
    for column in wanted:
        if column not in features:
            raise ConfigError(
                f"there are no vectors of {column!r}: it is no column of ids{did_you_mean(column, features)}",
                hint=f"columns: {', '.join(features)}",
            )
    return tuple(VectorFile(column, named_file(file)) for column, file in wanted.items())


def parse_vectors(options: Sequence[str]) -> dict[str, str]:
    """The files by column, from options of the form COLUMN=FILE. Raises ConfigError for another form."""
    found: dict[str, str] = {}
    for option in options:
        column, equals, file = option.partition("=")
        if not (column and equals and file):
            raise ConfigError(
                f"--vectors {option}: is not of the form COLUMN=FILE", hint="--vectors item=items.parquet"
            )
        found[column] = file
    return found


def file_stems(names: Sequence[str]) -> tuple[str, ...]:
    """For each name of a column or an embedding the stem of a file's name: the name, with an underscore in place of a
    slash. Underscores at the end keep the stem apart from the others: "a/b" beside "a_b" becomes "a_b_". Names without
    a slash are different from one another."""
    taken = set(names)
    stems: list[str] = []
    for name in names:
        stem = name.replace("/", "_")
        if stem != name:
            while stem in taken:
                stem += "_"
            taken.add(stem)
        stems.append(stem)
    return tuple(stems)
