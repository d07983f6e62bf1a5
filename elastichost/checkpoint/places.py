"""Which run a checkpoint belongs to, and where a run keeps its checkpoints.

A run has an identity that stays the same through all its supervisors, in `run.json` of its directory. Several runs may
share `checkpoint.directory` or `checkpoint.mirror`: each has a directory of its own there, named after its job and its
identity, and looks at no other.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec, load_job
from elastichost.errors import CheckpointError

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
RESOLVED_JOB = "job.resolved.toml"


class RunIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`run_id`: 16 hexadecimal digits, chosen when the run began; its checkpoints carry it."""

    run_id: str
    job_name: str

    @property
    def folder(self) -> str:
        """The run's own directory below one that runs share."""
        return f"{self.job_name}-{self.run_id}"


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """Where a run looks for checkpoints to go on from. places: directories of checkpoints, or a single checkpoint.
    run_id: the run they must belong to; "": any, because somebody named the place."""

    places: tuple[Path, ...]
    run_id: str = ""

    def __str__(self) -> str:
        return " and ".join(map(str, self.places))


def new_identity(job_name: str, run_id: str = "") -> RunIdentity:
    return RunIdentity(run_id or secrets.token_hex(8), job_name)


def read_identity(run_dir: Path) -> RunIdentity | None:
    """None: there is no `run.json`, so no run has begun here. Raises CheckpointError for one that cannot be read."""
    path = run_dir / RUN_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunIdentity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error}",
            hint="it names the run that the checkpoints belong to: copy run_id from the MANIFEST.json of one of them",
        ) from error


def checkpoint_source(run_dir: Path, identity: RunIdentity, job: JobSpec) -> CheckpointSource:
    """All places of the run's checkpoints; new ones are written to the first, and copied to the mirror on this host."""
    chosen, mirror = job.checkpoint.directory, job.checkpoint.mirror_path
    places = [Path(chosen) / identity.folder] if chosen else []
    places.append(run_dir / "checkpoints")
    if mirror is not None:
        places.append(mirror / identity.folder)
    return CheckpointSource(tuple(dict.fromkeys(Path(os.path.abspath(place)) for place in places)), identity.run_id)


def named_source(path: Path) -> CheckpointSource:
    """What somebody named to begin from: another run's directory, a directory of checkpoints, or one checkpoint. Raises
    CheckpointError, and ConfigError for a run whose job cannot be read."""
    named = path.resolve()
    if not (named / RESOLVED_JOB).exists():
        return CheckpointSource((named,))
    identity = read_identity(named)
    if identity is None:
        raise CheckpointError(f"{named} is no run: it has no {RUN_FILE}", hint="name one of its checkpoints instead")
    return checkpoint_source(named, identity, load_job(named / RESOLVED_JOB, environ={}))
