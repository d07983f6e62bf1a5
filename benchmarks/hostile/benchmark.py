"""Hostile peers: what it costs a run over two machines that strangers and insiders knock at all of its gates.

    python -m elastichost bench hostile            four minutes
    python -m elastichost bench hostile --quick    a pair of each: a minute

One run, machines with transport "local". Windows without and with attackers in turn: nonsense before the handshake,
connections that come and go or say nothing, and a key that is let in, whose holder sends what is no message; at all
gates, at a bounded rate, from a process that gives way to everybody (nice 19). The attackers' own work shares the cores
of the victims here, which on other machines it would not: so both are told, samples a second, and samples a second of
the victims' CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from benchmarks.harness.measuring import Spread, print_table, spread_of, write_json
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.hostile.attackers import Target, gates_of
from benchmarks.hostile.leaky_supervisor import INSIDERS, read_keys
from elastichost.chaos.tails import AppliedTail
from elastichost.runs.events import ProcessLost
from elastichost.runs.journal import read_journal

__all__ = ["main"]

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
AIM = 0.90
START_LIMIT_S = 120.0
PAUSE_S = 3.5  # after an attack: whoever was let into the hall is sent away within it
LOOK_EVERY_S = 0.02


class Window(msgspec.Struct, frozen=True):
    """cpu_s: of the victims. growth_bytes: of the private memory of the one that grew most."""

    samples_per_s: float
    samples_per_cpu_s: float
    growth_bytes: int


class Figures(msgspec.Struct, frozen=True):
    """Ratios are medians of the quotients within a pair of windows."""

    rate: float
    acts: int
    alone: Spread
    attacked: Spread
    ratio: Spread
    cpu_ratio: Spread
    growth_bytes: int
    restarts: int
    aim: float = AIM


class Victims:
    """A run, seen from outside."""

    def __init__(self, process: subprocess.Popen[bytes], run_dir: Path) -> None:
        self._process, self._run_dir = process, run_dir
        self._applied = AppliedTail(run_dir / "applied.bin")

    def wait_trained(self) -> None:
        """Raises RuntimeError when it does not come to that."""
        deadline_s = time.monotonic() + START_LIMIT_S
        while self._samples() == 0 or len(self._gates()) < 3:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the run did not begin to train: exit code {self._process.returncode}")
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
        """Those that train and serve, and the supervisor: agents and fork servers only wait."""
        facts = msgspec.json.decode((self._run_dir / "status.json").read_bytes())
        pids = (one["pid"] for one in facts["processes"] if psutil.pid_exists(one["pid"]))  # the probe may be gone
        return [psutil.Process(self._process.pid), *map(psutil.Process, pids)]

    def _gates(self) -> list[tuple[int, str, int]]:
        """(pid, address, port)"""
        if not (self._run_dir / "status.json").exists():
            return []
        return [(one.pid, *gate) for one in self._processes for gate in gates_of(one.pid)]

    def targets(self) -> list[Target]:
        """All gates; insiders at those of PS, where it is answers that cost."""
        keys = read_keys(self._run_dir)
        status = msgspec.json.decode((self._run_dir / "status.json").read_bytes())
        incarnations = {one["pid"]: f"{one['role']}-{one['index']}.{one['incarnation']}" for one in status["processes"]}
        insider = str(INSIDERS[0])
        return [
            Target(host, port, keys[incarnations.get(pid, "supervisor")].public, insiders={insider: keys[insider]})
            for pid, host, port in self._gates()
        ]

    def window(self, seconds: float) -> Window:
        """Raises RuntimeError when the run ends within it."""
        processes = self._processes
        cpu_s, samples, began_s = _cpu_s(processes), self._samples(), time.monotonic()
        private = [_private_bytes(one) for one in processes]
        time.sleep(seconds)
        if self._process.poll() is not None:
            raise RuntimeError(f"the run ended with {self._process.returncode}")
        trained, passed_s = self._samples() - samples, time.monotonic() - began_s
        growth = max(_private_bytes(one) - before for one, before in zip(processes, private, strict=True))
        return Window(trained / passed_s, trained / (_cpu_s(processes) - cpu_s), growth)

    def lost(self) -> list[ProcessLost]:
        lines = read_journal(self._run_dir / "journal.jsonl")
        return [line.event for line in lines if isinstance(line.event, ProcessLost)]


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def _private_bytes(process: psutil.Process) -> int:
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


class Attack:
    """Attackers at work, from `with` to its end; `acts`: how many times they did something."""

    def __init__(self, targets: Sequence[Target], rate: float) -> None:
        self._targets, self._rate = targets, rate
        self.acts = 0

    def __enter__(self) -> Attack:
        command = [sys.executable, "-m", "benchmarks.hostile.attackers", str(self._rate)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(list(self._targets)) + b"\n")
        self._process.stdin.flush()
        return self

    def __exit__(self, *_: object) -> None:
        told = self._process.communicate()[0]
        self.acts = int(told or b"0")


def measure(pairs: int, window_s: float, rate: float) -> Figures:
    """Raises RuntimeError when the run does not live through it."""
    with Workshop() as workshop:
        folder = workshop.disk
        (folder / "job.toml").write_text(JOB)
        (folder / "hosts.toml").write_text(HOSTS)
        run_dir = folder / "run"
        command = [sys.executable, "-m", "benchmarks.hostile.leaky_supervisor", str(folder / "job.toml"), str(run_dir)]
        environment = {**workshop.environment(), "ELASTICHOST_ARENA_DIR": str(workshop.memory)}
        with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
            try:
                victims = Victims(process, run_dir)
                victims.wait_trained()
                victims.window(window_s)  # until it has come into its stride
                return _pairs(victims, pairs, window_s, rate)
            finally:
                process.terminate()


def _pairs(victims: Victims, pairs: int, window_s: float, rate: float) -> Figures:
    alone, attacked, acts = list[Window](), list[Window](), 0
    for number in range(pairs):
        for is_attacked in (False, True) if number % 2 == 0 else (True, False):
            if not is_attacked:
                alone.append(victims.window(window_s))
                continue
            with Attack(victims.targets(), rate) as attack:
                victims.window(1.0)  # it imports meanwhile
                attacked.append(victims.window(window_s))
            acts += attack.acts
            time.sleep(PAUSE_S)
        print(f"{alone[-1]}\n{attacked[-1]}", file=sys.stderr, flush=True)
    both = list(zip(alone, attacked, strict=True))
    return Figures(
        rate=rate,
        acts=acts,
        alone=spread_of(one.samples_per_s for one in alone),
        attacked=spread_of(one.samples_per_s for one in attacked),
        ratio=spread_of(other.samples_per_s / one.samples_per_s for one, other in both),
        cpu_ratio=spread_of(other.samples_per_cpu_s / one.samples_per_cpu_s for one, other in both),
        growth_bytes=int(statistics.median(one.growth_bytes for one in attacked)),
        restarts=len(victims.lost()),
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="elastichost bench hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two pairs of short windows")
    parser.add_argument("--rate", type=float, default=100.0, metavar="ACTS", help="of the attackers in a second (100)")
    chosen = parser.parse_args(argv)
    figures = measure(2 if chosen.quick else 8, 5.0 if chosen.quick else 10.0, chosen.rate)
    rows = [
        ("samples a second, alone", str(figures.alone), ""),
        ("samples a second, attacked", str(figures.attacked), ""),
        ("ratio", str(figures.ratio), f">= {AIM:g}"),
        ("ratio by CPU second of the victims", str(figures.cpu_ratio), f">= {AIM:g}"),
        ("growth of memory, MiB", f"{figures.growth_bytes / 2**20:.1f}", "<= 64"),
        ("processes lost", str(figures.restarts), "0"),
    ]
    print_table(("hostile peers", "measured", "aim"), rows)
    write_json("hostile", figures)


if __name__ == "__main__":
    main()
