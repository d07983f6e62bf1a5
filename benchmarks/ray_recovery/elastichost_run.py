"""A run of elastichost on a Ray cluster into which faults are injected while its progress is recorded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.harness.processes import end_processes, tree_of
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.ray_recovery.figures import NodeLost, WorkerKilled
from benchmarks.ray_recovery.ray_bed import RayBed
from benchmarks.recovery.course import Course, full_rate_s, rate_between
from elastichost.chaos.scene import Scene
from elastichost.chaos.tails import AppliedTail, JournalTail
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.events import JournalLine

__all__ = ["RunOnRay", "running"]

LIMIT_S = 180.0
CALM_S = 2.0  # the rate before a fault is measured over this time
WATCHED_S = 6.0  # time after a fault in which the full rate may be reached
GOES_ON = 20  # number of looks with new batches after which the run counts as training again
ENDED = -1.0
POLL_S = 0.004
SETTINGS = (
    "train.epochs=1000000",
    "evaluate.every_samples=0",
    "resources.restarts=1000000",
    "checkpoint.every_s=5",
    "tuner.mode=off",
)
Found = TypeVar("Found")


class RunOnRay:
    """One run and, if it ends, its resumption."""

    def __init__(self, job: Path, settings: Sequence[str], run_dir: Path, bed: RayBed, arenas: Path) -> None:
        self._run_dir = run_dir
        # arenas are in a directory of the benchmark, because a run leaves its arena if all its processes die
        own = {"ELASTICHOST_HISTORY": "off", "ELASTICHOST_ARENA_DIR": str(arenas)}
        self._environment = {**bed.environment, **own}
        self._scene, self._course, self._lines = Scene(), Course(), list[JournalLine]()
        self._journal, self._applied = JournalTail(run_dir / JOURNAL_FILE), AppliedTail(run_dir)
        self._grown_s: list[float] = []  # looks that saw new batches
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the run
        self._must_reread = False
        words = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
        on = ("--on", "ray", "--ray-address", bed.address)
        self._process = self._start("run", str(job), *on, "--run-dir", str(run_dir), *words)
        self._may_end = False

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "elastichost", *words, "--dashboard", "no"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment,
        )

    def close(self) -> None:
        end_processes([one.pid for one in tree_of(self._process.pid)])
        self._process.wait()
        self._log.close()

    # --- looking --------------------------------------------------------------------------------------------

    def _look(self) -> None:
        generation = self._scene.generation
        new = self._journal.poll()
        for line in new:
            self._scene.take(line)
        self._lines += new
        self._must_reread |= self._scene.generation > max(generation, 1)
        if self._must_reread and self._scene.working("worker"):
            self._must_reread = False
            self._applied.reread()
        before_s = self._applied.newest_s
        self._applied.poll()
        if self._applied.newest_s > before_s:
            self._grown_s.append(self._applied.newest_s)
        self._course.note(time.monotonic(), self._applied.samples)

    def _wait(self, find: Callable[[], Found | None]) -> Found:
        """Looks until `find` returns a value, and returns that. Raises RuntimeError after LIMIT_S, or if the run ends
        unexpectedly."""
        deadline_s = time.monotonic() + LIMIT_S
        while (found := find()) is None:
            self._look()
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"no progress for {LIMIT_S:g} s:\n{self._said()}")
            if not self._may_end and self._process.poll() is not None:
                raise RuntimeError(f"the run ended with exit code {self._process.returncode}:\n{self._said()}")
            time.sleep(POLL_S)
        return found

    def _said(self) -> str:
        return os.pread(self._log.fileno(), 8192, max(0, os.fstat(self._log.fileno()).st_size - 8192)).decode()

    def _until(self, moment_s: float) -> None:
        self._wait(lambda: True if time.monotonic() >= moment_s else None)

    def _wait_calm(self) -> None:
        """Waits until all processes of the plan have been working for a while."""
        self._wait(lambda: True if self._scene.is_whole and self._applied.first_s else None)
        self._until(time.monotonic() + CALM_S + 0.1)

    def _event_s(self, kind: str) -> float | None:
        return next((line.monotonic_s for line in self._lines if line.kind == kind), None)

    # --- hurting --------------------------------------------------------------------------------------------

    def kill_a_worker(self, number: int) -> WorkerKilled:
        """Kills (SIGKILL) the `number`th worker, counted in turn, and measures the recovery. Raises RuntimeError."""
        self._wait_calm()
        incarnations = self._scene.working("worker")
        incarnation = incarnations[number % len(incarnations)]
        self._lines.clear()
        struck_s = self._course.moments_s[-1]
        os.kill(incarnation.pid, signal.SIGKILL)
        noticed_s = self._wait(lambda: self._event_s("process_lost"))
        later = (incarnation.process.index, incarnation.process.incarnation + 1)
        back_s = self._wait(lambda: self._applied.first_s.get(later))
        until_s = struck_s + WATCHED_S
        self._until(until_s + 0.1)
        rate = rate_between(self._course, struck_s - CALM_S, struck_s)
        full_s = full_rate_s(self._course, struck_s, rate, until_s)
        return WorkerKilled(noticed_s - struck_s, back_s - struck_s, full_s)

    def lose_a_node(self, strike: Callable[[], None]) -> NodeLost:
        """Kills a node with `strike` and measures until batches are committed again, by the run or by its resumption.
        Raises RuntimeError."""
        self._wait_calm()
        self._lines.clear()
        self._may_end = True
        struck_s = time.monotonic()
        strike()
        noticed_s = self._wait(lambda: self._event_s("host_lost"))
        ended_s, again_s = None, self._wait(self._went_on_s)
        if again_s == ENDED:
            ended_s = time.monotonic()
            self._process = self._start("resume", str(self._run_dir))
            self._may_end = False
            again_s = self._wait(lambda: self._growing_since_s(ended_s))
        return NodeLost(noticed_s - struck_s, None if ended_s is None else ended_s - struck_s, again_s - struck_s)

    def _went_on_s(self) -> float | None:
        """The moment since which batches are committed again after lost rows were restored; ENDED if the run has ended;
        None before."""
        if self._process.poll() is not None:
            return ENDED
        made_anew_s = self._event_s("rows_rolled_back")
        return None if made_anew_s is None else self._growing_since_s(made_anew_s)

    def _growing_since_s(self, moment_s: float) -> float | None:
        later = [grown_s for grown_s in self._grown_s if grown_s > moment_s]
        return later[0] if len(later) >= GOES_ON else None


@contextlib.contextmanager
def running(job: Path, settings: Sequence[str], bed: RayBed, workshop: Workshop, name: str) -> Iterator[RunOnRay]:
    """A run that trains; it is killed when the context is left."""
    run = RunOnRay(job, settings, workshop.disk / name, bed, workshop.memory)
    try:
        yield run
    finally:
        run.close()
