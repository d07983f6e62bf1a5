"""NVIDIA's Multi-Process Service (MPS): kernels of several jobs run on one GPU at the same time, each within its part.

Without it they take turns. This only finds a daemon that somebody has started, and says what a job's processes need to
know; that needs no GPU, and whether it helps was not measured here.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GpuPart", "Mps", "client_environment", "find_mps"]

PROGRAM = "nvidia-cuda-mps-control"
PIPES, DEFAULT_PIPES = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
MIB = 1 << 20
# Of the multiprocessors a job needs on average: limits that add up to one GPU leave it idle whenever somebody waits.
GENEROSITY = 2.0


@dataclass(frozen=True, slots=True)
class Mps:
    """A daemon that answers in this directory."""

    pipes: Path


@dataclass(frozen=True, slots=True)
class GpuPart:
    """Of a job on one GPU. busy: share of its multiprocessors that the job takes alone, 0 to 1; memory_bytes: of all
    its processes together, 0: no limit; processes: that use the GPU."""

    busy: float
    memory_bytes: int = 0
    processes: int = 1


def client_environment(mps: Mps, part: GpuPart) -> dict[str, str]:
    """For every process of a job that uses the GPU. Limits are each process' own. It sees one GPU, number 0."""
    processes = max(1, part.processes)
    percent = math.ceil(100 * GENEROSITY * part.busy / processes)
    environment = {
        PIPES: str(mps.pipes),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(100, max(1, percent))),
    }
    if part.memory_bytes:
        mebibytes = max(1, part.memory_bytes // processes // MIB)
        environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={mebibytes}M"
    return environment


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # root's, as it usually is
    except (ProcessLookupError, OverflowError):
        return False
    return True


def find_mps(
    environ: Mapping[str, str],
    find_program: Callable[[str], str | None] = shutil.which,
    is_alive: Callable[[int], bool] = _is_alive,
) -> tuple[Mps | None, str]:
    """The daemon, and in words what was found. Starts nothing."""
    pipes = Path(environ.get(PIPES) or DEFAULT_PIPES)
    if not (pipes / "control").exists():
        program = find_program(PROGRAM)
        repair = f"; start it with: {PROGRAM} -d" if program else f" ({PROGRAM} is not installed)"
        return None, f"MPS: no daemon works in {pipes}{repair}. Jobs on one GPU take turns."
    if not _is_pipe(pipes / "control"):
        return None, f"MPS: {pipes}/control is neither a socket nor a pipe. Jobs on one GPU take turns."
    pid = _daemon(pipes)
    if pid is None or not is_alive(pid):
        return None, f"MPS: the daemon that worked in {pipes} has ended. Jobs on one GPU take turns."
    return Mps(pipes), f"MPS ({pipes}): jobs on one GPU compute at the same time, each within its part and its memory."


def _is_pipe(path: Path) -> bool:
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)
    return False


def _daemon(pipes: Path) -> int | None:
    """The socket stays when the daemon ends; its number does not."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((pipes / f"{PROGRAM}.pid").read_text())
        return pid if pid > 0 else None
    return None
