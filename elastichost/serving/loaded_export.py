"""Loads an export, and tries it before it is used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elastichost.errors import ConfigError, ElastichostError, ModelError
from elastichost.results.preprocess import Prepared, read_about
from elastichost.results.reader import Scorer

__all__ = ["DirectoryVersion", "LoadedExport", "check_export", "load_export", "version_of"]

TRIES = 3


class DirectoryVersion(NamedTuple):
    """Which directory a path leads to, and the state of its description. It changes when a link is switched, when the
    directory is replaced, and when the description is written anew."""

    directory: str
    device: int
    inode: int
    about_inode: int
    about_modified_ns: int


@dataclass(frozen=True, slots=True)
class LoadedExport:
    """An export in memory. directory: without links."""

    directory: Path
    version: DirectoryVersion
    scorer: Scorer
    id: str
    format: str
    job: str
    samples_trained: int
    labels: tuple[str, ...]


def version_of(directory: Path) -> DirectoryVersion | None:
    """The version of what the path leads to now; None while there is no export."""
    try:
        real = Path(os.path.realpath(directory, strict=True))
        status, about = real.stat(), (real / "preprocess.json").stat()
    except OSError:
        return None
    return DirectoryVersion(str(real), status.st_dev, status.st_ino, about.st_ino, about.st_mtime_ns)


def check_export(directory: Path) -> None:
    """Raises ConfigError when the directory does not hold an export of this version."""
    if version_of(directory) is None:
        raise ConfigError(
            f"{directory} is not an export: it has no preprocess.json", hint="make one: elastichost export RUN DIR"
        )
    try:
        read_about(directory)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error), hint="make a new one: elastichost export RUN DIR") from error


def load_export(directory: Path, *, refuse_nulls: bool) -> LoadedExport:
    """Loads what the path leads to now, and scores two samples with it. Raises ElastichostError: there is no export, it
    does not load, its scores are not finite, or it is replaced again and again."""
    for _ in range(TRIES):
        version = version_of(directory)
        if version is None:
            break
        # the directory without links: a link that is switched meanwhile cannot mix two exports
        found = _load(Path(version.directory), version, refuse_nulls)
        now = version_of(Path(version.directory))
        if now == version:
            return found
    check_export(directory)
    raise ElastichostError(f"{directory} was replaced while it was being loaded, {TRIES} times")


def _load(directory: Path, version: DirectoryVersion, refuse_nulls: bool) -> LoadedExport:
    try:
        scorer = Scorer(directory, refuse_nulls=refuse_nulls)
        about = scorer.preprocessor.about
        _try(scorer)
        return LoadedExport(
            directory=directory,
            version=version,
            scorer=scorer,
            id=about["id"],
            format=about["format"],
            job=about["job"],
            samples_trained=about["samples_trained"],
            labels=tuple(about["labels"]),
        )
    except ElastichostError:
        raise
    except (Exception, SystemExit) as error:  # an export brings code of its own
        reason = next(iter(str(error).splitlines()), "")
        raise ModelError(f"the export {directory} cannot be loaded: {type(error).__name__}: {reason}") from error


def _try(scorer: Scorer) -> None:
    """Scores a sample with an id of each feature and one without any."""
    preprocessor = scorer.preprocessor
    rows = np.zeros(1, dtype=np.int64), np.array([1, 0], dtype=np.int64)
    count = len(preprocessor.features)
    dense = np.zeros((2, len(preprocessor.dense)), dtype=np.float32)
    scores = scorer.scores(Prepared(dense, (rows[0],) * count, (rows[1],) * count))
    labels = preprocessor.about["num_labels"]
    wanted = (2,) if labels == 1 else (2, labels)
    if scores.shape != wanted or not np.isfinite(scores).all():
        raise ModelError(f"the export has the scores {scores.tolist()} for two samples: not {wanted} finite numbers")
