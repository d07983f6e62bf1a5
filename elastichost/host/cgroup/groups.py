"""Finds the directory at which a cgroup (version 2) is visible, from the texts of /proc/self. Pure."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = ["Mount", "group_directory", "groups_around", "mounted", "own_path"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of the hierarchy. root: the group that is visible at the directory `point`."""

    point: PurePosixPath
    root: str


def mounted(mountinfo: str, kind: str) -> tuple[Mount, ...]:
    """Returns the mounts of one type of file system ("cgroup2") from the text of /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        before = fields.split()
        if len(before) >= 5 and rest.split(" ")[0] == kind:
            found.append(Mount(PurePosixPath(_unescaped(before[4])), _unescaped(before[3])))
    return tuple(found)


def _unescaped(text: str) -> str:
    """Returns a path of mountinfo with its octal escapes (blanks, tabs, newlines, backslashes) replaced."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def own_path(proc_cgroup: str) -> str | None:
    """Returns the path of the version 2 group in the text of /proc/self/cgroup; None: there is none."""
    return next((line[3:] for line in proc_cgroup.splitlines() if line.startswith("0::/")), None)


def group_directory(mount: Mount, own: str) -> PurePosixPath | None:
    """Returns the directory at which a group is visible below a mount; None: it is not visible."""
    if ".." in mount.root.split("/"):
        return None  # the root is outside of this process's cgroup namespace, so paths cannot be compared
    relative = posixpath.relpath(own, mount.root)
    if relative == ".." or relative.startswith("../"):
        return None
    return mount.point / relative


def groups_around(mountinfo: str, proc_cgroup: str) -> tuple[PurePosixPath, ...]:
    """Returns the directory of this process' group and those of the visible groups around it, up to the mount's point.
    Where the own group is not visible, only the points of the mounts: their groups may be around it. () if version 2 is
    not mounted."""
    mounts, own = mounted(mountinfo, "cgroup2"), own_path(proc_cgroup)
    for mount in mounts:
        directory = None if own is None else group_directory(mount, own)
        if directory is not None:
            depth = len(directory.parts) - len(mount.point.parts)
            return (directory, *directory.parents)[: depth + 1]
    return tuple(mount.point for mount in mounts)
