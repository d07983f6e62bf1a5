"""Measures the memory of a running job from outside: pages of its arena, copies for checkpoints, anonymous memory.

The exact anonymous memory (by shares, Pss) is read a few times a second, which takes milliseconds for each process.
Between these reads, the resident anonymous memory (RssAnon) is read every few milliseconds; its growth since the last
exact read is private memory of the process. In this way, memory that exists only within one batch is measured too. A
page shared with the process that all jobs are forked from counts once it has been copied, from the next exact read on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Footprint", "JobMemory", "anonymous_bytes"]

SHARES_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of memory at one moment. by_role: private bytes by process name, empty if they were not requested."""

    arena: int
    copies: int
    anonymous: int
    by_role: dict[str, int]

    @property
    def total(self) -> int:
        return self.arena + self.copies + self.anonymous


@dataclass(frozen=True, slots=True)
class _Shares:
    at_s: float
    pids: list[int]
    resident: int
    anonymous: int
    copies: int
    by_role: dict[str, int]


class JobMemory:
    """Measures the processes below `root` and the files below `arena`. shared_with: the process from which they were
    forked (its pages are not counted), and its bytes before the first fork."""

    def __init__(
        self, root: int, arena: Path, shared_with: tuple[int, int] | None = None, *, with_roles: bool = False
    ) -> None:
        self._root, self._arena, self._shared_with, self._with_roles = root, arena, shared_with, with_roles
        self._shares: _Shares | None = None
        self.peak: Footprint | None = None

    def look(self) -> None:
        """Reads the memory once. Call it as often as possible."""
        pids = _tree(self._root)
        shares = self._shares
        if shares is None or shares.pids != pids or time.monotonic() - shares.at_s > SHARES_EVERY_S:
            shares = self._shares = self._look_at_shares(pids)
            if shares is None:
                return
        grown = sum(_status(pid, "RssAnon:") for pid in pids) - shares.resident
        found = Footprint(_tree_bytes(self._arena), shares.copies, shares.anonymous + grown, shares.by_role)
        if _tree(self._root) == pids and (self.peak is None or found.total > self.peak.total):
            self.peak = found

    def _look_at_shares(self, pids: list[int]) -> _Shares | None:
        """The exact memory by shares; None if a process started or ended during the read."""
        roles: dict[str, int] = {}
        anonymous = copies = resident = 0
        for pid in pids:
            name = "supervisor" if pid == self._root else _name(pid)
            resident += _status(pid, "RssAnon:")
            anonymous += anonymous_bytes(pid, "Pss_Anon:")
            if name.startswith("server"):
                copies += _copies(pid)
            if self._with_roles:
                roles[name] = roles.get(name, 0) + _private(pid)
        if self._shared_with is not None:
            pid, alone = self._shared_with
            anonymous += anonymous_bytes(pid, "Pss_Anon:") - alone
        if _tree(self._root) != pids:
            return None
        return _Shares(time.monotonic(), pids, resident, anonymous, copies, roles)


def _tree(root: int) -> list[int]:
    """The process and all its descendants, ordered by pid."""
    found, pending = [], [root]
    while pending:
        pid = pending.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                pending += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split())
        except OSError:
            continue
    return sorted(found)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _field(path: str, field: str) -> int:
    """A size in bytes from a file of /proc; 0 if the process has ended."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(field)), 0)


def _status(pid: int, field: str) -> int:
    return _field(f"/proc/{pid}/status", field)


def anonymous_bytes(pid: int, field: str = "Anonymous:") -> int:
    """A field of smaps_rollup in bytes."""
    return _field(f"/proc/{pid}/smaps_rollup", field)


def _mappings(pid: int) -> Iterator[tuple[str, dict[str, int]]]:
    """(path or "", sizes in bytes by name) of each mapping of the process."""
    path, sizes = "", dict[str, int]()
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if words[0].endswith(":"):
            if words[-1] == "kB":
                sizes[words[0]] = int(words[1]) * 1024
        else:
            yield path, sizes
            path, sizes = words[5] if len(words) > 5 else "", {}
    yield path, sizes


def _private(pid: int) -> int:
    """Anonymous memory that no other process shares, in bytes."""
    return sum(s.get("Private_Dirty:", 0) for path, s in _mappings(pid) if not path or path.startswith("["))


def _copies(pid: int) -> int:
    """Unnamed shared memory in bytes: a PS keeps it for checkpoint copies."""
    return sum(sizes.get("Pss:", 0) for path, sizes in _mappings(pid) if path == "/dev/zero")


def _tree_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total
