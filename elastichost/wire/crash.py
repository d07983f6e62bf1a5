"""Named crash points for tests: `ELASTICHOST_CRASH_AT=ps.data.before_reply:20` kills the process there.

The number is how often the point is passed before it kills (1 by default). Only the first life of a process obeys,
so that its successor can show the recovery.
"""

from __future__ import annotations

import os
import signal

__all__ = ["arm", "crash_point"]

_armed: dict[str, int] = {}


def arm(role: str, life: int) -> None:
    """Reads the environment once, at the start of a process."""
    _armed.clear()
    setting = os.environ.get("ELASTICHOST_CRASH_AT", "")
    if not setting or life != 1:
        return
    for item in setting.split(","):
        point, _, count = item.partition(":")
        if point.startswith(f"{role}."):
            _armed[point] = int(count or 1)


def crash_point(name: str) -> None:
    """Kills this process with SIGKILL when the point is armed and its count is reached."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
