"""Estimates the memory of jobs as `plan` does, then runs them and measures their memory."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.memory_estimate.footprint import Footprint, JobMemory, anonymous_bytes
from benchmarks.memory_estimate.job_shapes import JobShape
from benchmarks.memory_estimate.run_entries import RunArguments
from elastichost.config.job import load_job
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import Exited
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import Entries, SpawnRequest
from elastichost.supervisor.startup.memory_estimate import estimate_memory
from elastichost.supervisor.startup.preflight import preflight
from elastichost.tuner.memory.peak_memory import MemoryEstimate
from elastichost.tuner.memory.peak_memory_facts import ALONE, BESIDE

__all__ = ["JobRunner", "SeenJob"]

LOOK_EVERY_S = 0.003
IMPORTS = ("elastichost.supervisor.job", "scipy.optimize", "scipy.special", "benchmarks.memory_estimate.run_entries")
ENTRY = "benchmarks.memory_estimate.run_entries:forked"


@dataclass(frozen=True, slots=True)
class SeenJob:
    """One job with its estimated and its observed memory."""

    shape: JobShape
    estimate: MemoryEstimate
    peak: Footprint

    @property
    def error(self) -> float:
        """The relative error: predicted / observed - 1."""
        return self.estimate.host_bytes / self.peak.total - 1


class JobRunner:
    """Estimates and runs one job after another. Use as a context manager."""

    def __init__(self, workshop: Workshop, *, with_roles: bool = False) -> None:
        self._workshop, self._with_roles = workshop, with_roles
        entries = Entries()
        self._launcher = LocalLauncher((*entries.imports, *IMPORTS), entries.calls)
        prepared = self._launcher.wait_prepared(180.0)
        if prepared.error:
            raise RuntimeError(prepared.error)
        self._shared = anonymous_bytes(self._launcher.server_pid)
        self._number = 0

    def __enter__(self) -> JobRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._launcher.close()

    def see(self, shape: JobShape) -> SeenJob:
        """Estimates and runs a job. Raises RuntimeError if the job fails."""
        self._number += 1
        folder = self._workshop.disk / str(self._number)
        folder.mkdir()
        path = folder / "job.toml"
        path.write_text(shape.text(folder))
        job = load_job(path, environ={})
        estimate = estimate_memory(job, preflight(job), self._launcher, ALONE if shape.is_alone else BESIDE)
        memory = self._alone(folder) if shape.is_alone else self._forked(folder)
        assert memory.peak is not None
        return SeenJob(shape, estimate, memory.peak)

    def _forked(self, folder: Path) -> JobMemory:
        process = ProcessId("job", self._number, 1)
        arguments = RunArguments(str(folder / "job.toml"), str(folder / "run"))
        self._launcher.spawn(SpawnRequest(process, ENTRY, msgspec.json.encode(arguments), folder / "log"))
        memory: JobMemory | None = None
        while True:
            for event in self._launcher.events():
                if isinstance(event, Exited) and event.process == process:
                    if event.code or memory is None:
                        raise RuntimeError(f"{folder}: {event.cause}\n{(folder / 'log').read_text()[-2000:]}")
                    return memory
            if memory is not None:
                memory.look()
            elif (root := self._launcher.processes().get(process)) is not None:
                shared = (self._launcher.server_pid, self._shared)
                memory = JobMemory(root, self._workshop.memory, shared, with_roles=self._with_roles)
            time.sleep(LOOK_EVERY_S)

    def _alone(self, folder: Path) -> JobMemory:
        command = [
            sys.executable,
            "-m",
            "benchmarks.memory_estimate.run_entries",
            str(folder / "job.toml"),
            str(folder / "run"),
        ]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as run:
            memory = JobMemory(run.pid, self._workshop.memory, with_roles=self._with_roles)
            while run.poll() is None:
                memory.look()
                time.sleep(LOOK_EVERY_S)
        if run.returncode:
            raise RuntimeError(f"{folder}: exit code {run.returncode}\n{(folder / 'log').read_text()[-2000:]}")
        return memory
