"""The directories and the process mark of one benchmark. Both are cleaned up, however the benchmark ends.

A watcher, `python -m benchmarks.harness.workshop MARK DIRECTORY...`, cleans up if the benchmark itself is killed: it
waits for the end of its stdin.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from types import FrameType
from typing import Self

from benchmarks.harness.processes import MARK, end_marked
from elastichost.arena.host import arena_root

__all__ = ["ROOT", "Workshop"]

ROOT = Path(__file__).parents[2]


class Workshop:
    """The workplace of one benchmark; use it as a context manager in the main thread. `disk`: a directory for files.
    `memory`: a directory in shared memory."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.disk = Path(tempfile.mkdtemp(prefix="bench-elastichost-"))
        self.memory = Path(tempfile.mkdtemp(prefix="bench-elastichost-", dir=arena_root()))
        self._watcher = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.workshop", self.mark, str(self.disk), str(self.memory)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,  # Ctrl-C must reach the benchmark only
        )
        self._before = signal.SIG_DFL

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, _interrupt)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        # a second Ctrl-C must not interrupt the clean-up
        held = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            _end(self.mark, (self.disk, self.memory))
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher.wait()
        finally:
            signal.signal(signal.SIGINT, held)
            signal.signal(signal.SIGTERM, self._before)

    def environment(self) -> dict[str, str]:
        """The environment of every process of the benchmark: with the mark, with TMPDIR and the arenas of runs in the
        workshop, so that nothing of a run that is killed remains."""
        kept = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        return {**kept, MARK: self.mark, "TMPDIR": str(self.disk), "ELASTICHOST_ARENA_DIR": str(self.memory)}


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end(mark: str, directories: tuple[Path, ...]) -> None:
    end_marked(mark)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _watch() -> None:
    mark, *directories = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        sys.stdin.buffer.read()
    _end(mark, tuple(map(Path, directories)))


if __name__ == "__main__":
    _watch()
