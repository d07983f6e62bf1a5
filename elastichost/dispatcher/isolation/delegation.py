"""Whether this process was given a cgroup (version 2) that it may divide: it only looks, and says why not, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastichost.dispatcher.isolation.control_files import ControlFiles
from elastichost.dispatcher.isolation.limits import group_directory, mounted, own_path
from elastichost.errors import ElastichostError

__all__ = ["WANTED", "Delegated", "Delegation", "NotDelegatedError", "delegated", "processes_in"]

WANTED = ("memory", "cpu", "cpuset")


class NotDelegatedError(ElastichostError):
    """Why cgroups cannot be used here; `message` goes on after "cgroup v2: "."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """Of this process. proc: its directory below /proc; uid: its user; family: it and all processes below it; systemd:
    exists where that manages the host."""

    proc: Path
    uid: int
    family: Callable[[], frozenset[int]]
    systemd: Path = Path("/run/systemd/system")

    @property
    def repair(self) -> str:
        """What to do about it, where there is something."""
        found = self.systemd.exists()
        return "; start it in one of its own: systemd-run --user --scope -p Delegate=yes elastichost ..." * found


@dataclass(frozen=True, slots=True)
class Delegated:
    """directory: where it shows; name: of it in the hierarchy; controllers: of WANTED, that it may use."""

    directory: Path
    name: str
    controllers: tuple[str, ...]


def delegated(files: ControlFiles, standing: Delegation) -> Delegated:
    """The group that this process may divide. Raises NotDelegatedError."""
    group, name = _own_group(files, standing.proc)
    present = _read(files, group / "cgroup.controllers").split()
    controllers = tuple(one for one in WANTED if one in present)
    if "memory" not in controllers and "cpu" not in controllers:
        there = ", ".join(present) or "none"
        raise NotDelegatedError(
            f"{group} has neither the memory nor the cpu controller, but {there} (version 1, which may have them, is "
            "left alone)"
        )
    if problem := _problem(files, group, standing):
        raise NotDelegatedError(f"{name} {problem}{standing.repair}")
    return Delegated(group, name, controllers)


def _problem(files: ControlFiles, group: Path, standing: Delegation) -> str:
    """Why a group with controllers cannot be divided; "": it can."""
    if not (group / "cgroup.type").exists():
        return "is the root of the hierarchy, which nobody delegates"
    if (kind := _read(files, group / "cgroup.type").strip()) != "domain":
        return f"is of the type {kind}, not a domain"
    if not all(files.may_write(group / one) for one in ("", "cgroup.procs", "cgroup.subtree_control")):
        return "was not delegated: it cannot be written"
    if standing.uid == 0 and standing.systemd.exists() and not files.is_handed_over(group):
        return "is the service manager's, which did not delegate it"
    if not processes_in(files, group) <= standing.family():
        return "has processes of others in it, which are not to be moved"
    return ""


def _own_group(files: ControlFiles, proc: Path) -> tuple[Path, str]:
    mounts = mounted(_read(files, proc / "mountinfo"), "cgroup2")
    own = own_path(_read(files, proc / "cgroup"))
    if not mounts:
        raise NotDelegatedError("it is not mounted (version 1, which may be, is left alone)")
    if own is None:
        raise NotDelegatedError("this process is in no group of it")
    shown = next((group for mount in mounts if (group := group_directory(mount, own)) is not None), None)
    if shown is None:
        raise NotDelegatedError(f"the group {own} of this process does not show at {mounts[0].point}")
    return Path(shown), own


def processes_in(files: ControlFiles, group: Path) -> frozenset[int]:
    """0 stands for those of another pid namespace. Raises NotDelegatedError."""
    return frozenset(map(int, _read(files, group / "cgroup.procs").split()))


def _read(files: ControlFiles, path: Path) -> str:
    try:
        return files.read(path)
    except OSError as error:
        raise NotDelegatedError(f"{path} cannot be read: {error.strerror or error}") from None
