"""Finds the cgroup (version 2) that this process may divide, or the reason why there is none. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastichost.dispatcher.isolation.control_files import ControlFiles
from elastichost.errors import ElastichostError
from elastichost.host.cgroup.groups import group_directory, mounted, own_path

__all__ = ["WANTED", "Delegated", "Delegation", "NotDelegatedError", "delegated", "processes_in"]

WANTED = ("memory", "cpu", "cpuset")


class NotDelegatedError(ElastichostError):
    """Cgroups cannot be used here. `message` is the reason, and is shown after "cgroup v2: "."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """The facts about this process from which delegation is decided. proc: its directory below /proc. uid: its user.
    family: returns the pids of it and all its descendants. systemd: a directory that exists if systemd manages the
    host."""

    proc: Path
    uid: int
    family: Callable[[], frozenset[int]]
    systemd: Path = Path("/run/systemd/system")

    @property
    def repair(self) -> str:
        """How to get a delegated group, as the end of a sentence; "": without systemd no way is known."""
        found = self.systemd.exists()
        return "; start it in a group of its own: systemd-run --user --scope -p Delegate=yes elastichost ..." * found


@dataclass(frozen=True, slots=True)
class Delegated:
    """A group that this process may divide. directory: its directory in the file system. name: its path in the
    hierarchy. controllers: those of WANTED that it has."""

    directory: Path
    name: str
    controllers: tuple[str, ...]


def delegated(files: ControlFiles, standing: Delegation) -> Delegated:
    """Returns the group of this process if it may divide it. Raises NotDelegatedError otherwise."""
    group, name = _own_group(files, standing.proc)
    present = _read(files, group / "cgroup.controllers").split()
    controllers = tuple(one for one in WANTED if one in present)
    if "memory" not in controllers and "cpu" not in controllers:
        there = ", ".join(present) or "none"
        raise NotDelegatedError(
            f"{group} has neither the memory nor the cpu controller, but {there}; they may belong to cgroup version 1, "
            "which is not used"
        )
    if problem := _problem(files, group, standing):
        raise NotDelegatedError(f"{name} {problem}{standing.repair}")
    return Delegated(group, name, controllers)


def _problem(files: ControlFiles, group: Path, standing: Delegation) -> str:
    """Why a group with controllers cannot be divided, as the end of a sentence; "": it can."""
    if not (group / "cgroup.type").exists():
        return "is the root of the hierarchy, which cannot be delegated"
    if (kind := _read(files, group / "cgroup.type").strip()) != "domain":
        return f"is of the type {kind}, not a domain"
    if not all(files.may_write(group / one) for one in ("", "cgroup.procs", "cgroup.subtree_control")):
        return "was not delegated to this user: its files are not writable"
    if standing.uid == 0 and standing.systemd.exists() and not files.is_handed_over(group):
        return "belongs to systemd, which did not delegate it"
    if not processes_in(files, group) <= standing.family():
        return "has processes that this program did not start, and must not move"
    return ""


def _own_group(files: ControlFiles, proc: Path) -> tuple[Path, str]:
    mounts = mounted(_read(files, proc / "mountinfo"), "cgroup2")
    own = own_path(_read(files, proc / "cgroup"))
    if not mounts:
        raise NotDelegatedError("it is not mounted; version 1, if it is mounted, is not used")
    if own is None:
        raise NotDelegatedError("this process is in no group of version 2")
    shown = next((group for mount in mounts if (group := group_directory(mount, own)) is not None), None)
    if shown is None:
        raise NotDelegatedError(f"the group {own} of this process is not visible below {mounts[0].point}")
    return Path(shown), own


def processes_in(files: ControlFiles, group: Path) -> frozenset[int]:
    """Returns the pids in a group; 0 stands for processes of another pid namespace. Raises NotDelegatedError."""
    return frozenset(map(int, _read(files, group / "cgroup.procs").split()))


def _read(files: ControlFiles, path: Path) -> str:
    try:
        return files.read(path)
    except OSError as error:
        raise NotDelegatedError(f"{path} cannot be read: {error.strerror or error}") from None
