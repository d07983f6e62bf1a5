"""The processes of a run's loggers (`[logging] to`): starts them, and waits for them at the end of the run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from elastichost.runs.events import LoggerFailed

__all__ = ["LoggerProcesses"]

PROGRAM = "elastichost.loggers.process"
SHOWN_BYTES = 2000
LOOK_S = 0.05
END_S = 2.0  # for a process that was asked to end


class LoggerProcesses:
    """One process for each name. supervisor_pid: this process, at whose end they end too.

    They are started beside the processes that train and have a lower priority. Their output goes to
    RUN/logs/logger-NAME.log."""

    def __init__(self, names: Sequence[str], run_dir: Path, supervisor_pid: int) -> None:
        self._run_dir = run_dir
        self._processes = {name: self._start(name, supervisor_pid) for name in names}

    def _start(self, name: str, supervisor_pid: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", PROGRAM, str(self._run_dir), name, str(supervisor_pid)]
        with self._log(name).open("wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def close(self, wait_s: float) -> list[LoggerFailed]:
        """Waits until all values have arrived, at most `wait_s`, and ends the processes that still work. Returns an
        event for each logger that lacks values."""
        deadline_s = time.monotonic() + wait_s
        while self._is_any_alive() and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        late = [name for name, process in self._processes.items() if process.poll() is None]
        events = [LoggerFailed(name, f"not everything had arrived {wait_s:.0f} s after the end") for name in late]
        for name in late:
            self._end(self._processes.pop(name))
        return events + [self._failed(name) for name, process in self._processes.items() if process.returncode]

    def _is_any_alive(self) -> bool:
        return any(process.poll() is None for process in self._processes.values())

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _failed(self, name: str) -> LoggerFailed:
        code = self._processes[name].returncode
        said = self._log(name).read_bytes()[-SHOWN_BYTES:].decode(errors="replace").strip()
        return LoggerFailed(name, said or f"its process ended with exit code {code}")

    def _log(self, name: str) -> Path:
        return self._run_dir / "logs" / f"logger-{name}.log"
