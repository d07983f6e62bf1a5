"""An emulated run; its supervisor records the delay of every heartbeat.

`python -m benchmarks.tuner.emulated.cloud FOLDER SETTING...` runs that supervisor.
"""

from __future__ import annotations

import contextlib
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from benchmarks.harness.workshop import ROOT, Workshop
from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.chaos.tails import JournalTail
from elastichost.config.job import load_job
from elastichost.metrics import ProcessStatus, RunStatus, read_status
from elastichost.run_files import JOURNAL_FILE, STATUS_FILE
from elastichost.runs.events import ArenaOpened, JournalLine
from elastichost.supervisor import run_job
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.wire.commands import AcceptedMsg, CommandClient, ReachedMsg, ScaleMsg
from elastichost.wire.control import HeartbeatMsg

__all__ = ["JOB", "EmulatedRun", "running"]

Found = TypeVar("Found")

JOB = ROOT / "examples" / "emulated.toml"
BEAT = struct.Struct("<2d")  # the time at which a heartbeat was handled, and its delay
LIMIT_S = 120.0
POLL_S = 0.02
COMMON = {
    "data.synthetic.rows": 2_000_000_000,
    "emulate.hosts": 64,
    "checkpoint.every_s": 1e6,
    "tuner.mode": "off",
}


class EmulatedRun:
    """An emulated run, which this process commands and watches."""

    def __init__(self, folder: Path, workshop: Workshop, settings: Mapping[str, object]) -> None:
        self.run_dir, self._beats = folder / "run", folder / "beats"
        folder.mkdir()
        self.settings = [f"{key}={value}" for key, value in {**COMMON, **settings}.items()]
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tuner.emulated.cloud", str(folder), *self.settings],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**workshop.environment(), "ELASTICHOST_HISTORY": "off"},
        )
        self._tail = JournalTail(self.run_dir / JOURNAL_FILE)
        self.lines: list[JournalLine] = []

    def wait(self, find: Callable[[], Found | None]) -> Found:
        """Calls `find` until it returns a value, and returns that. Raises RuntimeError if the run ends, or after
        LIMIT_S."""
        deadline_s = time.monotonic() + LIMIT_S
        while not (found := find()):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self._log.seek(0)
                raise RuntimeError(f"the run ended, or hung for {LIMIT_S:g} s:\n{self._log.read()[-4000:]}")
            time.sleep(POLL_S)
            self.look()
        return found

    def look(self) -> None:
        """Reads the new lines of the journal."""
        self.lines += self._tail.poll()

    def status(self) -> RunStatus | None:
        return read_status(self.run_dir) if (self.run_dir / STATUS_FILE).exists() else None

    def processes(self, role: str) -> list[ProcessStatus]:
        """The working processes of a role."""
        status = self.status()
        known = status.processes if status is not None else ()
        return [one for one in known if one.role == role and one.state in ("training", "late", "serving")]

    def scale(self, command: ScaleMsg) -> ReachedMsg:
        status = self.wait(self.status)
        client = CommandClient(status.commands)
        try:
            client.send(command)
            while not isinstance(reply := client.receive(LIMIT_S), ReachedMsg):
                if not isinstance(reply, AcceptedMsg):
                    raise RuntimeError(f"{command}: {reply}")
            return reply
        finally:
            client.close()

    def dense(self) -> DenseStore:
        (event,) = self.wait(lambda: [line.event for line in self.lines if isinstance(line.event, ArenaOpened)])
        store = DenseStore(Arena.attach(Path(event.path)))
        store.samples_applied()  # the first call loads compiled code, which takes time
        return store

    def delays_s(self, since_s: float, until_s: float) -> list[float]:
        """The delays of the heartbeats that were handled in a period, in seconds."""
        content = self._beats.read_bytes()
        whole = len(content) // BEAT.size * BEAT.size
        return [late_s for at_s, late_s in BEAT.iter_unpack(content[:whole]) if since_s <= at_s <= until_s]

    def close(self) -> None:
        """Kills the run and all its processes."""
        for _ in range(2):
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        self.process.wait(30)
        self._log.close()


@contextmanager
def running(folder: Path, workshop: Workshop, settings: Mapping[str, object]) -> Iterator[EmulatedRun]:
    """Starts an emulated run, and kills it at the end of the `with` block."""
    run = EmulatedRun(folder, workshop, settings)
    try:
        yield run
    finally:
        run.close()


def supervise(folder: Path, settings: Sequence[str]) -> int:
    """Runs the supervisor; `EmulatedRun` starts this in a process."""
    plain = Fleet.heartbeat
    with (folder / "beats").open("wb", buffering=BEAT.size) as file:

        def heartbeat(fleet: Fleet, record: ProcessRecord, beat: HeartbeatMsg, now_s: float) -> None:
            if beat.sample.taken_s:
                now_s = time.monotonic()
                file.write(BEAT.pack(now_s, now_s - beat.sample.taken_s))
            plain(fleet, record, beat, now_s)

        Fleet.heartbeat = heartbeat  # type: ignore[method-assign, assignment]
        return int(run_job(load_job(JOB, settings, environ={}), folder / "run").exit_code)


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1]), sys.argv[2:]))
