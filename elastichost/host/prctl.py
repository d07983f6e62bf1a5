"""Settings of this process that can only be made with prctl(2)."""

from __future__ import annotations

import ctypes
import os

__all__ = ["set_child_subreaper", "set_parent_death_signal", "set_process_name"]

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
MOST_NAME_BYTES = 15


def set_parent_death_signal(number: int) -> None:
    """Makes the kernel send this signal to this process when its parent (the present parent thread) ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def set_child_subreaper(on: bool) -> None:
    """Makes orphaned descendants of this process its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(on))


def set_process_name(name: str) -> None:
    """Sets the name that `ps` and `top` show for this process, cut to MOST_NAME_BYTES."""
    _prctl(_PR_SET_NAME, name.encode()[:MOST_NAME_BYTES])


def _prctl(option: int, argument: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if libc.prctl(option, value, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")
