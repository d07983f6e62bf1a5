"""The owner of a directory: a process, identified by pid, start time and boot id. So another process with a reused pid,
or one of a later boot, is never mistaken for the owner. `arena.directory_lock` decides whether an owner is alive: a pid
alone does not show it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from elastichost.errors import ArenaError

__all__ = ["Owner", "end_owner", "is_alive", "is_same", "is_this_boot", "owner_of"]


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The process that owns a directory, and the run that the directory was made for."""

    pid: int
    start_time_ticks: int  # clock ticks since boot: field 22 of /proc/<pid>/stat
    boot_id: str
    run_dir: str


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is no such process or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may contain any character, so fields are counted from its end.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def owner_of(pid: int, run_dir: Path) -> Owner:
    """The running process `pid` as an owner. Raises ArenaError when there is no such process."""
    ticks = _start_time_ticks(pid)
    if ticks is None:
        raise ArenaError(f"process {pid} is not running, so it cannot own an arena")
    return Owner(pid=pid, start_time_ticks=ticks, boot_id=_boot_id(), run_dir=str(run_dir))


def is_alive(owner: Owner) -> bool:
    """Whether the owner is still running, and not another process with its pid."""
    return owner.boot_id == _boot_id() and _start_time_ticks(owner.pid) == owner.start_time_ticks


def end_owner(owner: Owner) -> bool:
    """Kills the owner if it is still running and belongs to this user. False: it is not running, or not this user's.

    The pidfd is opened before the owner is checked, so the signal never reaches another process that got its pid.
    """
    try:
        descriptor = os.pidfd_open(owner.pid)
    except (OSError, ValueError, OverflowError):
        return False
    try:
        if not is_alive(owner) or Path(f"/proc/{owner.pid}").stat().st_uid != os.geteuid():
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def is_this_boot(owner: Owner) -> bool:
    """Whether the owner ran since the last boot. False: the host was rebooted since, so its arena in memory is lost."""
    return owner.boot_id == _boot_id()


def is_same(one: Owner, other: Owner) -> bool:
    """Whether two owners are the same process; their run directories may differ."""
    return msgspec.structs.replace(one, run_dir="") == msgspec.structs.replace(other, run_dir="")
