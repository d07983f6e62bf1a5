"""Counts SIGINT, SIGTERM and SIGQUIT for a loop, and has a descriptor that wakes the loop.

A second SIGINT asks the process to end at once: a user who presses Ctrl-C again wants that. One SIGQUIT asks for the
same, so it counts as two signals. A SIGTERM after another signal is not counted: Slurm and systemd send one to every
process of a job, and a script that hands it on sends another.

A process that another one ends ignores SIGTERM (`ignore_termination`), because only the supervisor can save before the
end. It is ended by a message or by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from types import FrameType

from elastichost.errors import ExitCode

__all__ = ["StopSignals", "ignore_termination"]


class StopSignals:
    """A context manager for the main thread. `count`: the signals so far, SIGQUIT twice, without a SIGTERM that was not
    the first: 1 asks for an orderly stop, more for the end at once. `last`: the number of the last one. In other
    threads it has no effect and counts nothing."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._before: dict[int, object] = {}
        self._wakeup_before = -1

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
        self._reader.close()
        self._writer.close()

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self.count:
            return
        self.count += 2 if number == signal.SIGQUIT else 1
        self.last = number

    @property
    def descriptor(self) -> int:
        return self._reader.fileno()

    def clear(self) -> None:
        """Reads the wake-up bytes, so that the descriptor is no longer readable."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(64):
                pass

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a process that ends because of the last signal."""
        return ExitCode.TERMINATED if self.last == signal.SIGTERM else ExitCode.INTERRUPTED

    @property
    def name(self) -> str:
        return signal.Signals(self.last).name if self.last else ""


def ignore_termination() -> None:
    """Makes this process ignore SIGTERM. What it starts does not: a program that is executed has the default again,
    and so has a process that is forked, once the signal comes."""
    own = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)
