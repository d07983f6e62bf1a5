"""The identity of a run, and the places of its checkpoints.

A run has an identity, in `run.json` of its directory, which is the same for all its supervisors. Several runs may share
`checkpoint.directory` or `checkpoint.mirror`. Each run uses only its own directory there, which is named after its job
and its identity.

A run that is resumed may get another `checkpoint.directory` or `checkpoint.mirror`. Its older checkpoints stay where
they are, so the run directory has a list of all places that the run was ever given.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.config.job import JobSpec, load_job
from elastichost.errors import CheckpointError
from elastichost.run_files import CHECKPOINTS_FOLDER, RESOLVED_JOB_FILE

__all__ = [
    "PLACES_FILE",
    "RUN_FILE",
    "CheckpointSource",
    "RunIdentity",
    "checkpoint_source",
    "identity_lost",
    "keep_places",
    "kept_places",
    "named_source",
    "new_identity",
    "read_identity",
]

RUN_FILE = "run.json"
PLACES_FILE = "checkpoint_places.json"


class RunIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `run.json`. run_id: 16 hexadecimal digits, chosen at the start of the run. The run's checkpoints
    have the same id."""

    run_id: str
    job_name: str

    @property
    def folder(self) -> str:
        """The name of the run's own directory in a directory that several runs share."""
        return f"{self.job_name}-{self.run_id}"


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """Where a run looks for a checkpoint to start from. places: directories of checkpoints, or a single checkpoint.
    run_id: the run that the checkpoints must belong to; "": any run, because the user named the place."""

    places: tuple[Path, ...]
    run_id: str = ""

    def __str__(self) -> str:
        return " and ".join(map(str, self.places))


def new_identity(job_name: str, run_id: str = "") -> RunIdentity:
    return RunIdentity(run_id or secrets.token_hex(8), job_name)


def read_identity(run_dir: Path) -> RunIdentity | None:
    """The identity in a run directory; None if no run has started there, so that `run.json` is missing. Raises
    CheckpointError when `run.json` cannot be read."""
    path = run_dir / RUN_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunIdentity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}",
            hint="repair it: run_id and job_name are those in the MANIFEST.json of the run's checkpoints",
        ) from error


def identity_lost(run_dir: Path) -> CheckpointError:
    """The error for a run that has no `run.json` any more."""
    return CheckpointError(
        f"{run_dir} has lost its {RUN_FILE}, so the checkpoints of this run cannot be identified",
        hint='write {"run_id": ..., "job_name": ...} into this file, with the values in the MANIFEST.json of one of '
        "its checkpoints",
    )


def checkpoint_source(run_dir: Path, identity: RunIdentity, *jobs: JobSpec) -> CheckpointSource:
    """All places of the run's checkpoints: those of the first job, to whose first place new checkpoints are written,
    then those of other jobs that the run had before, then those that `keep_places` has listed. Without a job: the run
    directory and the listed places. Raises CheckpointError when the list cannot be read."""
    places: list[Path] = []
    for job in jobs:
        chosen, mirror = job.checkpoint.directory, job.checkpoint.mirror_path
        if chosen:
            places.append(Path(chosen) / identity.folder)
        places.append(run_dir / CHECKPOINTS_FOLDER)
        if mirror is not None:
            places.append(mirror / identity.folder)
    whole = (Path(os.path.abspath(place)) for place in (*places, *kept_places(run_dir)))
    return CheckpointSource(tuple(dict.fromkeys(whole)), identity.run_id)


def keep_places(run_dir: Path, source: CheckpointSource) -> None:
    """Lists the places of a source in the run directory. A run that never had another place than its own directory
    needs no list. Places in the run directory are listed relative to it: a copy of the run has its own. Raises
    OSError."""
    here = Path(os.path.abspath(run_dir))
    places = [str(place.relative_to(here) if place.is_relative_to(here) else place) for place in source.places]
    if places != [CHECKPOINTS_FOLDER]:
        write_atomically(run_dir / PLACES_FILE, msgspec.json.format(msgspec.json.encode(places)) + b"\n")


def kept_places(run_dir: Path) -> tuple[Path, ...]:
    """The directory of checkpoints in the run directory, and the places that `keep_places` has listed. Raises
    CheckpointError when the list cannot be read."""
    path = run_dir / PLACES_FILE
    try:
        listed = msgspec.json.decode(path.read_bytes(), type=list[str])
    except FileNotFoundError:
        listed = []
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}",
            hint="write the directories that hold the run's step-... directories into it, as a JSON list of strings; "
            "without the file only the places of the present settings are searched",
        ) from error
    return (run_dir / CHECKPOINTS_FOLDER, *(run_dir / place for place in listed))


def named_source(path: Path) -> CheckpointSource:
    """The source that the user named to start from: another run's directory, a directory of checkpoints, or one
    checkpoint. Raises CheckpointError, and ConfigError for a run whose job file cannot be read."""
    named = path.resolve()
    if not (named / RESOLVED_JOB_FILE).exists():
        return CheckpointSource((named,))
    identity = read_identity(named)
    if identity is None:
        raise CheckpointError(
            f"{named} is not a run directory: it has no {RUN_FILE}", hint="name one of its checkpoints instead"
        )
    return checkpoint_source(named, identity, load_job(named / RESOLVED_JOB_FILE, environ={}))
