"""Finds the daemon of NVIDIA's Multi-Process Service (MPS), with which kernels of several jobs run on one GPU at the
same time. Without it the jobs take turns.

The daemon is only looked for, never started; CUDA connects to it by itself. MPS could also divide the GPU among jobs,
which is not used:

- Multiprocessors: a job that computes for a tenth of the time on all of them needs half of the time on a fifth of them.
- Memory: the limit of MPS includes what CUDA and its libraries load, so a job with its charge as the limit could not
  start. Torch limits the memory of each job instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["find_mps"]

PROGRAM = "nvidia-cuda-mps-control"
PIPES, DEFAULT_PIPES = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # the daemon usually belongs to root
    except (ProcessLookupError, OverflowError):
        return False
    return True


def find_mps(
    environ: Mapping[str, str],
    find_program: Callable[[str], str | None] = shutil.which,
    is_alive: Callable[[int], bool] = _is_alive,
) -> str:
    """Returns a sentence for the user: whether a daemon runs, and how to start one."""
    pipes = Path(environ.get(PIPES) or DEFAULT_PIPES)
    if not (pipes / "control").exists():
        program = find_program(PROGRAM)
        repair = f"; start it with: {PROGRAM} -d" if program else f" ({PROGRAM} is not installed)"
        return f"MPS: no daemon runs in {pipes}{repair}. Jobs on one GPU take turns."
    if not _is_pipe(pipes / "control"):
        return f"MPS: {pipes}/control is neither a socket nor a pipe. Jobs on one GPU take turns."
    pid = _daemon(pipes)
    if pid is None or not is_alive(pid):
        return f"MPS: the daemon that ran in {pipes} has ended. Jobs on one GPU take turns."
    return f"MPS ({pipes}): jobs on one GPU compute at the same time."


def _is_pipe(path: Path) -> bool:
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)
    return False


def _daemon(pipes: Path) -> int | None:
    """The pid of the daemon; None: it has ended. Its socket remains after its end, its pid file does not."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((pipes / f"{PROGRAM}.pid").read_text())
        return pid if pid > 0 else None
    return None
