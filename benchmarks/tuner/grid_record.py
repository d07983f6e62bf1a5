"""Records a grid of real runs: every configuration of several jobs, measured in mixed order by runs that are scaled
while they train. `python -m benchmarks.tuner.grid_record FILE` takes half an hour on a quiet machine.

The blocks are those of the live tuner: the runs have `tuner.mode = "watch"`, and the tuner's code combines their looks
into blocks here again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.harness.machine import read_machine
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.tuner.endless_run import running_job
from benchmarks.tuner.recorded_grid import Grid, GridCase, write_grid
from elastichost.errors import PreflightError
from elastichost.metrics import read_status
from elastichost.runs.decisions import DECISIONS_FILE
from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.policy.candidates import as_configurations, enumerate_candidates
from elastichost.tuner.policy.policy import TunerSettings
from elastichost.tuner.policy.profile import ProfileState, fold
from elastichost.tuner.records import Record, TunerLooked, TunerOpened
from elastichost.wire.commands import CommandClient, ReachedMsg, RefusedMsg, ScaleMsg

__all__ = ["COMMON", "ENDLESS", "Looks", "main", "measure"]

ROUNDS = 2
SERVERS = (1, 2, 4)
MOST_S = 6.0  # longest block; the noise is measured by the rounds
PATIENCE_S = 120.0
ENDLESS = {"train.epochs": "1000", "checkpoint.every_s": "0", "evaluate.every_samples": "0"}
COMMON = {
    **ENDLESS,
    "tuner.mode": '"watch"',
    "tuner.warm_start": "false",
    "tuner.block_s": "3.0",
    "resources.servers": "[1, 4]",
}
SYNTHETIC = {"data.synthetic.rows": "20_000_000", "data.synthetic.test_rows": "1_000"}
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "dlrm-direct-512": ("synthetic.toml", {**SYNTHETIC, "train.batch_size": "512"}),
    "dlrm-direct-4096": ("synthetic.toml", {**SYNTHETIC, "train.batch_size": "4096"}),
    "dlrm-served-512": ("synthetic.toml", {**SYNTHETIC, "train.batch_size": "512", "train.access": '"served"'}),
    "dlrm-served-4096": ("synthetic.toml", {**SYNTHETIC, "train.batch_size": "4096", "train.access": '"served"'}),
    "wide-deep-direct-2048": (
        "synthetic.toml",
        {
            **SYNTHETIC,
            "train.batch_size": "2048",
            "model.build": '"elastichost.models:wide_deep"',
            "model.args": "{ hidden = [256, 128, 64] }",
        },
    ),
    "dlrm-sync-4096": ("synthetic.toml", {**SYNTHETIC, "train.batch_size": "4096", "train.mode": '"sync"'}),
    "retail-direct-512": ("retail.toml", {}),
}


class Looks:
    """Reads the looks of a run as they are written, and combines them into blocks."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._decoder = msgspec.json.Decoder(Record)
        self._state = ProfileState()
        self.settings: TunerSettings | None = None

    def wait(self) -> TunerSettings:
        """Waits until the run has recorded the settings of its tuner, and returns them."""
        while self.settings is None:
            time.sleep(0.1)
            self.poll()
        return self.settings

    def poll(self) -> list[Observation]:
        """The blocks completed since the last call."""
        found: list[Observation] = []
        for record in self._records():
            if isinstance(record, TunerOpened):
                block = msgspec.structs.replace(record.settings.block, most_s=MOST_S)
                self.settings = msgspec.structs.replace(record.settings, block=block)
            elif isinstance(record, TunerLooked) and self.settings is not None:
                workload, block = self.settings.workload, self.settings.block
                self._state, observation = fold(self._state, record.look, workload, block)
                found += [observation] if observation is not None else []
        return found

    def _records(self) -> Iterator[Record]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield self._decoder.decode(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Records the chosen cases into a file. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="comma-separated cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(CASES)
    machine = read_machine()
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    facts = (stamp, machine.cpu, machine.cores, machine.memory_bytes, machine.system, dict(machine.versions))
    cases: list[GridCase] = []
    for name in names:
        cases.append(_record(name, options.rounds))
        write_grid(options.file, Grid(*facts, tuple(cases)))  # after each case, so that a later failure loses nothing
    return 0


def _record(name: str, rounds: int) -> GridCase:
    job, settings = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        looks = Looks(run_dir / DECISIONS_FILE)
        with running_job(EXAMPLES / job, {**COMMON, **settings}, run_dir):
            tuner = looks.wait()
            every = as_configurations(enumerate_candidates(tuner.bounds))
            configurations = [one for one in every if one.servers in SERVERS]
            blocks: list[Observation] = []
            shuffled = random.Random(name)
            for number in range(rounds):
                shuffled.shuffle(configurations)
                for configuration in configurations:
                    blocks.append(measure(run_dir, looks, configuration))
                    rate, error = blocks[-1].samples_per_s, blocks[-1].log_error
                    print(f"{name} {number} {configuration}: {rate:,.0f} +- {error:.1%}", file=sys.stderr, flush=True)
    return GridCase(name, job, settings, tuner.workload, tuner.bounds, rounds, tuple(blocks))


def measure(run_dir: Path, looks: Looks, configuration: Configuration) -> Observation:
    """Scales the run to a configuration and waits for one block of it."""
    client = CommandClient(read_status(run_dir).commands)
    until_s = time.monotonic() + PATIENCE_S
    try:
        client.send(ScaleMsg(configuration.workers, configuration.servers, configuration.worker_cores))
        while time.monotonic() < until_s:
            reply = client.receive(1.0)
            if isinstance(reply, RefusedMsg):
                raise PreflightError(f"{configuration}: {reply.message}")
            if isinstance(reply, ReachedMsg):
                break
    finally:
        client.close()
    looks.poll()
    while time.monotonic() < until_s:
        time.sleep(0.2)
        for block in looks.poll():
            if block.configuration == configuration:
                return block
    raise RuntimeError(f"no block of {configuration} within {PATIENCE_S:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
