"""Moves a running process to other cores: every thread of it, not only the one that asks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

__all__ = ["move_to_cores"]


def move_to_cores(cores: Iterable[int]) -> None:
    """All threads of this process run on these cores from now on, and those that they start. No cores: nothing
    changes. Raises OSError when the host has none of them."""
    wanted = set(cores)
    moved: set[str] = set()
    # A thread that was not moved yet may have started another meanwhile, which has its parent's old cores.
    while wanted and (left := set(os.listdir("/proc/self/task")) - moved):
        for thread in left:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), wanted)
        moved |= left
