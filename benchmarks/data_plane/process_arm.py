"""An arm as a tree of real processes, which the benchmark resumes, stops and measures from outside."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness.interleave import ArmFailedError
from benchmarks.harness.processes import Process, cpu_s, end_processes, is_running, memory_bytes, signal_all, tree_of
from benchmarks.peers.common import PeerMode
from elastichost.run_files import JOURNAL_FILE

__all__ = ["ArenaCounter", "ProcessArm"]

ROLE = re.compile(r"(worker|server|chief)\b")
LAST_WORDS = 12  # last lines of an arm's log that a failure shows


class ArenaCounter:
    """Counts the committed samples of an elastichost run, from the applied records in its arena."""

    def __init__(self, run_dir: Path) -> None:
        self._journal = run_dir / JOURNAL_FILE
        self._samples: Callable[[], int] | None = None

    def __call__(self) -> int:
        """The committed samples so far; 0 while there is no arena."""
        if self._samples is None:
            directory = self._arena_directory()
            if directory is None:
                return 0
            self._samples = _applied_samples(directory)
        return self._samples()

    def _arena_directory(self) -> Path | None:
        if not self._journal.exists():
            return None
        for line in self._journal.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and '"arena_opened"' in line:
                event = json.loads(line)["event"]
                if event["kind"] == "arena_opened":
                    return Path(event["path"])
        return None


def _applied_samples(directory: Path) -> Callable[[], int]:
    from elastichost.arena.arena import Arena  # these imports load numba, which takes seconds
    from elastichost.arena.dense.store import DenseStore

    return DenseStore(Arena.attach(directory)).samples_applied


class ProcessArm:
    """Implements `windows.Arm`. `root`: pid of the root of its process tree. `of_root`: roles of processes without
    a role in their names: of the root, then of the others. `child`: the root, if it is a child of this process.
    `set_mode`: sets the mode of a peer; None for an arm without modes."""

    def __init__(
        self,
        name: str,
        root: int,
        count: Callable[[], int],
        log: Path,
        *,
        roles: tuple[str, str] = ("other", "other"),
        child: subprocess.Popen[bytes] | None = None,
        set_mode: Callable[[PeerMode], None] | None = None,
    ) -> None:
        self.name = name
        self.root = root
        self._count = count
        self._log = log
        self._roles = roles
        self._child = child
        self._set_mode = set_mode
        self._members: dict[int, str] = {}

    def samples(self) -> int:
        return self._count()

    def settle(self) -> None:
        """Records the processes of the arm. Call it once, when the arm trains: its processes must not change later."""
        self._members = {process.pid: self._role(process) for process in tree_of(self.root)}
        self.check()

    def _role(self, process: Process) -> str:
        named = ROLE.match(process.name)
        if named:
            return named[1]
        return self._roles[process.pid != self.root]

    def set_mode(self, mode: PeerMode) -> None:
        """Sets how a peer computes from its next step on. Raises ValueError if the arm has no modes."""
        if self._set_mode is None:
            raise ValueError(f"{self.name} has no modes")
        self._set_mode(mode)

    def check(self) -> None:
        if all(map(is_running, self._members or (self.root,))):
            return
        words = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        told = "\n".join(f"    {line}" for line in words[-LAST_WORDS:])
        raise ArmFailedError(f"a process of the arm has ended; last lines of its log:\n{told}")

    def resume(self) -> None:
        signal_all(self._members, signal.SIGCONT)
        self.check()

    def pause(self) -> None:
        # servers first, so that no server goes on after its workers are stopped
        for pid in sorted(self._members, key=lambda pid: self._members[pid] != "server"):
            signal_all((pid,), signal.SIGSTOP)

    def cpu_s(self) -> Mapping[str, float]:
        spent: dict[str, float] = {}
        for pid, role in self._members.items():
            spent[role] = spent.get(role, 0.0) + cpu_s(pid)
        return spent

    def memory_bytes(self) -> Mapping[str, int]:
        """Proportional set sizes in bytes, by role."""
        taken: dict[str, int] = {}
        for pid, role in self._members.items():
            taken[role] = taken.get(role, 0) + memory_bytes(pid)
        return taken

    def close(self) -> None:
        """Ends every process of the arm."""
        members = {process.pid for process in tree_of(self.root)} | set(self._members)
        end_processes(members)
        if self._child is not None:
            self._child.wait()
