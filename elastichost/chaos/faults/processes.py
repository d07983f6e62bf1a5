"""Finds and signals the processes of one run by a mark in their environment, so that no other process is hit."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["MARK", "end_marked", "marked_processes", "signal_marked", "state_of"]

MARK = "ELASTICHOST_CHAOS"  # a variable of the run and of all processes that it starts; each run has another value
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
    """Pids of the living processes with this mark, except this process."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return tuple(pid for pid in pids if pid != os.getpid() and state_of(pid) and _bears(pid, mark))


def signal_marked(pid: int, mark: str, number: signal.Signals) -> bool:
    """Sends a signal to a process if it has the mark. False when there is no such process. It opens a pidfd before it
    checks the mark, so that it never signals another process that got the same pid in the meantime."""
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
    """Kills all processes with the mark and waits until they have ended, at most END_S seconds."""
    deadline_s = time.monotonic() + END_S
    while (left := marked_processes(mark)) and time.monotonic() < deadline_s:
        for pid in left:
            with contextlib.suppress(OSError):
                signal_marked(pid, mark, signal.SIGKILL)
        time.sleep(0.02)
