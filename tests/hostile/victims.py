"""A run over two machines that is attacked: where its gates are, what its processes take, and what became of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.hostile.attackers import Target, gates_of
from benchmarks.hostile.leaky_supervisor import read_keys
from elastichost.plan import ProcessId
from elastichost.results.export import export
from elastichost.runs.events import CommandRefused, MessageRefused, RunStarted
from elastichost.wire.applied import read_applied
from elastichost.wire.security.keys import KeyPair, Pass
from elastichost.wire.sockets import DataClient
from tests.system.test_run import JOB, Supervised

__all__ = ["GROWTH_BYTES", "SAMPLES", "Attacked", "Outcome", "alone", "outcome_of", "over_two_machines"]

SAMPLES = 60_000
BATCH = 128
Started = TypeVar("Started", bound=Supervised)
GROWTH_BYTES = 64 << 20
# While there is that file a step takes long: attacks have their time, and the bits stay the same.
MODEL = """
import time
from pathlib import Path

from elastichost.models import dlrm

HOLD = Path("{hold}")


def wait(*_):
    if HOLD.exists():
        time.sleep(0.2)


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(wait)
    return model
"""
HOSTS = '[[hosts]]\ntransport = "local"\nname = "second"\n'
TEMPLATE = JOB.replace("[train]\n", '[train]\nmode = "sync"\n').replace("workers = 2", "workers = 2\nservers = 2")


class LeakyRun(Supervised):
    module = "benchmarks.hostile.leaky_supervisor"


def alone(folder: Path) -> Supervised:
    """Starts the job on one machine: the bits are the same."""
    return _job(folder, Supervised)


def over_two_machines(folder: Path) -> LeakyRun:
    """Starts it there, and holds it."""
    folder.mkdir()
    (folder / "hosts.toml").write_text(HOSTS)
    (folder / "hold").touch()
    return _job(folder, LeakyRun)


def _job(folder: Path, kind: type[Started]) -> Started:
    folder.mkdir(exist_ok=True)
    (folder / "paced.py").write_text(MODEL.replace("{hold}", str(folder / "hold")))
    return kind(folder, template=TEMPLATE, build=f"{folder}/paced.py:build", rows=SAMPLES, every_s=60)


@dataclass(frozen=True, slots=True)
class Outcome:
    """losses: of every step; model: a hash of all that was trained."""

    losses: list[float]
    model: str


def outcome_of(run: Supervised) -> Outcome:
    """Of a run that is over, in which every sample was trained once."""
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    applied = read_applied(run.run_dir)
    applied = applied[applied["samples"] > 0]
    assert int(applied["samples"].sum()) == SAMPLES
    exported = run.run_dir.parent / "exported"
    export(run.run_dir, exported)
    digest = hashlib.sha256()
    for name in ("ids.safetensors", "model.safetensors"):
        digest.update((exported / name).read_bytes())
    return Outcome(applied["loss_sum"].tolist(), digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Takes:
    """resident: bytes now; most: since its peak was last forgotten."""

    resident: int
    most: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a moment. committed: bytes of applied.bin, which grows with every step."""

    takes: dict[str, Takes]
    committed: int


class Attacked:
    """gates: of the supervisor, and of every PS by its name."""

    def __init__(self, run: LeakyRun) -> None:
        self.run = run
        run.wait_trained(3 * BATCH)  # the first step is over, and every PS knows
        self.pids = {"supervisor": run.process.pid, **{name: run.pid(name) for name in ("server-0", "server-1")}}
        keys = read_keys(run.run_dir)
        self.keys: dict[str, KeyPair] = keys
        self.job_id = int(run.events(RunStarted)[0].run_id, 16)
        self.gates = {name: self._gate(name, pid) for name, pid in self.pids.items()}

    def _gate(self, name: str, pid: int) -> Target:
        ((host, port),) = gates_of(pid)
        incarnation = name if name == "supervisor" else f"{name}.1"
        return Target(host, port, self.keys[incarnation].public, self.job_id)

    @property
    def servers(self) -> dict[str, Target]:
        return {name: gate for name, gate in self.gates.items() if name != "supervisor"}

    def shown(self, incarnation: str, gate: Target) -> Pass:
        """What that incarnation shows there."""
        return Pass(self.keys[incarnation], gate.key)

    def insider(self, gate: Target, incarnation: ProcessId, channel: str) -> DataClient:
        """A client at a PS' gate, with a key that is let in."""
        return DataClient(gate.address, self.job_id, incarnation, channel, self.shown(str(incarnation), gate))

    def begin(self) -> Standing:
        """Of before an attack; from now on peaks of memory are new ones."""
        for pid in self.pids.values():
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        return self._standing()

    def _standing(self) -> Standing:
        return Standing(self._takes(), (self.run.run_dir / "applied.bin").stat().st_size)

    def _takes(self) -> dict[str, Takes]:
        found = {}
        for name, pid in self.pids.items():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            kib = {
                line.partition(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))
            }
            descriptors = psutil.Process(pid).num_fds()
            found[name] = Takes(kib["VmRSS"] * 1024, kib["VmHWM"] * 1024, descriptors)
        return found

    def settle(self, before: Standing) -> None:
        """Memory never grew by much, descriptors come back, training goes on."""
        for name, takes in self._takes().items():
            assert takes.most - before.takes[name].resident < GROWTH_BYTES, (name, before, takes)

        def is_as_before() -> bool:
            now = self._standing()
            kept = (takes.descriptors - before.takes[name].descriptors for name, takes in now.takes.items())
            return now.committed > before.committed and max(kept) <= 4

        self.run.wait_until(is_as_before)

    def refused(self) -> list[str]:
        """What was wrong with the messages and commands that the supervisor refused, in order."""
        events = (line.event for line in self.run.lines())
        return [event.error for event in events if isinstance(event, MessageRefused | CommandRefused)]

    def wait_refused(self, words: str) -> None:
        """Until the supervisor's journal has it."""
        self.run.wait_until(lambda: any(words in error for error in self.refused()))

    def log_of(self, name: str) -> str:
        """Of a PS on the supervisor's machine."""
        return (self.run.run_dir / "logs" / f"{name}.1.log").read_text()

    def go_on(self) -> None:
        """As fast as it can, to its end."""
        (self.run.run_dir.parent / "hold").unlink()

    def facts(self) -> dict[str, Any]:
        return self.run.status()
