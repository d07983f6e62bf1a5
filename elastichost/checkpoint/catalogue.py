"""Finds the checkpoints of a directory and the newest good one, and removes old checkpoints."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elastichost.checkpoint.files import disk_error, remove_tree
from elastichost.checkpoint.manifest import Manifest, load_manifest, verify_blocks
from elastichost.errors import CheckpointError

__all__ = [
    "FoundCheckpoint",
    "checkpoint_directories",
    "checkpoint_name",
    "latest",
    "new_staging",
    "newest_best",
    "remove_staging",
    "retain",
    "set_aside_newer",
]

_NAME = re.compile(r"step-(\d{1,19})(\.replaced)?")
_STAGING_PREFIX = ".staging-"
_ABANDONED_PREFIX = "abandoned-"


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A good checkpoint. warnings: one line for each newer checkpoint that was skipped, with the reason."""

    directory: Path
    manifest: Manifest
    warnings: tuple[str, ...] = ()


def checkpoint_name(samples_trained: int) -> str:
    """The directory name of a checkpoint."""
    return f"step-{samples_trained}"


def new_staging(checkpoints: Path, cut: int, writer: str = "") -> Path:
    """Makes an empty directory (mode 0700) for the blocks of one cut. A directory of the same name, left by an earlier
    cut, is removed first.

    writer: a name that is unique to the writing supervisor, so that no two supervisors write to the same directory.
    Raises CheckpointError.
    """
    staging = checkpoints / f"{_STAGING_PREFIX}{writer}{'-' if writer else ''}{cut}"
    try:
        checkpoints.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_tree(staging)
        staging.mkdir(mode=0o700)
    except OSError as error:
        raise disk_error("cannot create", staging, error) from error
    return staging


def remove_staging(checkpoints: Path) -> None:
    """Removes the unfinished checkpoints of killed supervisors. Raises CheckpointError."""
    for staging in checkpoints.glob(f"{_STAGING_PREFIX}*"):
        try:
            remove_tree(staging)
        except OSError as error:
            raise disk_error("cannot remove", staging, error) from error


def checkpoint_directories(checkpoints: Path) -> tuple[Path, ...]:
    """The checkpoint directories, the newest first, by their names alone. A `.replaced` directory comes after the
    directory of the same name that replaced it."""
    if not checkpoints.is_dir():
        return ()
    found = [path for path in checkpoints.iterdir() if _NAME.fullmatch(path.name)]
    return tuple(path for path in sorted(found, key=_age, reverse=True) if path.is_dir() and not path.is_symlink())


def latest(*places: Path, verify: bool = True, run_id: str = "") -> FoundCheckpoint | None:
    """The newest good checkpoint in several directories; None when they hold no checkpoint. If two have the same name,
    the one in the earlier directory counts. A missing directory holds none.

    verify: also read every block (about a second for 1.5 GB), so that a flipped bit is found now, and not in the middle
    of a restore. run_id: the run that the checkpoint must belong to; "": any run.

    Raises CheckpointError with all reasons when there are checkpoints, but all are bad or belong to other runs: a start
    without one would silently lose the work.
    """
    warnings: list[str] = []
    for directory in _newest_first(places, warnings):
        try:
            manifest = load_manifest(directory)
            _check_run(manifest, run_id)
            if verify:
                verify_blocks(directory, manifest)
        except CheckpointError as error:
            warnings.append(f"{directory.name} cannot be used: {error.message}")
            continue
        return FoundCheckpoint(directory=directory, manifest=manifest, warnings=tuple(warnings))
    if warnings:
        raise CheckpointError(
            f"no checkpoint of {' and '.join(map(str, places))} can be used:\n" + "\n".join(warnings),
            hint="restore the directory from a copy, use another run's checkpoint with --from "
            "(Python: start_from), or start a new run",
        )
    return None


def newest_best(*places: Path, run_id: str, figure: str = "") -> FoundCheckpoint | None:
    """The newest checkpoint of the run whose manifest says that its weights were the best when they were evaluated;
    None: there is none. figure: by which figure; "": by any. Blocks are not read, and bad checkpoints are skipped: each
    has a warning."""
    warnings: list[str] = []
    for directory in _newest_first(places, warnings):
        try:
            manifest = load_manifest(directory)
            _check_run(manifest, run_id)
        except CheckpointError as error:
            warnings.append(f"{directory.name} cannot be used: {error.message}")
            continue
        if manifest.best is not None and figure in ("", manifest.best.figure):
            return FoundCheckpoint(directory=directory, manifest=manifest, warnings=tuple(warnings))
    return None


def _check_run(manifest: Manifest, run_id: str) -> None:
    """Raises CheckpointError for a checkpoint of another run than `run_id`; "": any run is allowed."""
    if run_id and manifest.run_id != run_id:
        raise CheckpointError(f"it belongs to run {manifest.run_id} (job {manifest.job_name}), not to run {run_id}")


def _newest_first(places: Iterable[Path], warnings: list[str]) -> list[Path]:
    """The checkpoints of all places, the newest first. A place that cannot be read adds a warning and is skipped."""
    found: list[Path] = []
    for place in places:
        try:
            found += checkpoint_directories(place)
        except OSError as error:
            warnings.append(f"{place} cannot be read: {error.strerror or error}")
    return sorted(found, key=_age, reverse=True)  # stable: of equal names, that of the first place comes first


def _age(directory: Path) -> tuple[int, bool]:
    """Sort key by age. A `.replaced` directory is older than the directory of the same name that replaced it."""
    match = _NAME.fullmatch(directory.name)
    assert match is not None
    return int(match[1]), match[2] is None


def retain(
    checkpoints: Path, keep: int, newest: Path | None = None, run_id: str = "", copying: Path | None = None
) -> tuple[Path, ...]:
    """Removes all checkpoints that are older than the `keep` newest good ones, but not the newest of the good ones that
    were the best when they were evaluated (`Manifest.best`). Returns the removed ones, newest first.

    A checkpoint is good if its manifest is valid. A bad one does not count, so it never displaces a good one, and it is
    removed only when `keep` good ones are newer. `newest` is kept in any case, and so is `copying`, which the mirror
    still reads; a later call removes it. Checkpoints of other runs than `run_id` are not counted and not removed; "":
    all belong to this run. Raises CheckpointError when one cannot be removed, and ValueError for `keep` < 1.
    """
    if keep < 1:
        raise ValueError(f"keep={keep} is out of range (1 or more)")
    good, has_best = 0, False
    needed = {path.name for path in (newest, copying) if path is not None}
    removed: list[Path] = []
    for directory in checkpoint_directories(checkpoints):
        manifest: Manifest | None = None
        with contextlib.suppress(CheckpointError):  # `latest` reports a bad one; here it does not count
            manifest = load_manifest(directory)
        if manifest is not None and run_id and manifest.run_id != run_id:
            continue
        is_best = manifest is not None and manifest.best is not None and not has_best
        has_best = has_best or is_best
        if good < keep:
            good += manifest is not None
            continue
        if is_best or directory.name in needed:
            continue
        try:
            remove_tree(directory)
        except OSError as error:
            raise disk_error("cannot remove", directory, error) from error
        removed.append(directory)
    return tuple(removed)


def set_aside_newer(checkpoints: Path, samples_trained: int) -> tuple[Path, ...]:
    """Renames the checkpoints that have more samples than `samples_trained`: a run that has gone back to an earlier
    state must not find them again as its newest ones. Returns their new paths. Raises CheckpointError."""
    renamed: list[Path] = []
    try:
        found = checkpoint_directories(checkpoints)
    except OSError as error:
        raise disk_error("cannot read", checkpoints, error) from error
    for directory in found:
        if _age(directory)[0] <= samples_trained:
            continue
        numbers = itertools.count(2)
        target = checkpoints / f"{_ABANDONED_PREFIX}{directory.name}"
        while target.exists():
            target = checkpoints / f"{_ABANDONED_PREFIX}{directory.name}-{next(numbers)}"
        try:
            directory.rename(target)
        except OSError as error:
            raise disk_error("cannot rename", directory, error) from error
        renamed.append(target)
    return tuple(renamed)
