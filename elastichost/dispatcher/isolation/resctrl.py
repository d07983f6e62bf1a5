"""How much each job moves between memory and caches, where the processor counts it (Linux' resctrl).

Nothing is divided: caches and bandwidth stay everybody's, no schemata are written; jobs get monitoring groups only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from elastichost.dispatcher.isolation.control_files import ControlFiles
from elastichost.dispatcher.isolation.limits import group_name

__all__ = ["ResctrlTier", "open_resctrl"]

TRAFFIC = "mbm_total_bytes"


def open_resctrl(root: Path, files: ControlFiles) -> tuple[ResctrlTier | None, str]:
    """root: where it is mounted. What there is, in words. Only looks."""
    if not (root / "info").is_dir():
        return None, "resctrl: it is not mounted; whose memory traffic it is cannot be told."
    what = _divisible(root, files)
    features = _read(root / "info" / "L3_MON" / "mon_features", files).split()
    if TRAFFIC not in features:
        return None, f"resctrl: {what}; memory traffic is not counted here."
    if not files.may_write(root / "mon_groups"):
        return None, f"resctrl: {what}; memory traffic is counted, but only root may ask for it."
    most = _read(root / "info" / "L3_MON" / "num_rmids", files).strip()
    tier = ResctrlTier(root, files, int(most) - 1 if most.isdecimal() else 0)  # one is everybody else's
    return tier, f"resctrl: the memory traffic of up to {tier.most} jobs is counted, each by itself; {what}."


def _divisible(root: Path, files: ControlFiles) -> str:
    """What could be divided; a class is a set of processes with the same part."""
    found = []
    for name, word in (("L3", "cache"), ("MB", "memory bandwidth")):
        classes = _read(root / "info" / name / "num_closids", files).strip()
        if classes:
            found.append(f"{word} ({classes} classes)")
    return f"{' and '.join(found)} could be divided and is left to all" if found else "nothing can be divided"


def _read(path: Path, files: ControlFiles) -> str:
    try:
        return files.read(path)
    except OSError:
        return ""


@dataclass(slots=True)
class ResctrlTier:
    """most: monitoring groups that the processor can tell apart."""

    root: Path
    files: ControlFiles
    most: int
    _groups: dict[str, Path] = field(default_factory=dict)
    _made: int = 0

    def door(self, job: str) -> Path | None:
        """Where a thread writes 0 to be counted, with all that it starts."""
        group = self._groups.get(job)
        return None if group is None else group / "tasks"

    def admit(self, job: str, pid: int | None) -> tuple[str, ...]:
        """A group for a job, while there are any. pid: of its first process; None: it goes in by itself."""
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
            return (f"{job}: its memory traffic is not counted: {error.strerror or error}",)
        return ()

    def traffic_bytes(self, job: str) -> int | None:
        """Sum over all caches; None: it is not counted, or not just now."""
        group = self._groups.get(job)
        if group is None:
            return None
        counts = [_read(path, self.files).strip() for path in group.glob(f"mon_data/mon_L3_*/{TRAFFIC}")]
        return sum(map(int, counts)) if counts and all(count.isdecimal() for count in counts) else None

    def release(self, job: str) -> None:
        group = self._groups.pop(job, None)
        if group is not None:
            try:
                self.files.remove(group)  # who is still in it is counted with everybody else
            except OSError:
                return

    def close(self) -> None:
        for job in tuple(self._groups):
            self.release(job)
