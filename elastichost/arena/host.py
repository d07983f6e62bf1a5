"""The directories of a run outside its run directory (arena and sockets), their owners, and those of dead owners.

A process that removes a directory, or takes it over from a dead owner, *holds* it first: it locks the directory itself
with flock, and the kernel releases the lock when the process ends. `OWNER.json` changes only while the directory is
held.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.arena.directory_lock import LOCK_FILE, has_lock, is_led, is_living, lead_directory, release_directory
from elastichost.arena.owner import Owner, is_alive, is_same
from elastichost.errors import ArenaError, PreflightError

__all__ = [
    "SMALL_BYTES",
    "Hold",
    "StaleArena",
    "arena_directory",
    "arena_root",
    "bytes_of_arenas",
    "create_directory",
    "free_bytes",
    "hold",
    "hold_left",
    "is_in_memory",
    "left_of",
    "read_owner",
    "reclaim",
    "remove_owned",
    "replica_directory",
    "room_of_arenas",
    "socket_directory",
    "stale_arenas",
    "used_bytes",
]

# An arena root with less room than this counts as small: Docker gives a container 64 MiB of /dev/shm by default.
SMALL_BYTES = 1 << 30
OWNER_FILE = "OWNER.json"
_MOST_OWNER_BYTES = 64 * 1024
_PREFIX = "elastichost-"
# sockaddr_un holds 108 bytes, of which the name of a socket ("/server-12.3") takes a part.
_MAX_SOCKET_DIRECTORY_BYTES = 80
# Longer than an arena reaper that only tests a directory holds it.
HOLD_PATIENCE_S = 0.2


@dataclass(frozen=True, slots=True)
class StaleArena:
    """An arena or socket directory whose owner is dead. `bytes`: what its removal frees."""

    path: Path
    owner: Owner
    bytes: int


def arena_root() -> Path:
    """The parent directory of arenas: ELASTICHOST_ARENA_DIR, or /dev/shm."""
    return Path(os.environ.get("ELASTICHOST_ARENA_DIR") or "/dev/shm")


def _checked(run_id: str) -> str:
    if not run_id or run_id.startswith(".") or "/" in run_id or "\0" in run_id:
        raise ArenaError(f"run id {run_id!r} is empty, begins with '.', or contains '/' or a null character")
    return run_id


def arena_directory(run_id: str, host: int = 0) -> Path:
    """The path of a run's arena, `<root>/elastichost-<uid>-<run id>`; hosts other than 0 append `-h<number>`. The
    directory need not exist."""
    more = f"-h{host}" if host else ""
    return arena_root() / f"{_PREFIX}{os.geteuid()}-{_checked(run_id)}{more}"


def replica_directory(run_id: str, host: int) -> Path:
    """The path of the supervisor's replica of another host's arena. The directory need not exist."""
    path = arena_directory(run_id, host)
    return path.with_name(f"{path.name}-replica")


def _socket_roots() -> tuple[Path, ...]:
    """The parent directories of socket directories, in order of preference. XDG_RUNTIME_DIR counts only if this user
    owns it: after `su` or `sudo` the variable often still names another user's directory."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or os.devnull)
    try:
        is_own = runtime.is_dir() and runtime.stat().st_uid == os.geteuid() and os.access(runtime, os.W_OK | os.X_OK)
    except OSError:
        is_own = False
    return (*([runtime] if is_own else []), Path(tempfile.gettempdir()))


def socket_directory(run_id: str) -> Path:
    """The path of a run's sockets, `<XDG_RUNTIME_DIR or temporary directory>/elastichost-<run id>`.

    The directory need not exist. The path has at most 80 bytes, so that ipc socket paths in it stay under 100 bytes: a
    run id that is too long is replaced by its hash. Raises PreflightError when even the hash does not fit.
    """
    name = _PREFIX + _checked(run_id)
    digest = hashlib.blake2b(run_id.encode(), digest_size=8).hexdigest()
    short = f"{_PREFIX}{digest}"
    for candidate in (name, short):
        for root in _socket_roots():
            if len(os.fsencode(root / candidate)) <= _MAX_SOCKET_DIRECTORY_BYTES:
                return root / candidate
    raise PreflightError(
        f"the paths of the socket directories under {', '.join(map(str, _socket_roots()))} are too long: a path may "
        f"have at most {_MAX_SOCKET_DIRECTORY_BYTES} bytes",
        hint="set TMPDIR to a short path such as /tmp",
    )


def create_directory(path: Path, owner: Owner) -> None:
    """Makes the directory `path` (mode 0700) with its OWNER.json in one atomic step. Raises ArenaError when `path`
    exists or cannot be made."""
    making = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        making.mkdir(mode=0o700)
        try:
            if owner.pid == os.getpid():
                lead_directory(making, path)
            descriptor = os.open(making / OWNER_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(owner))
            # rename() replaces an empty directory, so an existing one is refused here first.
            if os.path.lexists(path):
                raise FileExistsError(f"{path} exists")
            making.rename(path)
        except OSError:
            shutil.rmtree(making)
            release_directory(path)
            raise
    except OSError as error:
        raise ArenaError(
            f"cannot make the directory {path}: {error}",
            hint="set ELASTICHOST_ARENA_DIR to a directory you may write to, or remove the directories of dead runs "
            "with: python -m elastichost clean",
        ) from error


def read_owner(path: Path) -> Owner:
    """The owner of the directory `path`. Raises ArenaError when OWNER.json is missing or malformed, or when another
    user owns the directory or the file or can write to it."""
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(OWNER_FILE, flags, dir_fd=directory), "rb") as file:
                for which, facts in ((path, os.fstat(directory)), (path / OWNER_FILE, os.fstat(file.fileno()))):
                    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                        raise ArenaError(f"{which} is owned by another user or writable for others, so it is ignored")
                return msgspec.json.decode(file.read(_MOST_OWNER_BYTES), type=Owner)
        finally:
            os.close(directory)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArenaError(f"{path / OWNER_FILE} cannot be read: {error}") from error


class Hold:
    """A directory that this process has locked: no other process removes it or takes it over until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def take_over(self, owner: Owner) -> None:
        """Writes `owner` as the directory's owner in one atomic step. If the owner is this process, it leads the
        directory from then on. Raises ArenaError."""
        making = self.path / f"{OWNER_FILE}.new"
        try:
            if owner.pid == os.getpid():
                lead_directory(self.path)
            descriptor = os.open(making, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(owner))
            making.rename(self.path / OWNER_FILE)
        except OSError as error:
            raise ArenaError(f"cannot take over {self.path}: {error}") from error

    def remove(self) -> None:
        """Removes the directory. Raises OSError.

        LAYOUT.json goes first and OWNER.json last. So a process that is killed within this call leaves a directory that
        no run resumes from, and that `clean` finds as stale by its owner.
        """
        release_directory(self.path)
        # Capital letters sort first, so LAYOUT.json is among the first entries.
        for entry in sorted(os.scandir(self.path), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != OWNER_FILE:
                os.unlink(entry.path)
        shutil.rmtree(self.path)

    def release(self) -> None:
        """Releases the lock. A repeated call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(path: Path, patience_s: float = HOLD_PATIENCE_S) -> Hold | None:
    """Holds the directory. None when another process holds it for longer than `patience_s`. Raises FileNotFoundError
    when the directory is gone, and OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _lock(descriptor, patience_s):
            os.close(descriptor)
            return None
        # Between open and lock the directory may have been removed, and a new one may have been made with its name.
        if not os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor)):
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)
        raise
    return Hold(path, descriptor)


def _lock(descriptor: int, patience_s: float) -> bool:
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.005)
        else:
            return True


def remove_owned(path: Path, owner: Owner) -> bool:
    """Removes a directory if `owner`, a living or a dead process, still owns it. False: another process holds the
    directory at present, so the caller has to try again. Raises OSError."""
    try:
        held = hold(path)
        if held is None:
            return False
        with held:
            if is_same(read_owner(path), owner):
                held.remove()
    except (FileNotFoundError, ArenaError):
        pass  # the directory or its OWNER.json is missing or not valid
    return True


def free_bytes(path: Path) -> int:
    """Free bytes of the file system of `path`, or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize


def is_in_memory(path: Path) -> bool:
    """Whether the files under `path` are held in memory (tmpfs, ramfs), and not on a disk with a page cache."""
    device = f"{os.major(path.stat().st_dev)}:{os.minor(path.stat().st_dev)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == device:
            return kind.split()[0] in ("tmpfs", "ramfs")
    return False


def _run_directories(root: Path) -> Iterator[Path]:
    """Directories under `root` whose names begin with the project's prefix, of any owner. Symbolic links are skipped.
    A root that is missing or not readable has none."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except (FileNotFoundError, PermissionError):
        return
    for entry in entries:
        if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def used_bytes(path: Path) -> int:
    """Bytes of memory (or disk) that the files of a directory occupy, without the holes of sparse files."""
    total = 0
    for entry in os.scandir(path):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile, as decoded units are
            total += used_bytes(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else 0
            total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def bytes_of_arenas() -> int:
    """Bytes that all arenas in `arena_root` occupy, also those of runs that train now."""
    total = 0
    for path in _run_directories(arena_root()):
        with contextlib.suppress(FileNotFoundError, PermissionError):  # removed meanwhile, or of another user
            total += used_bytes(path)
    return total


def room_of_arenas() -> int:
    """Bytes that all arenas together may occupy in the file system of `arena_root`: those that they occupy now, and the
    free ones."""
    return bytes_of_arenas() + free_bytes(arena_root())


def stale_arenas() -> list[StaleArena]:
    """This user's arena and socket directories whose owners are dead and which no process keeps for a resume.
    Directories without a valid OWNER.json are skipped."""
    return [left for left in _left_arenas() if not is_living(left.path)]


def _left_arenas() -> Iterator[StaleArena]:
    """This user's arena and socket directories of dead owners, including arenas that are kept for a resume."""
    for root in dict.fromkeys((arena_root(), *_socket_roots())):
        for path in _run_directories(root):
            try:
                owner = read_owner(path)
                if not is_led(path) and (has_lock(path) or not is_alive(owner)):
                    yield StaleArena(path, owner, used_bytes(path))
            except (ArenaError, FileNotFoundError):
                continue  # it has no valid OWNER.json, or another process has just removed it


def left_of(run_dir: Path) -> list[StaleArena]:
    """The directories of a run whose owners are dead, including an arena that is kept for a resume."""
    return [left for left in _left_arenas() if left.owner.run_dir == str(run_dir)]


def hold_left(run_dir: Path) -> tuple[Hold, ...]:
    """Holds the directories of a run whose owners are dead, so that no arena reaper removes one while the caller reads
    it. Directories that another process holds are left out."""
    held: list[Hold] = []
    for left in left_of(run_dir):
        try:
            one = hold(left.path)
        except OSError:
            continue  # another process has just removed it
        held += [one] if one is not None else []
    return tuple(held)


def reclaim(path: Path, *, is_kept: bool = False) -> None:
    """Removes an arena or socket directory; does nothing if it is gone. is_kept: remove it even if it is kept for a
    resume. Raises ArenaError when `path` is no such directory, when a living process owns it, or when another process
    holds it to take it over."""
    if not path.name.startswith(_PREFIX) or path.is_symlink():
        raise ArenaError(f"{path} was not made by elastichost, so it is not removed")
    try:
        if path.stat().st_uid != os.geteuid():
            raise ArenaError(f"{path} belongs to another user, so it is not removed")
        held = hold(path)
        if held is None:
            raise ArenaError(f"another process is resuming from {path}, so it is not removed")
        with held:
            release_directory(path)
            if is_led(path) or (is_living(path) and not is_kept):
                raise ArenaError(f"{path} is in use (a running process holds {path / LOCK_FILE}), so it is not removed")
            held.remove()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArenaError(f"cannot remove {path}: {error}") from error
