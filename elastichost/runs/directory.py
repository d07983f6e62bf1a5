"""The run directory: one folder that tells all of a run, locked while a supervisor works in it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.metadata
import os
import platform
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from elastichost.arena.host import free_bytes
from elastichost.atomic_write import write_atomically
from elastichost.checkpoint.places import (
    RUN_FILE,
    CheckpointSource,
    RunIdentity,
    checkpoint_source,
    new_identity,
    read_identity,
)
from elastichost.config.hosts import KEPT_HOSTS_FILE
from elastichost.config.job import JobSpec, to_toml
from elastichost.errors import CheckpointError, ConfigError, PreflightError
from elastichost.host.cpu_features import present_cpu
from elastichost.metrics import RunStatus
from elastichost.plan import ProcessId
from elastichost.runs.cpu_check import read_cpu, require_same_cpu
from elastichost.wire.applied import APPLIED_FILE
from elastichost.wire.control import FailureReportMsg

__all__ = [
    "RunDirectory",
    "is_locked",
    "lock_directory",
    "new_run_path",
    "package_versions",
    "point_latest",
]

RUNS = "runs"
CPU_FILE = "cpu.json"
LOCK_FILE = ".lock"
LEAST_FREE_BYTES = 1_000_000
_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "numpy", "numba", "pyarrow", "pyzmq", "msgspec")


def new_run_path(base: Path, name: str, run_id: str) -> Path:
    """`<base>/runs/<name>-<UTC>-<id>`."""
    return base / RUNS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{run_id[:6]}"


def point_latest(path: Path) -> None:
    """`latest` beside a directory of `runs/` points to it from now on; elsewhere nothing happens."""
    if path.parent.name == RUNS:
        link = path.parent / f".latest.{path.name}"  # several may begin at once
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
        link.replace(path.parent / "latest")


def lock_directory(path: Path, name: str, taken: PreflightError, *, is_needed: bool = True) -> int:
    """Makes the directory where it is missing; returns the descriptor of its lock, which is free again when that is
    closed or this process ends. Raises `taken` when another process has it, PreflightError when it cannot be made, or
    when its file system has no locks and one is needed."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PreflightError(f"cannot make {name} {path}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise taken from None
    except OSError as error:
        if is_needed:
            os.close(lock)
            raise PreflightError(
                f"cannot lock {name} {path}: {error.strerror}", hint="choose one on a file system with locks (flock)"
            ) from error
    return lock


def is_locked(path: Path) -> bool:
    """Whether a supervisor works in this run directory, in whatever pid namespace."""
    try:
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


class RunDirectory:
    """Paths and small files of one run. Holds a lock; `close` releases it."""

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
        """Makes the directory, or takes over one of a run to resume; of the job only the name and the place of
        checkpoints count. run_id: of a run that begins; "": one is made up.

        Raises ConfigError when it holds another run, PreflightError when a supervisor works in it or it cannot be
        made, CheckpointError when it does not say which run it is of.
        """
        path = path.resolve()
        is_new = not path.exists()
        _check_space(path)
        hint = f"see `elastichost status {path}`, or stop it first"
        lock = lock_directory(
            path, "the run directory", PreflightError(f"another supervisor works in {path}", hint=hint)
        )
        if not resume and (path / "journal.jsonl").exists():
            os.close(lock)
            raise ConfigError(
                f"{path} holds a run already", hint=f"`elastichost resume {path}`, or choose another --run-dir"
            )
        for folder in (path / "logs", path / "errors"):
            folder.mkdir(mode=0o700, exist_ok=True)
        try:
            identity = _identity(path, job, run_id, resume=resume)
            source = checkpoint_source(path, identity, job)
            locks = (lock, *_lock_checkpoints(path, source.places[0]))
            write_atomically(path / RUN_FILE, msgspec.json.encode(identity) + b"\n")
        except OSError as error:
            os.close(lock)
            raise PreflightError(f"cannot make the checkpoint directory {source.places[0]}: {error}") from error
        except (CheckpointError, PreflightError):
            os.close(lock)
            raise
        return cls(path, locks, identity, source, is_new)

    def write_facts(self, job: JobSpec, *, is_one_of_many: bool = False) -> None:
        """What is known before anything runs. `runs/latest` points here from now on, unless this run is one of many
        jobs on a host: then it points to their batch. Raises CpuDiffersError."""
        cpu = self.path / CPU_FILE
        require_same_cpu(job, read_cpu(cpu), present_cpu(), str(self.path))
        write_atomically(cpu, msgspec.json.format(msgspec.json.encode(present_cpu())))
        write_atomically(self.resolved, to_toml(job).encode())
        write_atomically(self.path / "versions.json", msgspec.json.format(msgspec.json.encode(package_versions())))
        (self.path / "result.json").unlink(missing_ok=True)
        if not is_one_of_many:
            point_latest(self.path)

    @property
    def checkpoints(self) -> Path:
        """Where new checkpoints are written."""
        return self.checkpoint_source.places[0]

    @property
    def resolved(self) -> Path:
        """The job of the newest supervisor, with all defaults."""
        return self.path / "job.resolved.toml"

    @property
    def hosts(self) -> Path:
        """The other machines of the newest supervisor; there is none without."""
        return self.path / KEPT_HOSTS_FILE

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.db"

    def log_of(self, process: ProcessId) -> Path:
        return self.path / "logs" / f"{process}.log"

    def last_log_lines(self, process: ProcessId, count: int = 20) -> str:
        """The end of a process' log, "" when it wrote none."""
        path = self.log_of(process)
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])

    def write_status(self, status: RunStatus) -> None:
        write_atomically(self.path / "status.json", msgspec.json.encode(status) + b"\n")

    def write_result(self, text: bytes) -> None:
        write_atomically(self.path / "result.json", text)

    def write_error(self, process: ProcessId, report: FailureReportMsg) -> None:
        write_atomically(self.path / "errors" / f"{process}.json", msgspec.json.format(msgspec.json.encode(report)))

    @property
    def was_used(self) -> bool:
        """It was there before, or a PS has worked in it."""
        return not self._is_new or (self.path / APPLIED_FILE).exists()

    def discard(self) -> None:
        """Removes the directory, and `latest` if it points here."""
        latest = self.path.parent / "latest"
        if latest.is_symlink() and latest.readlink() == Path(self.path.name):
            latest.unlink()
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # below a directory that runs share; kept when something is in it
            if os.listdir(self.checkpoints) == [LOCK_FILE]:
                (self.checkpoints / LOCK_FILE).unlink()
            self.checkpoints.rmdir()

    def close(self) -> None:
        for lock in self._locks:
            os.close(lock)


def _check_space(path: Path) -> None:
    """What a run writes before it trains must fit. Later it waits for space (ARCHITECTURE.md, "Files that grow")."""
    place = next(one for one in (path, *path.parents) if one.exists())
    try:
        left_bytes = free_bytes(place)
    except OSError:
        return  # whatever is wrong with it is said by the first that writes there
    if left_bytes < LEAST_FREE_BYTES:
        raise PreflightError(
            f"no space for the run directory {path}: {left_bytes / 1e6:.2f} MB are free in {place}, a run needs "
            f"{LEAST_FREE_BYTES / 1e6:.0f} MB to begin, and more for its checkpoints",
            hint="free some, or choose another place with --run-dir",
        )


def _lock_checkpoints(run_dir: Path, place: Path) -> tuple[int, ...]:
    """Where checkpoints lie outside of the run directory, a copy of that directory would write to the same place."""
    if place.is_relative_to(run_dir):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ()
    taken = PreflightError(
        f"another supervisor writes the checkpoints of this run to {place}: {run_dir} or the other one is a copy",
        hint="begin a new run from it: `elastichost run JOB --from DIRECTORY`",
    )
    return (lock_directory(place, "the checkpoint directory", taken, is_needed=False),)


def _identity(path: Path, job: JobSpec, run_id: str, *, resume: bool) -> RunIdentity:
    """Raises CheckpointError where a run has worked whose identity is lost."""
    found = read_identity(path) if resume else None
    if found is None and resume and (path / "journal.jsonl").exists():
        raise CheckpointError(
            f"{path} has lost its {RUN_FILE}: which checkpoints are its own is not known",
            hint='write {"run_id": ..., "job_name": ...} into it, as the MANIFEST.json of one of them says',
        )
    return found or new_identity(job.job.name, run_id)


@functools.cache
def package_versions() -> dict[str, str]:
    """Of Python, this system and the packages that matter; read once: jobs of a host are forked with them."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("elastichost", *_PACKAGES):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
