"""Whose a directory is: a process, named by pid, start time and boot id, so that a reused pid or a reboot is never
taken for it. Whether it lives is told by a lock and never by its pid alone: see `arena.directory_lock`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from elastichost.errors import ArenaError

__all__ = ["Owner", "end_owner", "is_alive", "is_same", "is_this_boot", "owner_of"]


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The process that a directory belongs to, and the run it was made for."""

    pid: int
    start_time_ticks: int  # since boot, /proc/<pid>/stat field 22
    boot_id: str
    run_dir: str


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time_ticks(pid: int) -> int | None:
    """None: there is no such process, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may hold anything, so fields are counted from its end.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def owner_of(pid: int, run_dir: Path) -> Owner:
    """The living process `pid` as an owner. Raises ArenaError when there is no such process."""
    ticks = _start_time_ticks(pid)
    if ticks is None:
        raise ArenaError(f"process {pid} does not live, so it cannot own an arena")
    return Owner(pid=pid, start_time_ticks=ticks, boot_id=_boot_id(), run_dir=str(run_dir))


def is_alive(owner: Owner) -> bool:
    """Whether that very process still lives."""
    return owner.boot_id == _boot_id() and _start_time_ticks(owner.pid) == owner.start_time_ticks


def end_owner(owner: Owner) -> bool:
    """Kills that very process, if it still lives and is this user's. False: there is no such process.

    The descriptor is opened before the look, so a pid that was given to another process meanwhile is never hit.
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
    """False: the host was started again since, and what was not on a disk is lost."""
    return owner.boot_id == _boot_id()


def is_same(one: Owner, other: Owner) -> bool:
    """Whether two owners are the same process, whatever they own."""
    return msgspec.structs.replace(one, run_dir="") == msgspec.structs.replace(other, run_dir="")
