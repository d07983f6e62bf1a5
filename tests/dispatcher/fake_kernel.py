"""A stand-in for the kernel's cgroup and resctrl files, in a directory: makes the files of new groups, refuses what the
kernel refuses, records every write."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from elastichost.dispatcher.isolation.control_files import ControlFiles

MEMORY_FILES = {
    "memory.max": "max",
    "memory.high": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.stat": "anon 0\nshmem 0\nkernel 0\nfile 0",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
    "memory.peak": "0",
}
FILES = {"memory": MEMORY_FILES, "cpu": {"cpu.weight": "100"}, "cpuset": {"cpuset.cpus": ""}}


def refuse(number: int) -> OSError:
    """The error that the kernel returns with this errno."""
    return OSError(number, os.strerror(number))


@dataclass
class FakeKernel(ControlFiles):
    """top: mount point of the hierarchy. me: the pid that a "0" in cgroup.procs stands for. unwilling: controllers that
    cannot be enabled for child groups. is_mine: whether files may be written. is_marked: whether groups are marked as
    delegated. immortal: pids that survive cgroup.kill. log: (file, content) of each write."""

    top: Path
    me: int = 100
    unwilling: frozenset[str] = frozenset()
    is_mine: bool = True
    is_marked: bool = False
    groups: dict[Path, set[int]] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    immortal: set[int] = field(default_factory=set)
    log: list[tuple[str, str]] = field(default_factory=list)

    def begin(self, group: str, controllers: str, *pids: int) -> Path:
        """Makes a group as if another program had made it."""
        path = self.top / group
        path.mkdir(parents=True)
        self.groups[path] = set(pids)
        (path / "cgroup.controllers").write_text(controllers)
        self._common(path)
        return path

    def _common(self, path: Path) -> None:
        for name, content in (("cgroup.subtree_control", ""), ("cgroup.kill", ""), ("cgroup.type", "domain\n")):
            (path / name).write_text(content)
        self._show(path)

    def _show(self, path: Path) -> None:
        (path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in sorted(self.groups[path])))

    def end(self, *pids: int) -> None:
        """Ends processes: they leave their groups."""
        for path, members in self.groups.items():
            members -= set(pids)
            self._show(path)

    def read(self, path: Path) -> str:
        return super().read(path)

    def may_write(self, path: Path) -> bool:
        return self.is_mine and path.exists()

    def is_handed_over(self, directory: Path) -> bool:
        return self.is_marked

    def make(self, directory: Path) -> None:
        super().make(directory)
        if self.top not in directory.parents:
            return  # resctrl has no such files
        self.groups[directory] = set()
        enabled = (directory.parent / "cgroup.subtree_control").read_text().split()
        (directory / "cgroup.controllers").write_text(" ".join(enabled))
        self._common(directory)
        for name, content in (item for one in enabled for item in FILES[one].items()):
            (directory / name).write_text(content)

    def remove(self, directory: Path) -> None:
        if not directory.exists():
            raise refuse(errno.ENOENT)
        if self.groups.get(directory) or [one for one in directory.iterdir() if one.is_dir()]:
            raise refuse(errno.EBUSY)
        for one in directory.iterdir():
            one.unlink()
        directory.rmdir()
        self.groups.pop(directory, None)

    def write(self, path: Path, text: str) -> None:
        if not path.exists():
            raise refuse(errno.ENOENT)
        self.log.append((path.name, text))
        match path.name:
            case "cgroup.procs":
                self._move(self.me if text == "0" else int(text), path.parent)
            case "cgroup.subtree_control":
                self._switch(path, text)
            case "cgroup.kill":
                self._kill(path.parent)
            case _:
                path.write_text(text)

    def _move(self, pid: int, group: Path) -> None:
        if (group / "cgroup.subtree_control").read_text():
            raise refuse(errno.EBUSY)  # cgroup v2 allows no processes in a group that has enabled controllers
        if not any(pid in members for members in self.groups.values()):
            raise refuse(errno.ESRCH)
        for path, members in self.groups.items():
            members.discard(pid)
            self._show(path)
        self.groups[group].add(pid)
        self._show(group)

    def _switch(self, path: Path, text: str) -> None:
        enabled = path.read_text().split()
        sign, name = text[0], text[1:]
        if sign == "+":
            if self.groups[path.parent]:
                raise refuse(errno.EBUSY)
            if name not in (path.parent / "cgroup.controllers").read_text().split() or name in self.unwilling:
                raise refuse(errno.ENOENT)
            enabled.append(name)
        else:
            enabled.remove(name)
        path.write_text(" ".join(enabled))

    def _kill(self, group: Path) -> None:
        ended = self.groups[group] - self.immortal
        self.killed |= ended
        self.end(*ended)
