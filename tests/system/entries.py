"""Entries for processes that the launcher tests fork: small, but real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def tell(arguments: bytes) -> int:
    """Writes facts about its process to a file; file and exit code are arguments."""
    told: dict[str, Any] = json.loads(arguments)
    facts = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "cores": sorted(os.sched_getaffinity(0)),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "environment": os.environ.get("PROBE_VALUE", ""),
        "omp": os.environ.get("OMP_NUM_THREADS", ""),
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
        "ignores_interrupt": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "imported": sorted(set(told.get("modules", [])) & set(sys.modules)),
    }
    path = Path(told["path"])
    path.with_suffix(".new").write_text(json.dumps(facts))
    path.with_suffix(".new").rename(path)
    print("told", flush=True)
    return int(told.get("code", 0))


def fail(arguments: bytes) -> int:
    raise RuntimeError(f"asked to fail with {arguments.decode()}")


def sleep(arguments: bytes) -> int:
    """Writes its pid (and starts a child, if requested), then waits for a signal without end."""
    told: dict[str, Any] = json.loads(arguments)
    pids = [os.getpid()]
    if told.get("child"):
        pids.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
    path = Path(told["path"])
    path.with_suffix(".new").write_text(json.dumps(pids))
    path.with_suffix(".new").rename(path)
    while True:
        signal.pause()


def prepare() -> None:
    """The fork server calls this before it forks."""
