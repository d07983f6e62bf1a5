"""The run that is attacked, measured from outside."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.hostile.attackers import Target, gates_of
from benchmarks.hostile.leaky_supervisor import INSIDERS, read_keys
from elastichost.chaos.tails import AppliedTail
from elastichost.run_files import JOURNAL_FILE, STATUS_FILE
from elastichost.runs.events import ProcessLost
from elastichost.runs.journal import read_journal

__all__ = ["Victims", "Window", "victims_in"]

JOB = """
[job]
name = "hostile"
seed = 7
[model]
build = "elastichost.models:dlrm"
args = { bottom = [64, 16], top = [64, 1] }
[data]
format = "synthetic"
synthetic = { rows = 200000, test_rows = 1000, tables = 8, table_rows = 50000, dense = 13, unit_rows = 16384 }
[tables.default]
dim = 16
rows = "dynamic"
[train]
batch_size = 1024
epochs = 100000
[resources]
workers = 2
servers = 2
[tuner]
mode = "off"
"""
HOSTS = '[[hosts]]\ntransport = "local"\nname = "second"\n'
START_LIMIT_S = 120.0
LOOK_EVERY_S = 0.02


class Window(msgspec.Struct, frozen=True):
    """One window. cpu_s: of the victims. growth_bytes: largest growth of a process's private memory. lost: number of
    processes lost since the run began. acts: number of attacks."""

    samples_per_s: float
    samples_per_cpu_s: float
    growth_bytes: int
    lost: int
    acts: int = 0


class Victims:
    """The run under attack."""

    def __init__(self, process: subprocess.Popen[bytes], run_dir: Path) -> None:
        self._process, self._run_dir = process, run_dir
        self._applied = AppliedTail(run_dir)

    def wait_trained(self) -> None:
        """Waits until the run trains. Raises RuntimeError if it does not."""
        deadline_s = time.monotonic() + START_LIMIT_S
        while self._samples() == 0 or len(self._gates()) < 3:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the run did not start to train; exit code {self._process.returncode}")
            time.sleep(LOOK_EVERY_S)

    def _samples(self) -> int:
        if not self._applied_exists:
            return 0
        self._applied.poll()
        return self._applied.samples

    @property
    def _applied_exists(self) -> bool:
        return (self._run_dir / "applied.bin").exists()

    @property
    def _processes(self) -> list[psutil.Process]:
        """The workers, the PS and the supervisor; agents and fork servers are left out because they only wait."""
        facts = msgspec.json.decode((self._run_dir / STATUS_FILE).read_bytes())
        pids = (one["pid"] for one in facts["processes"] if psutil.pid_exists(one["pid"]))  # the probe may have ended
        return [psutil.Process(self._process.pid), *map(psutil.Process, pids)]

    def _gates(self) -> list[tuple[int, str, int]]:
        """The listening sockets of the run as (pid, address, port)."""
        if not (self._run_dir / STATUS_FILE).exists():
            return []
        return [(one.pid, *gate) for one in self._processes for gate in gates_of(one.pid)]

    def targets(self) -> list[Target]:
        """All sockets of the run. Insiders attack only the PS, where answers cost CPU time."""
        keys = read_keys(self._run_dir)
        status = msgspec.json.decode((self._run_dir / STATUS_FILE).read_bytes())
        incarnations = {one["pid"]: f"{one['role']}-{one['index']}.{one['incarnation']}" for one in status["processes"]}
        insider = str(INSIDERS[0])
        return [
            Target(host, port, keys[incarnations.get(pid, "supervisor")].public, insiders={insider: keys[insider]})
            for pid, host, port in self._gates()
        ]

    def window(self, seconds: float) -> Window:
        """Measures a window. Raises RuntimeError if the run ends in it."""
        processes = self._processes
        cpu_s, samples, began_s = _cpu_s(processes), self._samples(), time.monotonic()
        private = [_private_bytes(one) for one in processes]
        time.sleep(seconds)
        if self._process.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {self._process.returncode}")
        trained, passed_s = self._samples() - samples, time.monotonic() - began_s
        growth = max(_private_bytes(one) - before for one, before in zip(processes, private, strict=True))
        return Window(trained / passed_s, trained / (_cpu_s(processes) - cpu_s), growth, self._lost())

    def _lost(self) -> int:
        """The number of processes lost since the run began."""
        lines = read_journal(self._run_dir / JOURNAL_FILE)
        return sum(isinstance(line.event, ProcessLost) for line in lines)


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def _private_bytes(process: psutil.Process) -> int:
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


@contextlib.contextmanager
def victims_in(workshop: Workshop) -> Iterator[Victims]:
    """A run that trains; it is killed when the context is left."""
    folder = workshop.disk
    (folder / "job.toml").write_text(JOB)
    (folder / "hosts.toml").write_text(HOSTS)
    run_dir = folder / "run"
    command = [sys.executable, "-m", "benchmarks.hostile.leaky_supervisor", str(folder / "job.toml"), str(run_dir)]
    with subprocess.Popen(command, cwd=ROOT, env=workshop.environment()) as process:
        try:
            victims = Victims(process, run_dir)
            victims.wait_trained()
            yield victims
        finally:
            process.terminate()
