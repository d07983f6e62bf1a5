"""The directory of a host with many jobs: its status, its journal, a folder for each job; locked while it works.

host.json            once a second: what `queue` and `top` show
journal.jsonl        everything that happened and was decided, with reasons
timeline.db          of every job and second: cores, memory, speed (sqlite), for the picture in the report
queue.json           the jobs that are not over, for the next dispatcher in this directory
over.json            of a batch: how jobs ended, written before they leave the queue
options.json         what the user asked for, with which a batch goes on
jobs/<name>/         job.toml as submitted, what was found out about it, why it failed, its supervisor's log
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.dispatcher.facts import HOST_FILE, JOB_FILE, HostStatus, JobRequest, JobStatus
from elastichost.dispatcher.options import AskedOptions
from elastichost.errors import ConfigError, PreflightError
from elastichost.history.store import state_directory
from elastichost.runs.directory import lock_directory, point_latest

__all__ = ["HostDirectory", "Kept", "default_directory", "read_asked"]

Read = TypeVar("Read")

OPTIONS_FILE = "options.json"

VARIABLE = "ELASTICHOST_HOST_DIR"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as `job.name` of a job file


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that is not over. has_run: it was started, and its run can perhaps be gone on with."""

    request: JobRequest
    has_run: bool = False


def default_directory(environ: Mapping[str, str]) -> Path:
    """ELASTICHOST_HOST_DIR, or `host` in the user's state directory. Raises ConfigError for a user without a home."""
    try:
        if chosen := environ.get(VARIABLE):
            return Path(chosen).expanduser().absolute()
        return state_directory(environ) / "host"
    except RuntimeError as error:
        raise ConfigError(f"where the host's directory lies is not known: {error}", hint=f"set {VARIABLE}") from error


class HostDirectory:
    """Paths and small files. Holds a lock; `close` releases it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def open(cls, path: Path) -> HostDirectory:
        """Makes it where it is missing. Raises PreflightError when another dispatcher works in it, or it cannot be
        made."""
        path = path.resolve()
        hint = "submit jobs to it, or choose another --host-dir"
        lock = lock_directory(path, "the host's directory", PreflightError(f"another host works in {path}", hint=hint))
        try:
            (path / "jobs").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            os.close(lock)
            raise PreflightError(f"cannot make the host's directory {path}: {error}") from error
        point_latest(path)  # of a batch: its directory lies beside those of its jobs
        return cls(path, lock)

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def timeline(self) -> Path:
        return self.path / "timeline.db"

    def new_folder(self, wanted: str, job_toml: str) -> tuple[str, Path]:
        """A name that no job has had here, and its folder with the job file. Raises ConfigError for what is no name."""
        if not NAME.fullmatch(wanted):
            raise ConfigError(f"{wanted!r} cannot be the name of a job", hint="letters, digits, and . _ - within it")
        for number in range(1, 1_000_000):
            name = wanted if number == 1 else f"{wanted}-{number}"
            folder = self.path / "jobs" / name
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            write_atomically(folder / JOB_FILE, job_toml.encode())
            return name, folder
        raise ConfigError(f"there are a million jobs called {wanted} here", hint="choose another name")

    def write_status(self, status: HostStatus) -> None:
        write_atomically(self.path / HOST_FILE, msgspec.json.encode(status) + b"\n")

    def write_queue(self, kept: tuple[Kept, ...]) -> None:
        write_atomically(self.path / "queue.json", msgspec.json.format(msgspec.json.encode(kept)))

    def read_queue(self) -> tuple[Kept, ...]:
        """Raises PreflightError when it is not what this version writes."""
        return _read(self.path / "queue.json", tuple[Kept, ...]) or ()

    def write_over(self, over: tuple[JobStatus, ...]) -> None:
        write_atomically(self.path / "over.json", msgspec.json.encode(over) + b"\n")

    def read_over(self) -> tuple[JobStatus, ...]:
        """Raises PreflightError when it is not what this version writes."""
        return _read(self.path / "over.json", tuple[JobStatus, ...]) or ()

    def write_asked(self, asked: AskedOptions) -> None:
        write_atomically(self.path / OPTIONS_FILE, msgspec.json.format(msgspec.json.encode(asked)) + b"\n")

    def close(self) -> None:
        os.close(self._lock)


def read_asked(directory: Path) -> AskedOptions | None:
    """None: none are kept there. Raises PreflightError when they are not what this version writes."""
    return _read(directory / OPTIONS_FILE, AskedOptions)


def _read(path: Path, kind: type[Read]) -> Read | None:
    """None: it is not there."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PreflightError(f"{path}: cannot be read: {error}", hint="move it away to begin with none") from error
