"""Processes of one run, found and signalled by the mark in their environment, so that no other process is ever hit."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["MARK", "end_marked", "marked_processes", "signal_marked", "state_of"]

MARK = "ELASTICHOST_CHAOS"  # in the environment of the run and of everything it starts; the value is the run's own
END_S = 5.0


def _bears(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def state_of(pid: int) -> str:
    """The kernel's letter for the state ("R", "S", "T", ...); "" for a process that has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    letter = text[text.rindex(")") + 2]
    return "" if letter in "ZX" else letter


def marked_processes(mark: str) -> tuple[int, ...]:
    """Pids of living processes with this mark, this process left out."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return tuple(pid for pid in pids if pid != os.getpid() and state_of(pid) and _bears(pid, mark))


def signal_marked(pid: int, mark: str, number: signal.Signals) -> bool:
    """Sends a signal if that process bears the mark. The descriptor is opened before the look: a pid that was given
    to another process in between is never hit. False when there is no such process."""
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        if not state_of(pid) or not _bears(pid, mark):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_marked(mark: str) -> None:
    """Kills whatever bears the mark and waits until it is gone (at most 5 s)."""
    deadline_s = time.monotonic() + END_S
    while (left := marked_processes(mark)) and time.monotonic() < deadline_s:
        for pid in left:
            with contextlib.suppress(OSError):
                signal_marked(pid, mark, signal.SIGKILL)
        time.sleep(0.02)
