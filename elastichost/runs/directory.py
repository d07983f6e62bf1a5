"""The run directory: one folder with all files of a run, locked while a supervisor works in it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from elastichost.arena.host import free_bytes
from elastichost.atomic_write import cause_words, write_atomically
from elastichost.checkpoint.places import (
    RUN_FILE,
    CheckpointSource,
    RunIdentity,
    checkpoint_source,
    identity_lost,
    keep_places,
    new_identity,
    read_identity,
)
from elastichost.config.job import JobSpec, load_job, to_toml
from elastichost.datasets.files import NOT_PINNED, PinnedFiles, write_pinned
from elastichost.errors import CheckpointError, ConfigError, PreflightError
from elastichost.host.cpu_features import present_cpu
from elastichost.human_readable import mib
from elastichost.metrics import RunStatus
from elastichost.plan import ProcessId
from elastichost.run_files import (
    HOSTS_FILE,
    JOURNAL_FILE,
    METRICS_FILE,
    RESOLVED_JOB_FILE,
    RESULT_FILE,
    STATUS_FILE,
    VERSIONS_FILE,
)
from elastichost.runs.cpu_check import read_cpu, require_same_cpu
from elastichost.runs.liveness import LOCK_FILE
from elastichost.wire.applied import APPLIED_FILE
from elastichost.wire.control import FailureReportMsg

__all__ = [
    "DATA_FOLDER",
    "MODEL_FILE",
    "RunDirectory",
    "is_before_run",
    "lock_directory",
    "new_run_path",
    "package_versions",
    "point_latest",
    "remove_run_files",
]

RUNS = "runs"
CPU_FILE = "cpu.json"
MODEL_FILE = "model.py"  # the source of a model that was given as a function, written before the run begins
DATA_FOLDER = "data"  # rows that were given in Python, as Parquet, written before the run begins
LEAST_FREE_BYTES = 1_000_000
LOOK_END_S = 1.0  # a reader that tests the lock (`liveness.is_locked`) has released it by then
_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "numpy", "numba", "pyarrow", "pyzmq", "msgspec")


def new_run_path(base: Path, name: str, run_id: str) -> Path:
    """The path of a new run directory: `<base>/runs/<name>-<UTC>-<id>`."""
    return base / RUNS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{run_id[:6]}"


def is_before_run(path: Path) -> bool:
    """Whether it is a directory in which no run has begun: it has at most what is written before one."""
    return path.is_dir() and set(os.listdir(path)) <= {MODEL_FILE, DATA_FOLDER}


def remove_run_files(path: Path) -> None:
    """Removes all but the data folder, and the directory itself if it is empty then. Files that cannot be removed
    stay."""
    for one in list(path.iterdir()) if path.is_dir() else ():
        if one.is_dir() and not one.is_symlink():
            if one.name != DATA_FOLDER:
                shutil.rmtree(one, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                one.unlink()
    with contextlib.suppress(OSError):
        path.rmdir()


def point_latest(path: Path) -> None:
    """Makes `runs/latest` point to this run directory. Does nothing if the directory is not in `runs/`."""
    if path.parent.name == RUNS:
        link = path.parent / f".latest.{path.name}"  # several runs may start at the same time
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
        link.replace(path.parent / "latest")


def lock_directory(path: Path, name: str, taken: PreflightError, *, is_needed: bool = True) -> int:
    """Locks a directory, and creates it if it is missing. Returns the descriptor of the lock.

    The lock is released when the descriptor is closed or this process ends. Raises `taken` if another process has the
    lock; PreflightError if the directory cannot be created, or if its file system has no locks and is_needed is
    true."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PreflightError(
            f"{name} {path} could not be created: {cause_words(error)}",
            hint="choose a place that you may write to",
        ) from error
    try:
        _lock(lock)
    except BlockingIOError:
        os.close(lock)
        raise taken from None
    except OSError as error:
        if is_needed:
            os.close(lock)
            raise PreflightError(
                f"{name} {path} could not be locked: {error.strerror}",
                hint="choose a directory on a file system with locks (flock)",
            ) from error
    return lock


def _lock(lock: int) -> None:
    """Takes the lock. Raises BlockingIOError if a process holds it, and OSError if the file system has no locks. A
    reader that tests the lock (`liveness.is_locked`) holds it for an instant; this function waits for that."""
    deadline_s = time.monotonic() + LOOK_END_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(0.005)


class RunDirectory:
    """The paths and small files of one run. It holds a lock until `close`."""

    def __init__(
        self,
        path: Path,
        locks: tuple[int, ...],
        identity: RunIdentity,
        checkpoint_source: CheckpointSource,
        is_new: bool,
    ) -> None:
        self.path = path
        self.identity = identity
        self.checkpoint_source = checkpoint_source
        self._locks = locks
        self._is_new = is_new

    @classmethod
    def open(cls, path: Path, job: JobSpec, *, resume: bool, run_id: str = "") -> RunDirectory:
        """Creates the directory of a new run, or opens the directory of a run to resume.

        Only the name, the checkpoint directory and the mirror of the job are used. A run to resume keeps the places of
        its earlier checkpoints when the job names others. run_id: id of a new run; "": a random id.

        Raises ConfigError if a new run is given a directory that already has a run; PreflightError if another
        supervisor works in the directory or if it cannot be created; CheckpointError if its run.json is lost, or
        if it or the list of its checkpoint places cannot be read.
        """
        path = path.resolve()
        # The user has made an empty directory. It stays when no run begins in it.
        is_new = not path.exists() or (is_before_run(path) and any(path.iterdir()))
        _check_space(path)
        hint = f"see `elastichost status {path}`, or stop that supervisor first"
        lock = lock_directory(
            path, "the run directory", PreflightError(f"another supervisor works in {path}", hint=hint)
        )
        if not resume and (path / JOURNAL_FILE).exists():
            os.close(lock)
            raise ConfigError(
                f"{path} already holds a run", hint=f"use `elastichost resume {path}`, or choose another --run-dir"
            )
        for folder in (path / "logs", path / "errors"):
            folder.mkdir(mode=0o700, exist_ok=True)
        locks: tuple[int, ...] = (lock,)
        try:
            identity = _identity(path, job, run_id, resume=resume)
            source = checkpoint_source(path, identity, job, *(_jobs_before(path) if resume else ()))
            locks = (lock, *_lock_checkpoints(path, source.places))
            write_atomically(path / RUN_FILE, msgspec.json.encode(identity) + b"\n")
            keep_places(path, source)
        except OSError as error:
            _release(locks)
            raise PreflightError(
                f"the checkpoint directory {source.places[0]} could not be created: {cause_words(error)}",
                hint="set checkpoint.directory to a place that you may write to",
            ) from error
        except (CheckpointError, PreflightError):
            _release(locks)
            raise
        return cls(path, locks, identity, source, is_new)

    def write_facts(self, job: JobSpec, files: PinnedFiles = NOT_PINNED, *, is_one_of_many: bool = False) -> None:
        """Writes what is known before any process starts: cpu.json, job.resolved.toml, data_files.json, versions.json.

        `runs/latest` points to this directory from now on, unless this run is one of many jobs of a dispatcher: then
        `latest` points to the directory of the dispatcher. Raises CpuDiffersError (see `cpu_check`)."""
        cpu = self.path / CPU_FILE
        require_same_cpu(job, read_cpu(cpu), present_cpu(), str(self.path))
        write_atomically(cpu, msgspec.json.format(msgspec.json.encode(present_cpu())))
        write_atomically(self.resolved, to_toml(job).encode())
        write_pinned(self.path, files)
        write_atomically(self.path / VERSIONS_FILE, msgspec.json.format(msgspec.json.encode(package_versions())))
        (self.path / RESULT_FILE).unlink(missing_ok=True)
        if not is_one_of_many:
            point_latest(self.path)

    @property
    def checkpoints(self) -> Path:
        """The directory into which new checkpoints are written."""
        return self.checkpoint_source.places[0]

    @property
    def resolved(self) -> Path:
        """File with the job of the newest supervisor, with all defaults."""
        return self.path / RESOLVED_JOB_FILE

    @property
    def hosts(self) -> Path:
        """File with the other machines of the newest supervisor; it does not exist if there are none."""
        return self.path / HOSTS_FILE

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL_FILE

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    def log_of(self, process: ProcessId) -> Path:
        return self.path / "logs" / f"{process}.log"

    def last_log_lines(self, process: ProcessId, count: int = 20) -> str:
        """The last `count` lines of the log of a process; "" if it wrote no log."""
        path = self.log_of(process)
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])

    def write_status(self, status: RunStatus) -> None:
        write_atomically(self.path / STATUS_FILE, msgspec.json.encode(status) + b"\n")

    def write_result(self, text: bytes) -> None:
        write_atomically(self.path / RESULT_FILE, text)

    def write_error(self, process: ProcessId, report: FailureReportMsg) -> None:
        write_atomically(self.path / "errors" / f"{process}.json", msgspec.json.format(msgspec.json.encode(report)))

    @property
    def was_used(self) -> bool:
        """Whether the directory existed before, or a PS has worked in it."""
        return not self._is_new or (self.path / APPLIED_FILE).exists()

    def discard(self) -> None:
        """Removes the directory, and `latest` if it points here. Rows that were given in Python stay: the next try
        needs them."""
        latest = self.path.parent / "latest"
        if latest.is_symlink() and latest.readlink() == Path(self.path.name):
            latest.unlink()
        remove_run_files(self.path)
        with contextlib.suppress(OSError):  # `checkpoints` may be outside of `path`; it is kept unless it is empty
            if os.listdir(self.checkpoints) == [LOCK_FILE]:
                (self.checkpoints / LOCK_FILE).unlink()
            self.checkpoints.rmdir()

    def close(self) -> None:
        for lock in self._locks:
            os.close(lock)


def _check_space(path: Path) -> None:
    """Raises PreflightError unless the files that a run writes before it trains fit on the disk. Later the run waits
    for space (`docs/explanation/recovery.md`)."""
    place = next(one for one in (path, *path.parents) if one.exists())
    try:
        left_bytes = free_bytes(place)
    except OSError:
        return  # the first write to the directory reports the error
    if left_bytes < LEAST_FREE_BYTES and os.access(place, os.W_OK):
        raise PreflightError(
            f"no space for the run directory {path}: {mib(left_bytes)} are free in {place}, and a run needs "
            f"{mib(LEAST_FREE_BYTES)} to start and more for its checkpoints",
            hint="free some space, or choose another directory with --run-dir",
        )


def _lock_checkpoints(run_dir: Path, places: Sequence[Path]) -> tuple[int, ...]:
    """Locks the checkpoint directories outside of the run directory, because a copy of the run directory would use the
    same ones: the first place, and the earlier ones that the run has written to. Returns the descriptors of the locks.
    """
    first, *others = places
    locked: dict[Path, int] = {}
    if first.is_relative_to(run_dir):
        first.mkdir(mode=0o700, parents=True, exist_ok=True)
    else:
        locked[first] = _lock_place(run_dir, first)
    for place in others:
        # a place that this run cannot write to, as on a disk that is gone, needs no lock
        if place.is_relative_to(run_dir) or not os.access(place / LOCK_FILE, os.W_OK):
            continue
        try:
            if not any(place.samefile(one) for one in locked):
                locked[place] = _lock_place(run_dir, place)
        except (OSError, PreflightError):
            _release(locked.values())
            raise
    return tuple(locked.values())


def _release(locks: Iterable[int]) -> None:
    for lock in locks:
        os.close(lock)


def _lock_place(run_dir: Path, place: Path) -> int:
    """The descriptor of the lock of one checkpoint directory."""
    taken = PreflightError(
        f"another supervisor writes checkpoints of this run to {place}: {run_dir} or the run directory of that "
        "supervisor is a copy",
        hint="start a new run from the copy: `elastichost run JOB --from DIRECTORY`",
    )
    return lock_directory(place, "the checkpoint directory", taken, is_needed=False)


def _identity(path: Path, job: JobSpec, run_id: str, *, resume: bool) -> RunIdentity:
    """The identity of the run in this directory, or a new one. Raises CheckpointError if a run to resume has lost its
    run.json."""
    found = read_identity(path) if resume else None
    if found is None and resume and (path / JOURNAL_FILE).exists():
        raise identity_lost(path)
    return found or new_identity(job.job.name, run_id)


def _jobs_before(path: Path) -> tuple[JobSpec, ...]:
    """The job that the run had until now; none if it cannot be read. A run of an earlier version has no list of its
    checkpoint places, but its job names them."""
    try:
        return (load_job(path / RESOLVED_JOB_FILE, environ={}),)
    except ConfigError:
        return ()


@functools.cache
def package_versions() -> dict[str, str]:
    """Versions of Python, this system and the main packages. They are read once: the jobs of a dispatcher are forked
    and inherit them."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("elastichost", *_PACKAGES):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
