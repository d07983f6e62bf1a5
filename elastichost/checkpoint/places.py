"""The identity of a run, and the places of its checkpoints.

A run has an identity, in `run.json` of its directory, which is the same for all its supervisors. Several runs may share
`checkpoint.directory` or `checkpoint.mirror`. Each run uses only its own directory there, which is named after its job
and its identity.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec, load_job
from elastichost.errors import CheckpointError
from elastichost.run_files import CHECKPOINTS_FOLDER, RESOLVED_JOB_FILE

__all__ = [
    "RUN_FILE",
    "CheckpointSource",
    "RunIdentity",
    "checkpoint_source",
    "named_source",
    "new_identity",
    "read_identity",
]

RUN_FILE = "run.json"


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


def checkpoint_source(run_dir: Path, identity: RunIdentity, job: JobSpec) -> CheckpointSource:
    """All places of the run's checkpoints. New checkpoints are written to the first place, and copied to the last one
    if the job has a mirror on this host."""
    chosen, mirror = job.checkpoint.directory, job.checkpoint.mirror_path
    places = [Path(chosen) / identity.folder] if chosen else []
    places.append(run_dir / CHECKPOINTS_FOLDER)
    if mirror is not None:
        places.append(mirror / identity.folder)
    return CheckpointSource(tuple(dict.fromkeys(Path(os.path.abspath(place)) for place in places)), identity.run_id)


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
