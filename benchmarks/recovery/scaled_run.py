"""A run of one worker and one PS that is scaled while it trains."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.harness.workshop import ROOT, Workshop
from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.chaos.tails import JournalTail
from elastichost.metrics import RunStatus
from elastichost.run_files import JOURNAL_FILE, STATUS_FILE
from elastichost.runs.events import JournalLine
from elastichost.wire.commands import AcceptedMsg, CommandClient, ReachedMsg, ScaleMsg

__all__ = ["WORKER", "ScaledRun"]

Found = TypeVar("Found")

WORKER = 1  # index of the worker that joins and leaves; worker 0 trains all the time
POLL_S = 0.0005
LIMIT_S = 180.0
SETTINGS = {
    "resources.workers": 1,
    "resources.servers": 1,
    "checkpoint.every_s": 1e6,
    "evaluate.every_samples": 0,
    "train.epochs": 1_000_000,
    "tuner.mode": "off",
}


class ScaledRun:
    """A run of one worker and one PS, which this process commands and watches."""

    def __init__(self, job: Path, settings: Sequence[str], workshop: Workshop) -> None:
        own = [f"{key}={value}" for key, value in SETTINGS.items()]
        run_dir = workshop.disk / "run"
        self._memory = workshop.memory
        self._log = (workshop.disk / "log").open("w+")
        command = [sys.executable, "-m", "elastichost", "run", str(job), "--dashboard", "no", "--run-dir", str(run_dir)]
        for setting in (*own, *settings):
            command += ["--set", setting]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=workshop.environment(),
        )
        self._tail = JournalTail(run_dir / JOURNAL_FILE)
        self._status = run_dir / STATUS_FILE
        self.lines: list[JournalLine] = []
        self.dense = DenseStore(Arena.attach(self.wait(self._arena)))
        self._commands = self.wait(self._address)

    def _address(self) -> str | None:
        """The address of the run's command socket; None if it is not known yet."""
        status = msgspec.json.decode(self._status.read_bytes(), type=RunStatus) if self._status.exists() else None
        return status.commands if status is not None else None

    def ask(self, command: ScaleMsg, *, until_reached: bool = False) -> ReachedMsg | None:
        """Sends a command; returns when it is accepted or, with `until_reached`, when the run has the new size. Raises
        RuntimeError if the command is refused."""
        client = CommandClient(self._commands)
        try:
            client.send(command)
            while True:
                reply = client.receive(LIMIT_S)
                if isinstance(reply, ReachedMsg):
                    return reply
                if not isinstance(reply, AcceptedMsg):
                    raise RuntimeError(f"{command}: {reply}")
                if not until_reached:
                    return None
        finally:
            client.close()

    def _arena(self) -> Path | None:
        found = list(self._memory.glob("*/LAYOUT.json"))
        return found[0].parent if found else None

    def wait(self, look: Callable[[], Found | None]) -> Found:
        """Calls `look` until it returns a value, and returns that. Raises RuntimeError if the run ends, or after
        LIMIT_S."""
        deadline_s = time.monotonic() + LIMIT_S
        while (found := look()) is None:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self._log.seek(0)
                raise RuntimeError(f"the run ended, or hung for {LIMIT_S:g} s:\n{self._log.read()[-4000:]}")
            time.sleep(POLL_S)
        return found

    def line(self, kind: str, process: str, after_s: float) -> JournalLine | None:
        """The first journal line of a kind and process after a moment of the monotonic clock; None if there is none."""
        self.lines += self._tail.poll()
        for line in self.lines:
            if line.kind == kind and line.event.subject == process and line.monotonic_s >= after_s:
                return line
        return None

    def committed_s(self, incarnation: int, batches: int) -> float | None:
        """The present time, if this incarnation of the worker has committed `batches` batches; else None."""
        return time.monotonic() if self.dense.applied(WORKER, incarnation).sequence >= batches else None

    def close(self) -> None:
        """Kills the run and all its processes."""
        for _ in range(2):
            self.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.process.wait(30)
        self._log.close()
