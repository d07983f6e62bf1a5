"""The end of a run, whichever way it came: no process, no shared memory, no socket is left."""

from __future__ import annotations

from pathlib import Path

from elastichost.arena.host import reclaim
from elastichost.errors import ArenaError
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.launcher import Launcher

__all__ = ["end_processes", "remove_directories"]

KILL_GRACE_S = 2.0


def end_processes(launcher: Launcher) -> tuple[ProcessId, ...]:
    """SIGTERM, after two seconds SIGKILL; the fork server last. Returns what had not exited by itself."""
    left = tuple(launcher.processes())
    launcher.close(KILL_GRACE_S)
    return left


def remove_directories(*directories: Path) -> tuple[str, ...]:
    """Removes arena and sockets, and looks whether they are gone. Returns what could not be removed, in words."""
    problems: list[str] = []
    for directory in directories:
        try:
            reclaim(directory)
        except ArenaError as error:
            problems.append(str(error))
    return tuple(problems)
