"""Moves a running process to other cores, with all its threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

__all__ = ["move_to_cores"]


def move_to_cores(cores: Iterable[int]) -> None:
    """Pins all threads of this process to these cores; threads that start later inherit them. Without cores nothing
    changes. Raises OSError when the host has none of the cores."""
    wanted = set(cores)
    moved: set[str] = set()
    # Repeated, because a thread that is not yet moved may start another one, which inherits the old cores.
    while wanted and (left := set(os.listdir("/proc/self/task")) - moved):
        for thread in left:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), wanted)
        moved |= left
