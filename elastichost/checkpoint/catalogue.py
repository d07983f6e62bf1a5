"""Which checkpoints a directory holds, the newest good one, and clearing away old ones."""

from __future__ import annotations

import contextlib
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
    "remove_staging",
    "retain",
]

_NAME = re.compile(r"step-(\d{1,19})(\.replaced)?")
_STAGING_PREFIX = ".staging-"


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A good checkpoint. `warnings`: newer ones that were passed over, and why, one line each."""

    directory: Path
    manifest: Manifest
    warnings: tuple[str, ...] = ()


def checkpoint_name(samples_trained: int) -> str:
    """Directory name of a checkpoint."""
    return f"step-{samples_trained}"


def new_staging(checkpoints: Path, cut: int, writer: str = "") -> Path:
    """A fresh 0700 directory for the blocks of one cut; what an earlier cut left under the name is removed. writer: a
    name of the writing supervisor that no other has, so that two never write into one directory.

    Raises CheckpointError."""
    staging = checkpoints / f"{_STAGING_PREFIX}{writer}{'-' if writer else ''}{cut}"
    try:
        checkpoints.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_tree(staging)
        staging.mkdir(mode=0o700)
    except OSError as error:
        raise disk_error("cannot create", staging, error) from error
    return staging


def remove_staging(checkpoints: Path) -> None:
    """Removes what a supervisor that was killed left half written. Raises CheckpointError."""
    for staging in checkpoints.glob(f"{_STAGING_PREFIX}*"):
        try:
            remove_tree(staging)
        except OSError as error:
            raise disk_error("cannot remove", staging, error) from error


def checkpoint_directories(checkpoints: Path) -> tuple[Path, ...]:
    """Newest first, judged by name only. A `.replaced` one comes after the one of the same name that replaced it."""
    if not checkpoints.is_dir():
        return ()
    found = [path for path in checkpoints.iterdir() if _NAME.fullmatch(path.name)]
    return tuple(path for path in sorted(found, key=_age, reverse=True) if path.is_dir() and not path.is_symlink())


def latest(*places: Path, verify: bool = True, run_id: str = "") -> FoundCheckpoint | None:
    """The newest good checkpoint of some directories, of two with the same name the one in the first of them; None when
    there is none at all. A directory that is not there holds none. `verify` also reads every block (about a second
    per 1.5 GB), so that a flipped bit is found now and not half-way through a restore. run_id: of the run that it must
    belong to; "": of any.

    Raises CheckpointError, with every reason, when there are some and all are bad or of other runs: going on from
    nothing would silently lose the work."""
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
            hint="restore the directory from a copy, begin from another run's checkpoint with --from, or start anew",
        )
    return None


def _check_run(manifest: Manifest, run_id: str) -> None:
    """Raises CheckpointError for a checkpoint of another run. run_id "": any will do."""
    if run_id and manifest.run_id != run_id:
        raise CheckpointError(f"it belongs to run {manifest.run_id} (job {manifest.job_name}), not to run {run_id}")


def _newest_first(places: Iterable[Path], warnings: list[str]) -> list[Path]:
    """A disk that does not answer is warned of: the others may."""
    found: list[Path] = []
    for place in places:
        try:
            found += checkpoint_directories(place)
        except OSError as error:
            warnings.append(f"{place} cannot be read: {error.strerror or error}")
    return sorted(found, key=_age, reverse=True)  # stable: of equals the first place's


def _age(directory: Path) -> tuple[int, bool]:
    """A `.replaced` one comes after the one of the same name that replaced it."""
    match = _NAME.fullmatch(directory.name)
    assert match is not None
    return int(match[1]), match[2] is None


def retain(checkpoints: Path, keep: int, newest: Path | None = None, run_id: str = "") -> tuple[Path, ...]:
    """Removes checkpoints older than the `keep` newest whose manifests hold; gives the removed ones, newest first.

    A bad one never pushes a good one out: it is removed only when `keep` good ones are newer. `newest` stays, whatever
    its name says. Those of other runs than `run_id` are neither counted nor removed; "": there are none. Raises
    CheckpointError when one cannot be removed, ValueError for `keep` < 1."""
    if keep < 1:
        raise ValueError(f"keep = {keep} must be at least 1")
    good = 0
    removed: list[Path] = []
    for directory in checkpoint_directories(checkpoints):
        manifest: Manifest | None = None
        with contextlib.suppress(CheckpointError):  # `latest` is the one to tell of it; here it only does not count
            manifest = load_manifest(directory)
        if manifest is not None and run_id and manifest.run_id != run_id:
            continue
        if good < keep:
            good += manifest is not None
            continue
        if newest is not None and directory.name == newest.name:
            continue
        try:
            remove_tree(directory)
        except OSError as error:
            raise disk_error("cannot remove", directory, error) from error
        removed.append(directory)
    return tuple(removed)
