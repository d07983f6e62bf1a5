"""A run on two hosts that is attacked: its gates, the memory and descriptors of its processes, and its outcome."""

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
# While the file HOLD exists, each step takes long, so that the run lasts until all attacks are over.
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
    """A run with a supervisor that writes its keys to a file."""

    module = "benchmarks.hostile.leaky_supervisor"


def alone(folder: Path) -> Supervised:
    """Starts the job on one host, not attacked; its model has the same bits."""
    return _job(folder, Supervised)


def over_two_machines(folder: Path) -> LeakyRun:
    """Starts the job on two hosts, with slow steps."""
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
    """The result of a run. losses: of every step; model: a hash of the exported ids and tensors."""

    losses: list[float]
    model: str


def outcome_of(run: Supervised) -> Outcome:
    """Waits for the end of a run, asserts that every sample was trained once, and returns the outcome."""
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
class Usage:
    """What a process uses. resident: bytes now; most: the peak in bytes since `begin`."""

    resident: int
    most: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The state at a moment. usage: by process; committed: bytes of applied.bin, which grows with every step."""

    usage: dict[str, Usage]
    committed: int


class Attacked:
    """An attacked run. gates: of the supervisor and of every PS, by name."""

    def __init__(self, run: LeakyRun) -> None:
        self.run = run
        run.wait_trained(3 * BATCH)  # every PS knows that the first step is over
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
        """The keys that an incarnation shows at a gate."""
        return Pass(self.keys[incarnation], gate.key)

    def insider(self, gate: Target, incarnation: ProcessId, channel: str) -> DataClient:
        """A client at a PS's gate, with an accepted key."""
        return DataClient(gate.address, self.job_id, incarnation, channel, self.shown(str(incarnation), gate))

    def begin(self) -> Standing:
        """Returns the state before an attack, and resets the memory peaks of the processes."""
        for pid in self.pids.values():
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        return self._standing()

    def _standing(self) -> Standing:
        return Standing(self._usage(), (self.run.run_dir / "applied.bin").stat().st_size)

    def _usage(self) -> dict[str, Usage]:
        found = {}
        for name, pid in self.pids.items():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            kib = {
                line.partition(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))
            }
            descriptors = psutil.Process(pid).num_fds()
            found[name] = Usage(kib["VmRSS"] * 1024, kib["VmHWM"] * 1024, descriptors)
        return found

    def settle(self, before: Standing) -> None:
        """Asserts that memory has not grown by GROWTH_BYTES, descriptors are closed again, and training goes on."""
        for name, usage in self._usage().items():
            assert usage.most - before.usage[name].resident < GROWTH_BYTES, (name, before, usage)

        def is_as_before() -> bool:
            now = self._standing()
            kept = (usage.descriptors - before.usage[name].descriptors for name, usage in now.usage.items())
            return now.committed > before.committed and max(kept) <= 4

        self.run.wait_until(is_as_before)

    def refused(self) -> list[str]:
        """The errors of the messages and commands that the supervisor refused, in order."""
        events = (line.event for line in self.run.lines())
        return [event.error for event in events if isinstance(event, MessageRefused | CommandRefused)]

    def wait_refused(self, words: str) -> None:
        """Waits until the supervisor's journal has a refusal with these words."""
        self.run.wait_until(lambda: any(words in error for error in self.refused()))

    def log_of(self, name: str) -> str:
        """The log of a PS on the supervisor's host."""
        return (self.run.run_dir / "logs" / f"{name}.1.log").read_text()

    def go_on(self) -> None:
        """Lets steps take their normal time again, so that the run ends soon."""
        (self.run.run_dir.parent / "hold").unlink()

    def facts(self) -> dict[str, Any]:
        return self.run.status()
