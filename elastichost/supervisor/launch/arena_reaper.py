"""Keeps the arena of a supervisor that died for some seconds, then removes it. Runs in the fork server.

Meanwhile a resumed run may hold the arena and take it over. The arena is not removed while it is held. When the resumed
run releases it without a take-over, the time begins again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

from elastichost.arena.host import hold, read_owner, remove_owned
from elastichost.arena.owner import Owner, is_same
from elastichost.errors import ArenaError

__all__ = ["guard"]

LOOK_EVERY_S = 0.05


def guard(directories: Iterable[Path], owner: Owner, keep_s: float) -> None:
    """Returns when each directory is gone, belongs to another process, or was kept for `keep_s` seconds and removed.
    owner: the dead process that owned them. A directory that cannot be removed stays and counts as stale."""
    waiting = dict.fromkeys(directories, time.monotonic() + keep_s)
    while waiting:
        now_s = time.monotonic()
        for path, until_s in list(waiting.items()):
            if not _is_owned(path, owner):
                del waiting[path]
            elif _is_held(path):
                waiting[path] = now_s + keep_s
            elif now_s >= until_s:
                with contextlib.suppress(OSError):
                    if not remove_owned(path, owner):
                        continue
                del waiting[path]
        if waiting:
            time.sleep(LOOK_EVERY_S)


def _is_owned(path: Path, owner: Owner) -> bool:
    try:
        return is_same(read_owner(path), owner)
    except ArenaError:
        return False


def _is_held(path: Path) -> bool:
    try:
        held = hold(path, patience_s=0.0)
    except OSError:
        return False
    if held is None:
        return True
    held.release()
    return False
