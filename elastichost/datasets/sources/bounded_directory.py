"""Files that processes make once and all read, within a bound of bytes for all of them together.

Theory of operation. A file lies in a group (a subdirectory) and never changes. A process that makes it locks
`NAME.part`, writes it, and renames it to NAME: so a file is whole or absent, and others that want it meanwhile see that
it is being made. The lock is the kernel's (flock): that of a killed process is free, and its part is written anew.
The bytes are counted in `.used`, under a lock; a part has its full length before it is written, so a new count over all
files finds each byte that is promised. Where there is no room, groups that no process uses are removed, the one that
was used longest ago first. What is in use is never removed, because files are read round and round: the one that was
read longest ago is the next to be read again.

Each process that uses a group has a shared lock on the byte of `.users` that stands for it. So a process needs one
descriptor for all groups, of which there may be thousands, one for each file of a dataset. The lock belongs to the open
file (fcntl, F_OFD_SETLK) and not to the process: it ends when the file is closed, in this process and in those that it
has forked, and two directories of one process exclude each other as those of two processes do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Buffer

from elastichost.arena.host import free_bytes

__all__ = ["BoundedDirectory", "Claim"]

PART = ".part"
USED, USERS = ".used", ".users"
RESERVE = 16  # of the bound is made free at a time, so that not every write looks for room
RECOUNT_S = 5.0  # from one count of all files to the next, and from a refusal to the next look for room
_USED_FORMAT = struct.Struct("<q")
_LOCK_FORMAT = struct.Struct("@hhqqi4x")  # struct flock of the kernel: type, whence, start, length, process


@dataclass(slots=True)
class Claim:
    """The right to make one file. It ends with `release`, or with the process."""

    path: Path
    descriptor: int
    is_made: bool = False
    size_bytes: int = 0

    def release(self) -> None:
        """Gives the right back. A part that was not completed is removed."""
        if self.descriptor < 0:
            return
        if not self.is_made:
            self.path.with_name(self.path.name + PART).unlink(missing_ok=True)
        os.close(self.descriptor)
        self.descriptor = -1


class BoundedDirectory:
    """One directory, in one process; usable by several threads. limit_bytes: of all files of all processes; None: a
    quarter of what they and the free space of the disk are together. Raises OSError when the directory cannot be made
    or used."""

    def __init__(self, path: Path, limit_bytes: int | None) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._groups: set[str] = set()
        self._users: int | None = None  # the descriptor with the locks on the groups
        self._next_count_s = self._next_try_s = 0.0
        with self._ledger() as ledger:
            _write_used(ledger, used := self._count())
        self._limit_bytes = (used + free_bytes(path)) // 4 if limit_bytes is None else limit_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of all files, with those that are being made."""
        with self._ledger() as ledger:
            return _read_used(ledger)

    def limit(self, limit_bytes: int) -> None:
        """Sets the bound. Files beyond it are removed: groups that no process uses first, then any."""
        self._limit_bytes = limit_bytes
        with self._ledger() as ledger:
            used = _read_used(ledger)
            if used > limit_bytes:
                _write_used(ledger, self._shrunk(used, limit_bytes))

    def use(self, group: str) -> None:
        """Keeps a group until `close`: no other process removes its files for lack of room."""
        if group in self._groups:
            return
        if self._users is None:
            self._users = _opened(self.path / USERS, os.O_CREAT | os.O_RDWR)
        _lock(self._users, group, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK)  # from now on no process removes its folder
        folder = self.path / group
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)
        self._groups.add(group)

    def find(self, group: str, name: str) -> int | None:
        """The descriptor of a file, for reading; None: it is absent. The caller closes it."""
        try:
            return _opened(self.path / group / name, os.O_RDONLY)
        except FileNotFoundError:
            return None

    def claim(self, group: str, name: str) -> Claim | None:
        """The right to make a file; None: another thread or process, which lives, makes it now. The file may have been
        completed just before: look again. Raises OSError."""
        path = self.path / group / name
        part = path.with_name(name + PART)
        while True:
            descriptor = _opened(part, os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if _is_at(descriptor, part):
                os.ftruncate(descriptor, 0)  # a process that was killed may have written a part of it
                return Claim(path, descriptor)
            os.close(descriptor)  # renamed or removed by its maker between opening and locking

    def make(self, claim: Claim, content: Sequence[Buffer]) -> bool:
        """Writes the file, and lets it appear. False: there is no room for it within the bound, or on the disk."""
        return self.append(claim, content) and self.complete(claim)

    def append(self, claim: Claim, content: Sequence[Buffer]) -> bool:
        """Writes more of the file. False: there is no room for it; what was written is gone."""
        size = sum(memoryview(one).nbytes for one in content)
        at = claim.size_bytes
        if not self._promise(claim, size):
            self.drop(claim)
            return False
        try:
            for one in content:
                at = _written(claim.descriptor, memoryview(one).cast("B"), at)
        except OSError:
            self.drop(claim)
            return False
        return True

    def complete(self, claim: Claim) -> bool:
        """Lets the file appear. False: the disk fails; what was written is gone."""
        try:
            claim.path.with_name(claim.path.name + PART).rename(claim.path)
        except OSError:
            self.drop(claim)
            return False
        claim.is_made = True
        return True

    def drop(self, claim: Claim) -> None:
        """Removes what was written of a file."""
        with contextlib.suppress(OSError):
            os.ftruncate(claim.descriptor, 0)
        self._forget(claim.size_bytes)
        claim.size_bytes = 0

    def remove(self, group: str, name: str) -> None:
        """Removes a damaged file."""
        with contextlib.suppress(FileNotFoundError):
            size = (self.path / group / name).stat().st_size
            (self.path / group / name).unlink()
            self._forget(size)

    def clear(self) -> int:
        """Removes the groups that no process uses. Returns the number of bytes that this freed."""
        with self._ledger() as ledger:
            used = self._count()
            left = self._without_idle(used, 0)
            _write_used(ledger, left)
        return used - left

    def close(self) -> None:
        """Lets others remove the groups."""
        if self._users is not None:
            os.close(self._users)
        self._users, self._groups = None, set()

    # --- bytes ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[int]:
        descriptor = _opened(self.path / USED, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _promise(self, claim: Claim, size: int) -> bool:
        with self._ledger() as ledger:
            used = _read_used(ledger)
            if used + size > self._limit_bytes:
                _write_used(ledger, used := self._with_room(used, size))
            if used + size > self._limit_bytes:
                return False
            try:
                os.ftruncate(claim.descriptor, claim.size_bytes + size)
            except OSError:
                return False
            claim.size_bytes += size
            _write_used(ledger, used + size)
            return True

    def _with_room(self, used: int, size: int) -> int:
        """Looks for room for `size` more bytes. Returns the bytes that are used then. Files are counted before any is
        removed: a process that was killed may have promised bytes that it never wrote."""
        now_s = time.monotonic()
        if now_s < self._next_try_s:
            return used
        if now_s >= self._next_count_s:
            self._next_count_s = now_s + RECOUNT_S
            used = self._count()
        if used + size > self._limit_bytes >= size:
            used = self._without_idle(used, self._limit_bytes - max(size, self._limit_bytes // RESERVE))
        if used + size > self._limit_bytes:
            self._next_try_s = now_s + RECOUNT_S
        return used

    def _forget(self, size: int) -> None:
        with self._ledger() as ledger:
            _write_used(ledger, max(0, _read_used(ledger) - size))

    def _count(self) -> int:
        """Bytes of all files. Parts of processes that ended are removed."""
        return sum(_size_of(path) for group in self._folders() for path in _files(group))

    def _folders(self) -> list[Path]:
        return [Path(entry.path) for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]

    def _without_idle(self, used: int, wanted: int) -> int:
        """Removes groups that no process uses until no more than `wanted` bytes are used, or none is left. Returns the
        bytes that are used then."""
        users = _opened(self.path / USERS, os.O_CREAT | os.O_RDWR)
        try:
            for folder in sorted(self._folders(), key=_used_last_ns):
                if used <= wanted:
                    break
                if folder.name in self._groups or not _is_idle(users, folder.name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    used -= sum(path.stat().st_size for path in _files(folder))
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(users)
        return max(0, used)

    def _shrunk(self, used: int, wanted: int) -> int:
        used = self._without_idle(used, wanted)
        for folder in self._folders():
            for path in _files(folder):
                if used <= wanted:
                    return used
                if path.suffix != PART:
                    with contextlib.suppress(FileNotFoundError):
                        size = path.stat().st_size
                        path.unlink()
                        used -= size
        return max(0, used)


def _opened(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(users: int, group: str, command: int, kind: int) -> None:
    """Locks the byte of a group until `users` is closed. command: F_OFD_SETLKW waits for others;
    F_OFD_SETLK raises BlockingIOError where another has it locked. kind: F_RDLCK to use the group, F_WRLCK to remove
    it."""
    byte = int.from_bytes(hashlib.sha256(group.encode()).digest()[:6])
    try:
        fcntl.fcntl(users, command, _LOCK_FORMAT.pack(kind, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A kernel without these locks, as that of a sandbox. The whole file is locked: while a process uses any group,
        # no other process removes any.
        fcntl.flock(users, fcntl.LOCK_SH if kind == fcntl.F_RDLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_idle(users: int, group: str) -> bool:
    """Whether no process uses the group. Then none begins to before `users` is closed."""
    try:
        _lock(users, group, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _files(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder)]
    except FileNotFoundError:
        return []


def _size_of(path: Path) -> int:
    """The bytes of a file; 0 for the part of a process that ended, which is removed."""
    try:
        if path.suffix != PART:
            return path.stat().st_size
        descriptor = _opened(path, os.O_RDWR)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, path):
            path.unlink()
        return 0
    except BlockingIOError:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _used_last_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _written(descriptor: int, content: memoryview, at: int) -> int:
    while content:
        size = os.pwrite(descriptor, content, at)
        content, at = content[size:], at + size
    return at


def _read_used(ledger: int) -> int:
    found = os.pread(ledger, _USED_FORMAT.size, 0)
    return int(_USED_FORMAT.unpack(found)[0]) if len(found) == _USED_FORMAT.size else 0


def _write_used(ledger: int, used: int) -> None:
    os.pwrite(ledger, _USED_FORMAT.pack(used), 0)
