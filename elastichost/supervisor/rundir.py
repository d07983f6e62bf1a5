"""The run directory: one folder that tells all of a run, locked while a supervisor works in it."""

from __future__ import annotations

import fcntl
import functools
import importlib.metadata
import os
import platform
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from elastichost.appending import write_atomically
from elastichost.config import JobSpec, to_toml
from elastichost.config_hosts import KEPT_HOSTS_FILE
from elastichost.errors import ConfigError, PreflightError
from elastichost.metrics import RunStatus
from elastichost.plan import ProcessId
from elastichost.wire.applied import APPLIED_FILE
from elastichost.wire.control import FailureReport

__all__ = ["RunDirectory", "lock_directory", "new_run_path", "package_versions", "write_atomically"]

RUNS = "runs"
_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "numpy", "numba", "pyarrow", "pyzmq", "msgspec")


def new_run_path(base: Path, name: str, run_id: str) -> Path:
    """`<base>/runs/<name>-<UTC>-<id>`."""
    return base / RUNS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{run_id[:6]}"


def lock_directory(path: Path, name: str, taken: PreflightError) -> int:
    """Makes the directory where it is missing; returns the descriptor of its lock, which is free again when that is
    closed or this process ends. Raises `taken` when another process has it, PreflightError when it cannot be made."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PreflightError(f"cannot make {name} {path}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise taken from None
    return lock


class RunDirectory:
    """Paths and small files of one run. Holds a lock; `close` releases it."""

    def __init__(self, path: Path, lock: int, checkpoints: Path, mirror: Path | None, is_new: bool) -> None:
        self.path = path
        self.checkpoints = checkpoints
        self.mirror = mirror
        self._lock = lock
        self._is_new = is_new

    @classmethod
    def open(cls, path: Path, job: JobSpec, *, resume: bool) -> RunDirectory:
        """Makes the directory, or takes over one of a run to resume; of the job only the place of checkpoints counts.

        Raises ConfigError when it holds another run, PreflightError when a supervisor works in it or it cannot be
        made.
        """
        path = path.resolve()
        is_new = not path.exists()
        hint = f"see `elastichost status {path}`, or stop it first"
        lock = lock_directory(
            path, "the run directory", PreflightError(f"another supervisor works in {path}", hint=hint)
        )
        if not resume and (path / "journal.jsonl").exists():
            os.close(lock)
            raise ConfigError(
                f"{path} holds a run already", hint=f"`elastichost resume {path}`, or choose another --run-dir"
            )
        chosen = job.checkpoint.directory
        checkpoints = Path(chosen) if chosen else path / "checkpoints"
        for folder in (path / "logs", path / "errors"):
            folder.mkdir(mode=0o700, exist_ok=True)
        try:
            checkpoints.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            os.close(lock)
            raise PreflightError(f"cannot make the checkpoint directory {checkpoints}: {error}") from error
        return cls(path, lock, checkpoints, job.checkpoint.mirror_path, is_new)

    def write_facts(self, job: JobSpec) -> None:
        """What is known before anything runs; `latest` points here from now on."""
        write_atomically(self.resolved, to_toml(job).encode())
        write_atomically(self.path / "versions.json", msgspec.json.format(msgspec.json.encode(package_versions())))
        (self.path / "result.json").unlink(missing_ok=True)
        if self.path.parent.name == RUNS:
            link = self.path.parent / f".latest.{self.path.name}"  # several jobs of a host may begin at once
            link.unlink(missing_ok=True)
            link.symlink_to(self.path.name)
            link.replace(self.path.parent / "latest")

    @property
    def checkpoint_places(self) -> tuple[Path, ...]:
        """Where the run keeps checkpoints: its own directory, then the mirror."""
        return (self.checkpoints, *([self.mirror] if self.mirror is not None else []))

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

    def write_error(self, process: ProcessId, report: FailureReport) -> None:
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

    def close(self) -> None:
        os.close(self._lock)


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
