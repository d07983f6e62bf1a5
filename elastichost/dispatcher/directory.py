"""The directory of a dispatcher. It is locked while the dispatcher runs.

host.json            the status, written once a second; `queue` and `top` show it
journal.jsonl        all events and decisions, with their reasons
timeline.db          cores, memory and speed of every job in every second (sqlite), for the chart of the report
queue.json           the unfinished jobs, for the next dispatcher in this directory
over.json            of a batch: the status of jobs that have ended, written before they leave queue.json
options.json         the options of the command line, with which a batch is resumed
jobs/<name>/         job.toml (resolved), examined.json, failure.json, logs of the job's processes
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from elastichost.atomic_write import cause_words, write_atomically
from elastichost.config.job import JobSpec, load_job
from elastichost.dispatcher.facts import HOST_FILE, JOB_FILE, OVER_STATES, HostStatus, JobRequest, JobStatus
from elastichost.dispatcher.options import AskedOptions
from elastichost.errors import ConfigError, PreflightError
from elastichost.history.store import state_directory
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.directory import lock_directory, point_latest

__all__ = ["HostDirectory", "Kept", "default_directory", "over_jobs", "read_asked", "write_asked"]

Read = TypeVar("Read")

OPTIONS_FILE = "options.json"

VARIABLE = "ELASTICHOST_HOST_DIR"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # the same as for `job.name` in a job file


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An unfinished job. has_run: it was started, so its run may be continued."""

    request: JobRequest
    has_run: bool = False


def over_jobs(jobs: Iterable[JobStatus], kept: Iterable[Kept]) -> tuple[JobStatus, ...]:
    """Those that no later dispatcher continues: all but the kept ones. A job that was cancelled and still saves counts
    as cancelled: in neither file, a search would take its trial for one that was never begun."""
    names = {one.request.job for one in kept}
    over = (job for job in jobs if job.job not in names)
    return tuple(job if job.state in OVER_STATES else msgspec.structs.replace(job, state="cancelled") for job in over)


def default_directory(environ: Mapping[str, str]) -> Path:
    """Returns ELASTICHOST_HOST_DIR, or `host` in the user's state directory. Raises ConfigError when the user has no
    home directory."""
    try:
        if chosen := environ.get(VARIABLE):
            return Path(chosen).expanduser().absolute()
        return state_directory(environ) / "host"
    except RuntimeError as error:
        raise ConfigError(f"the dispatcher's directory is not known: {error}", hint=f"set {VARIABLE}") from error


class HostDirectory:
    """The paths and small files of a dispatcher's directory. It holds the lock until `close`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def open(cls, path: Path) -> HostDirectory:
        """Locks a directory, and creates it if it is missing. Raises PreflightError when another dispatcher uses it, or
        when it cannot be created."""
        path = path.resolve()
        hint = "submit jobs to it, or choose another --host-dir"
        lock = lock_directory(
            path, "the dispatcher's directory", PreflightError(f"another dispatcher uses {path}", hint=hint)
        )
        try:
            (path / "jobs").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            os.close(lock)
            raise PreflightError(f"the dispatcher's directory {path} could not be created: {error}") from error
        point_latest(path)  # a batch's directory is beside the run directories of its jobs
        return cls(path, lock)

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL_FILE

    @property
    def timeline(self) -> Path:
        return self.path / "timeline.db"

    def spec_of(self, job_toml: str) -> JobSpec:
        """Parses a job file that was submitted. Raises ConfigError, and OSError if it cannot be written for that."""
        path = self.path / ".submitted.toml"
        path.write_text(job_toml, encoding="utf-8")
        try:
            return load_job(path, environ={})
        finally:
            path.unlink(missing_ok=True)

    def new_folder(self, wanted: str, job_toml: str) -> tuple[str, Path]:
        """Creates a folder with a job file. Returns the job's name, which no other job here has had, and the folder.
        Raises ConfigError for an invalid name."""
        if not NAME.fullmatch(wanted):
            raise ConfigError(
                f"{wanted!r} is not a valid name of a job",
                hint="use 1 to 64 letters, digits, and . _ - after the first character",
            )
        for number in range(1, 1_000_000):
            name = wanted if number == 1 else f"{wanted}-{number}"
            folder = self.path / "jobs" / name
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            write_atomically(folder / JOB_FILE, job_toml.encode())
            return name, folder
        raise ConfigError(f"{self.path} already has a million jobs called {wanted}", hint="choose another name")

    def own_folder(self, name: str, job_toml: str) -> Path:
        """Returns the folder of a job, and creates it if it is missing. The caller has checked that no job of this name
        was submitted here: an earlier dispatcher may have been killed between the folder and the queue. Raises
        PreflightError when it cannot be written."""
        folder = self.path / "jobs" / name
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(folder / JOB_FILE, job_toml.encode())
        except OSError as error:
            raise PreflightError(
                f"the folder {folder} of a job cannot be written: {cause_words(error)}",
                hint=f"free some space or make it writable, then continue: elastichost search --resume {self.path}",
            ) from error
        return folder

    def write_status(self, status: HostStatus) -> None:
        write_atomically(self.path / HOST_FILE, msgspec.json.encode(status) + b"\n")

    def write_queue(self, kept: tuple[Kept, ...]) -> None:
        write_atomically(self.path / "queue.json", msgspec.json.format(msgspec.json.encode(kept)))

    def read_queue(self) -> tuple[Kept, ...]:
        """The unfinished jobs of the dispatcher before. Raises PreflightError when the file is damaged or of another
        version."""
        return _read(self.path / "queue.json", tuple[Kept, ...]) or ()

    def write_over(self, over: tuple[JobStatus, ...]) -> None:
        write_atomically(self.path / "over.json", msgspec.json.encode(over) + b"\n")

    def read_over(self) -> tuple[JobStatus, ...]:
        """The ended jobs of a batch. Raises PreflightError when the file is damaged or of another version."""
        return _read(self.path / "over.json", tuple[JobStatus, ...]) or ()

    def close(self) -> None:
        os.close(self._lock)


def write_asked(directory: Path, asked: AskedOptions) -> None:
    """Writes the options of a batch, for `read_asked`."""
    write_atomically(directory / OPTIONS_FILE, msgspec.json.format(msgspec.json.encode(asked)) + b"\n")


def read_asked(directory: Path) -> AskedOptions | None:
    """The options of a batch; None: there are none. Raises PreflightError when the file is damaged or of another
    version."""
    return _read(directory / OPTIONS_FILE, AskedOptions)


def _read(path: Path, kind: type[Read]) -> Read | None:
    """The decoded content of a file; None: it does not exist."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreflightError(
            f"{path} cannot be read: {error}", hint="move the file away to start without it"
        ) from error
