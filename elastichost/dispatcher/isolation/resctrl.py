"""Counts the bytes that each job moves between memory and caches, if the processor can count them (Linux resctrl).

Jobs get monitoring groups only. Caches and bandwidth are not divided: no schemata are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from elastichost.dispatcher.isolation.control_files import ControlFiles
from elastichost.dispatcher.isolation.limits import group_name

__all__ = ["ResctrlTier", "open_resctrl"]

TRAFFIC = "mbm_total_bytes"


def open_resctrl(root: Path, files: ControlFiles) -> tuple[ResctrlTier | None, str]:
    """Returns the tier, or None if memory traffic cannot be counted, and a sentence for the user. root: the directory
    at which resctrl is mounted. Changes nothing."""
    if not (root / "info").is_dir():
        return None, "resctrl: it is not mounted, so the memory traffic of jobs is not counted."
    what = _divisible(root, files)
    features = _read(root / "info" / "L3_MON" / "mon_features", files).split()
    if TRAFFIC not in features:
        return None, f"resctrl: {what}; the processor does not count memory traffic."
    if not files.may_write(root / "mon_groups"):
        return None, f"resctrl: {what}; memory traffic could be counted, but only by root."
    most = _read(root / "info" / "L3_MON" / "num_rmids", files).strip()
    tier = ResctrlTier(root, files, int(most) - 1 if most.isdecimal() else 0)  # one is for all other processes
    return tier, f"resctrl: the memory traffic of each of up to {tier.most} jobs is counted; {what}."


def _divisible(root: Path, files: ControlFiles) -> str:
    """Says what the processor could divide among processes. A class is a set of processes with the same part."""
    found = []
    for name, word in (("L3", "cache"), ("MB", "memory bandwidth")):
        classes = _read(root / "info" / name / "num_closids", files).strip()
        if classes:
            found.append(f"{word} ({classes} classes)")
    return f"{' and '.join(found)} could be divided, which is not done" if found else "nothing can be divided"


def _read(path: Path, files: ControlFiles) -> str:
    try:
        return files.read(path)
    except OSError:
        return ""


@dataclass(slots=True)
class ResctrlTier:
    """The monitoring groups of all jobs. most: number of groups that the processor can count at the same time."""

    root: Path
    files: ControlFiles
    most: int
    _groups: dict[str, Path] = field(default_factory=dict)
    _made: int = 0

    def door(self, job: str) -> Path | None:
        """The file into which a thread writes 0 to be counted with all that it starts; None: the job has no group."""
        group = self._groups.get(job)
        return None if group is None else group / "tasks"

    def admit(self, job: str, pid: int | None) -> tuple[str, ...]:
        """Creates the group of a job, unless all groups are in use. pid: the job's first process, which is moved there;
        None: the process enters by itself. Returns sentences about what failed."""
        self.release(job)
        if len(self._groups) >= self.most:
            return ()
        self._made += 1
        group = self.root / "mon_groups" / group_name(self._made, job)
        try:
            self.files.make(group)
            self._groups[job] = group
            if pid is not None:
                self.files.write(group / "tasks", str(pid))
        except OSError as error:
            return (f"the memory traffic of {job} is not counted: {error.strerror or error}",)
        return ()

    def traffic_bytes(self, job: str) -> int | None:
        """Bytes moved so far, summed over all caches; None: they are not counted, or not available now."""
        group = self._groups.get(job)
        if group is None:
            return None
        counts = [_read(path, self.files).strip() for path in group.glob(f"mon_data/mon_L3_*/{TRAFFIC}")]
        return sum(map(int, counts)) if counts and all(count.isdecimal() for count in counts) else None

    def release(self, job: str) -> None:
        """Removes the group of a job."""
        group = self._groups.pop(job, None)
        if group is not None:
            try:
                self.files.remove(group)  # processes that are still in it are counted with all others from now on
            except OSError:
                return

    def close(self) -> None:
        for job in tuple(self._groups):
            self.release(job)
