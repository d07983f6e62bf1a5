"""Directories of a run outside its run directory: the arena and the sockets; who owns them; whose owner is dead.

Whoever wants to remove a directory or take it over from a dead owner *holds* it first: a lock on the directory itself,
which the kernel opens when its holder ends. `OWNER.json` only changes while it is held.
"""

from __future__ import annotations

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
    "create_directory",
    "double_directory",
    "free_bytes",
    "hold",
    "hold_left",
    "is_in_memory",
    "left_of",
    "read_owner",
    "reclaim",
    "remove_owned",
    "socket_directory",
    "stale_arenas",
    "used_bytes",
]

# An arena root with less room than this is small: Docker gives a container 64 MiB of /dev/shm unless it is told more.
SMALL_BYTES = 1 << 30
OWNER_FILE = "OWNER.json"
_MOST_OWNER_BYTES = 64 * 1024
_PREFIX = "elastichost-"
# sockaddr_un holds 108 bytes, and a socket's own name ("/server-12.3") needs its share.
_MAX_SOCKET_DIRECTORY_BYTES = 80
# Longer than the moment for which a guardian that only looks holds a directory.
HOLD_PATIENCE_S = 0.2


@dataclass(frozen=True, slots=True)
class StaleArena:
    """A directory (arena or sockets) whose owner is dead; `bytes` is what removing it frees."""

    path: Path
    owner: Owner
    bytes: int


def arena_root() -> Path:
    """Where arenas lie: ELASTICHOST_ARENA_DIR, or /dev/shm."""
    return Path(os.environ.get("ELASTICHOST_ARENA_DIR") or "/dev/shm")


def _checked(run_id: str) -> str:
    if not run_id or run_id.startswith(".") or "/" in run_id or "\0" in run_id:
        raise ArenaError(f"run id {run_id!r} cannot be part of a directory's name")
    return run_id


def arena_directory(run_id: str, host: int = 0) -> Path:
    """`<root>/elastichost-<uid>-<run id>`, with `-h<number>` behind it for a further host; it need not exist."""
    more = f"-h{host}" if host else ""
    return arena_root() / f"{_PREFIX}{os.geteuid()}-{_checked(run_id)}{more}"


def double_directory(run_id: str, host: int) -> Path:
    """Of the double that the supervisor has of that host's arena; it need not exist."""
    path = arena_directory(run_id, host)
    return path.with_name(f"{path.name}-double")


def _socket_roots() -> tuple[Path, ...]:
    """XDG_RUNTIME_DIR only if it is this user's own: after `su` or `sudo` it is often still another's."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or os.devnull)
    try:
        is_own = runtime.is_dir() and runtime.stat().st_uid == os.geteuid() and os.access(runtime, os.W_OK | os.X_OK)
    except OSError:
        is_own = False
    return (*([runtime] if is_own else []), Path(tempfile.gettempdir()))


def socket_directory(run_id: str) -> Path:
    """`<XDG_RUNTIME_DIR or temporary directory>/elastichost-<run id>`; it need not exist.

    Always short enough for ipc socket paths under 100 bytes: a long run id is replaced by its hash.
    Raises PreflightError when even that does not fit.
    """
    name = _PREFIX + _checked(run_id)
    digest = hashlib.blake2b(run_id.encode(), digest_size=8).hexdigest()
    short = f"{_PREFIX}{digest}"
    for candidate in (name, short):
        for root in _socket_roots():
            if len(os.fsencode(root / candidate)) <= _MAX_SOCKET_DIRECTORY_BYTES:
                return root / candidate
    raise PreflightError(
        f"no directory short enough for sockets under {', '.join(map(str, _socket_roots()))}",
        hint="set TMPDIR to a short path such as /tmp",
    )


def create_directory(path: Path, owner: Owner) -> None:
    """Makes `path` (0700) with its OWNER.json, all or nothing. Raises ArenaError when it exists or cannot be made."""
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
            hint="set ELASTICHOST_ARENA_DIR to a directory you may write to, or remove what dead runs left: "
            "python -m elastichost clean",
        ) from error


def read_owner(path: Path) -> Owner:
    """Who owns the directory `path`. Raises ArenaError when OWNER.json is missing or malformed, or when another user
    could have written it."""
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(OWNER_FILE, flags, dir_fd=directory), "rb") as file:
                for which, facts in ((path, os.fstat(directory)), (path / OWNER_FILE, os.fstat(file.fileno()))):
                    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                        raise ArenaError(f"{which} is another user's, or other users can write to it: not believed")
                return msgspec.json.decode(file.read(_MOST_OWNER_BYTES), type=Owner)
        finally:
            os.close(directory)
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError(f"{path / OWNER_FILE} cannot be read: {error}") from error


class Hold:
    """A directory that nobody else may remove or take over until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def take_over(self, owner: Owner) -> None:
        """Makes the directory `owner`'s, all or nothing. Raises ArenaError."""
        making = self.path / f"{OWNER_FILE}.new"
        try:
            if owner.pid == os.getpid():
                lead_directory(self.path)
            descriptor = os.open(making, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(owner))
            making.rename(self.path / OWNER_FILE)
        except OSError as error:
            raise ArenaError(f"cannot take {self.path} over: {error}") from error

    def remove(self) -> None:
        """Whoever is killed within it leaves a directory that still has its owner, so it is stale, and no LAYOUT.json,
        so nobody resumes from it. Raises OSError."""
        release_directory(self.path)
        for entry in sorted(os.scandir(self.path), key=lambda entry: entry.name):  # capitals come first
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != OWNER_FILE:
                os.unlink(entry.path)
        shutil.rmtree(self.path)

    def release(self) -> None:
        """May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(path: Path, patience_s: float = HOLD_PATIENCE_S) -> Hold | None:
    """The directory, held; None when another process holds it for longer than that. Raises FileNotFoundError when it
    is gone, and OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _lock(descriptor, patience_s):
            os.close(descriptor)
            return None
        # It may have been removed between the two calls, and another one may bear its name by now.
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
    """Removes a directory if it (still) belongs to this process, alive or dead. False: another process holds it just
    now, so that has to be asked again. Raises OSError."""
    try:
        held = hold(path)
        if held is None:
            return False
        with held:
            if is_same(read_owner(path), owner):
                held.remove()
    except (FileNotFoundError, ArenaError):
        pass  # nothing is there, or nothing of an owner
    return True


def free_bytes(path: Path) -> int:
    """Bytes that files under `path` (or its nearest existing parent) can still take."""
    while not path.exists() and path != path.parent:
        path = path.parent
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize


def is_in_memory(path: Path) -> bool:
    """Whether files there are memory (tmpfs), and not a disk's, of which memory holds what there is room for."""
    device = f"{os.major(path.stat().st_dev)}:{os.minor(path.stat().st_dev)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == device:
            return kind.split()[0] in ("tmpfs", "ramfs")
    return False


def _run_directories(root: Path) -> Iterator[Path]:
    """Directories that bear the project's prefix, whoever owns them (`read_owner`). Symbolic links are not followed."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except (FileNotFoundError, PermissionError):
        return
    for entry in entries:
        if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def used_bytes(path: Path) -> int:
    """Memory (or disk) that the files of a directory really take."""
    return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir(path))


def stale_arenas() -> list[StaleArena]:
    """Arena and socket directories of this user in which nobody lives. Directories without an owner are left alone."""
    return [left for left in _left_arenas() if not is_living(left.path)]


def _left_arenas() -> Iterator[StaleArena]:
    """Those of dead owners, also arenas that are kept."""
    for root in dict.fromkeys((arena_root(), *_socket_roots())):
        for path in _run_directories(root):
            try:
                owner = read_owner(path)
                if not is_led(path) and (has_lock(path) or not is_alive(owner)):
                    yield StaleArena(path, owner, used_bytes(path))
            except (ArenaError, FileNotFoundError):
                continue  # no owner was ever written, or another process removed it just now


def left_of(run_dir: Path) -> list[StaleArena]:
    """What dead owners left of a run, also what is kept for whoever resumes it."""
    return [left for left in _left_arenas() if left.owner.run_dir == str(run_dir)]


def hold_left(run_dir: Path) -> tuple[Hold, ...]:
    """Holds every directory that dead owners left of a run, so that no guardian removes one while it is looked into."""
    held: list[Hold] = []
    for left in left_of(run_dir):
        try:
            one = hold(left.path)
        except OSError:
            continue  # removed just now
        held += [one] if one is not None else []
    return tuple(held)


def reclaim(path: Path, *, is_kept: bool = False) -> None:
    """Removes an arena or socket directory, if it is still there. is_kept: also one that is kept for a resume. Raises
    ArenaError when `path` is not one, another process lives in it or is just taking it over."""
    if not path.name.startswith(_PREFIX) or path.is_symlink():
        raise ArenaError(f"{path} is not a directory made by elastichost: not removed")
    try:
        if path.stat().st_uid != os.geteuid():
            raise ArenaError(f"{path} belongs to another user: not removed")
        held = hold(path)
        if held is None:
            raise ArenaError(f"{path} is being resumed from just now: not removed")
        with held:
            release_directory(path)
            if is_led(path) or (is_living(path) and not is_kept):
                raise ArenaError(f"{path} is in use (a running process holds {path / LOCK_FILE}): not removed")
            held.remove()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArenaError(f"cannot remove {path}: {error}") from error
