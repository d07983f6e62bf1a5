"""The arms of the comparison, and how each is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.data_plane.process_arm import ArenaCounter, ProcessArm
from benchmarks.harness.interleave import ArmFailedError
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.peers.common import Counter, PeerMode, PeerSettings
from benchmarks.peers.host import Fork
from benchmarks.workload.job_file import JobSettings, Precision, job_text
from benchmarks.workload.shape import ModelName, Shape
from elastichost.supervisor.launch.servers import MALLOC_ENVIRONMENT, THREAD_ENVIRONMENT

__all__ = ["Case", "Entry", "Launcher", "PeerHost", "all_arms", "forked_arms"]

Kind = Literal["forked", "tensorflow", "elastichost"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How an arm is started. words: its description in tables. Kind "forked": `module` of benchmarks.peers with
    `threads`. Kind "elastichost": access, workers, `fused` (None: the default of the job file), precision. spins: its
    threads or processes wait for one another without sleeping."""

    kind: Kind
    words: str
    module: str = ""
    threads: int = 1
    access: Literal["direct", "served"] = "direct"
    workers: int = 1
    fused: bool | None = False
    precision: Precision = "float32"
    spins: bool = False


def all_arms() -> dict[str, Entry]:
    """All arms by name, in the order of the tables."""
    cores = len(os.sched_getaffinity(0))
    entries = {
        "tbe1": Entry("forked", "fbgemm TBE, 1 process, 1 thread", "tbe", threads=1),
        "tbe2": Entry("forked", "fbgemm TBE, 1 process, 2 threads", "tbe", threads=2, spins=True),
        "dmp": Entry("forked", "torchrec DistributedModelParallel, 2 processes", "dmp", spins=True),
        "rpc": Entry("forked", "hand-written PS over torch rpc, 1 + 1", "rpc"),
        "tensorflow": Entry("tensorflow", "TensorFlow ParameterServerStrategy, 1 + 1"),
        "bare_loop": Entry("forked", "elastichost's reader and kernels in a bare loop", "bare_loop"),
        "served1": Entry("elastichost", "elastichost served, 1 + 1, fused", access="served", workers=1, fused=None),
        "served2": Entry("elastichost", "elastichost served, 2 + 1, fused", access="served", workers=2, fused=None),
        "direct1": Entry("elastichost", "elastichost direct, 1 worker, torchrec's dense modules", workers=1),
        "direct2": Entry("elastichost", "elastichost direct, 2 workers, torchrec's dense modules", workers=2),
        "direct2_fused": Entry("elastichost", "elastichost direct, 2 workers, fused", workers=2, fused=True),
        "bare_loop_fused": Entry("forked", "the bare loop, fused", "bare_loop", fused=True),
        "direct1_fused": Entry("elastichost", "elastichost direct, 1 worker, fused", workers=1, fused=True),
    }
    if cores > 2:
        words = f"elastichost direct, {cores} workers, torchrec's dense modules"
        entries[f"direct{cores}"] = Entry("elastichost", words, workers=cores)
    return entries


@dataclass(frozen=True, slots=True)
class Case:
    """One setting in which all arms are compared. `batches`: file of batches. `parquet`: file of the same samples."""

    model: ModelName
    shape: Shape
    batch_size: int
    batches: Path
    parquet: Path


class PeerHost:
    """A client of the process `benchmarks.peers.host`, which forks peers."""

    def __init__(self, workshop: Workshop, *, with_bare_loop: bool) -> None:
        self._log = workshop.disk / "peer-host.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.host", *(["--bare-loop"] if with_bare_loop else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_peer_environment(workshop),
                start_new_session=True,
                text=True,
            )

    def fork(self, request: Fork) -> int:
        """Forks a peer and returns its pid; waits until the host has imported the libraries. Raises ArmFailedError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request.to_json() + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            words = self._log.read_text(errors="replace").strip().splitlines()
            raise ArmFailedError(f"the process that forks the peers has ended: {words[-1] if words else 'no output'}")
        return int(answer)


def _peer_environment(workshop: Workshop) -> dict[str, str]:
    """The environment of every peer: malloc tuned as in elastichost, and one thread for each operator by default."""
    return {**workshop.environment(), **MALLOC_ENVIRONMENT, **THREAD_ENVIRONMENT, "PYTHONPATH": str(ROOT)}


class Launcher:
    """Starts the arms of one case; each has a directory on disk and one in memory."""

    def __init__(self, workshop: Workshop, case: Case, host: PeerHost | None, tensorflow_python: str) -> None:
        self._workshop, self._case, self._host, self._tensorflow_python = workshop, case, host, tensorflow_python
        self._folder = f"{case.model}-{case.batch_size}"

    def start(self, name: str, entry: Entry) -> ProcessArm:
        """Starts an arm and returns at once, before the arm is ready. Raises ArmFailedError."""
        disk, memory = (root / self._folder / name for root in (self._workshop.disk, self._workshop.memory))
        disk.mkdir(parents=True)
        memory.mkdir(parents=True)
        starters: dict[Kind, Callable[[str, Entry, Path, Path], ProcessArm]] = {
            "forked": self._start_forked,
            "tensorflow": self._start_tensorflow,
            "elastichost": self._start_elastichost,
        }
        return starters[entry.kind](name, entry, disk, memory)

    def _settings(self, entry: Entry, disk: Path, memory: Path) -> PeerSettings:
        job = disk / "job.toml"
        job.write_text(job_text(self._job(entry, "direct"), self._case.parquet))
        return PeerSettings(
            model=self._case.model,
            shape=self._case.shape,
            batch_size=self._case.batch_size,
            threads=entry.threads,
            batches=str(self._case.batches),
            counter=str(memory / "counter"),
            folder=str(memory),
            job=str(job),
        )

    def _job(self, entry: Entry, access: Literal["direct", "served"]) -> JobSettings:
        case = self._case
        return JobSettings(case.model, case.shape, case.batch_size, access, entry.workers, entry.fused, entry.precision)

    def _start_forked(self, name: str, entry: Entry, disk: Path, memory: Path) -> ProcessArm:
        assert self._host is not None
        settings = self._settings(entry, disk, memory)
        counter = Counter.create(Path(settings.counter), PeerMode(entry.threads))
        log = disk / "log"
        pid = self._host.fork(Fork(f"benchmarks.peers.{entry.module}", settings.to_json(), str(log)))
        return ProcessArm(name, pid, counter.total, log, set_mode=counter.set_mode)

    def _start_tensorflow(self, name: str, entry: Entry, disk: Path, memory: Path) -> ProcessArm:
        settings = self._settings(entry, disk, memory)
        counter = Counter.create(Path(settings.counter), PeerMode(entry.threads))
        command = [self._tensorflow_python, "-m", "benchmarks.peers.tensorflow_ps", settings.to_json()]
        log = disk / "log"
        child = _spawn(command, _peer_environment(self._workshop), log)
        return ProcessArm(name, child.pid, counter.total, log, child=child)

    def _start_elastichost(self, name: str, entry: Entry, disk: Path, memory: Path) -> ProcessArm:
        job, run_dir, log = disk / "job.toml", disk / "run", disk / "log"
        job.write_text(job_text(self._job(entry, entry.access), self._case.parquet))
        command = [sys.executable, "-m", "elastichost", "run", str(job), "--run-dir", str(run_dir)]
        environment = {**self._workshop.environment(), "ELASTICHOST_ARENA_DIR": str(memory)}
        child = _spawn([*command, "--dashboard", "no"], environment, log)
        roles = ("supervisor", "fork_server")
        return ProcessArm(name, child.pid, ArenaCounter(run_dir), log, roles=roles, child=child)

    def forget(self) -> None:
        """Removes the files of the case's arms, after these have ended."""
        for root in (self._workshop.disk, self._workshop.memory):
            shutil.rmtree(root / self._folder, ignore_errors=True)


def _spawn(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )


def forked_arms(arms: dict[str, Entry]) -> list[str]:
    return [name for name, entry in arms.items() if entry.kind == "forked"]
