"""The end of a run for any reason: ends its processes and removes its shared memory and sockets."""

from __future__ import annotations

from pathlib import Path

from elastichost.arena.host import reclaim
from elastichost.errors import ArenaError
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.launcher import Launcher

__all__ = ["end_processes", "remove_directories"]


def end_processes(launcher: Launcher) -> tuple[ProcessId, ...]:
    """Ends all processes with SIGKILL; the fork server ends last. Returns the processes that still ran before."""
    left = tuple(launcher.processes())
    launcher.close()
    return left


def remove_directories(*directories: Path) -> tuple[str, ...]:
    """Removes arena and socket directories. Returns a sentence for each one that could not be removed."""
    problems: list[str] = []
    for directory in directories:
        try:
            reclaim(directory)
        except ArenaError as error:
            problems.append(str(error))
    return tuple(problems)
