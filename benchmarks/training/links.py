"""Training on two machines by the speed of their link: samples/s, bytes per sample, and the tuner's prediction.

The machines are two network namespaces of this one (needs root), each with its own core if there are two or more, and
joined by a link that `tbf` limits. Every run is the same job, started over ssh. The tuner's model is fitted only to the
run over the fastest link. For the other links, their measured bandwidth is inserted into its equations. Bytes are
counted by the network interface while training is steady, including headers and encryption.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import ROOT, Workshop
from elastichost.run_files import STATUS_FILE
from elastichost.runs.decisions import DECISIONS_FILE, read_records
from elastichost.tuner.facts import Observation, as_array
from elastichost.tuner.models.registry import fit
from elastichost.tuner.policy.policy import TunerSettings
from elastichost.tuner.policy.profile import ProfileState, fold
from elastichost.tuner.records import TunerLooked, TunerOpened
from tests.hosts.bed import SSH_PORT, Bed, why_not

__all__ = ["benchmark_of", "main"]

MBIT = (1000.0, 100.0, 10.0)
LIMIT_S = 240.0
SETTINGS: dict[str, object] = {
    "train.epochs": 100_000,
    "checkpoint.every_s": 1e6,
    "evaluate.every_samples": 0,
    "data.synthetic.test_rows": 1000,
    "data.synthetic.rows": 1_000_000,
    "resources.workers": [2, 3],  # a range, so that the tuner has a choice; in mode "watch" it changes nothing
    "resources.servers": 2,
    "tuner.mode": "watch",
    "tuner.first_plan.workers": 2,
}


class Measured(msgspec.Struct, frozen=True):
    """The figures of one run. bytes_per_sample: through the interface of host 1, both directions. link_mbit_per_s:
    measured by the run before it began to train."""

    samples_per_s: float
    bytes_per_sample: float
    link_mbit_per_s: float
    settings: TunerSettings
    observations: tuple[Observation, ...]


@contextlib.contextmanager
def running(bed: Bed, folder: Path, access: str) -> Iterator[Path]:
    """Starts the job and yields its run directory; stops the job afterwards."""
    hosts = folder / "hosts.toml"
    hosts.write_text(
        f'[[hosts]]\naddress = "{getpass.getuser()}@{bed.address(1)}"\nname = "second"\n'
        f"options = {bed.keys.options(SSH_PORT)}\n"
    )
    run_dir = folder / "run"
    sets = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    command = [sys.executable, "-m", "elastichost", "run", str(EXAMPLES / "synthetic.toml"), "--run-dir", str(run_dir)]
    command += ["--dashboard", "no", "--hosts", str(hosts), *sets, "--set", f"train.access={access}"]
    cores = sorted(os.sched_getaffinity(0))
    pin = ["taskset", "-c", str(cores[0])] if len(cores) > 1 else []
    process = bed.run(0, [*pin, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield run_dir
        if process.poll() is not None:
            raise RuntimeError(f"the run ended: {process.communicate()[1]}")
    finally:
        for _ in range(2):  # the second signal skips the last checkpoint, which would go over the slow link
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        process.wait(30)


def observed(run_dir: Path) -> tuple[TunerSettings | None, tuple[Observation, ...]]:
    """The settings of the tuner and its observations so far."""
    settings, state, found = None, ProfileState(), list[Observation]()
    if not (run_dir / DECISIONS_FILE).exists():
        return None, ()
    for record in read_records(run_dir / DECISIONS_FILE):
        if isinstance(record, TunerOpened):
            settings, state = record.settings, ProfileState()
        elif isinstance(record, TunerLooked) and settings is not None:
            state, one = fold(state, record.look, settings.workload, settings.block)
            found += [one] if one is not None else []
    return settings, tuple(found)


def trained(run_dir: Path) -> int:
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return int(json.loads((run_dir / STATUS_FILE).read_text())["samples_trained"])
    return 0


def measure(bed: Bed, mbit_per_s: float, access: str, blocks: int) -> Measured:
    """Runs the job until `blocks` blocks are measured in steady training."""
    bed.limit(1, mbit_per_s)
    with tempfile.TemporaryDirectory() as name, running(bed, Path(name), access) as run_dir:
        deadline_s = time.monotonic() + LIMIT_S
        began: tuple[int, int] | None = None
        while True:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{mbit_per_s:g} Mbit/s: fewer than {blocks} blocks within {LIMIT_S:g} s")
            settings, seen = observed(run_dir)
            if began is None and seen:  # training before the first block was not steady
                began = trained(run_dir), sum(bed.sent_bytes(1))
            if settings is not None and began is not None and len(seen) > blocks:
                samples, moved = trained(run_dir) - began[0], sum(bed.sent_bytes(1)) - began[1]
                break
            time.sleep(0.2)
    return Measured(
        float(np.median([one.samples_per_s for one in seen[1:]])),
        moved / max(1, samples),
        8e-6 * settings.workload.bandwidth_bytes_per_s,
        settings,
        seen[1:],
    )


def predicted(fastest: Measured, other: Measured) -> float:
    """Samples/s over the link of `other`, predicted by a model that is fitted only to the run of `fastest`."""
    model = fit("elastichost", fastest.settings.workload, fastest.observations)
    there = msgspec.structs.replace(
        fastest.settings.workload, bandwidth_bytes_per_s=other.settings.workload.bandwidth_bytes_per_s
    )
    moved = dataclasses.replace(model, workload=there)  # type: ignore[type-var]
    return float(moved.predict(as_array([other.observations[-1].configuration])).samples_per_s[0])


def error_of(fastest: Measured, other: Measured) -> float:
    """The relative error of the prediction: predicted / measured - 1."""
    return predicted(fastest, other) / other.samples_per_s - 1.0


def benchmark_of(bed: Bed, access: str, blocks: int, rounds: int) -> Benchmark[Measured]:
    fastest = _name(MBIT[0])

    def arm(mbit: float) -> Callable[[int], Measured]:
        return lambda _: measure(bed, mbit, access, blocks)

    return Benchmark(
        title="training on two machines, by the speed of their link",
        arms={_name(mbit): arm(mbit) for mbit in MBIT},
        rounds=Rounds(rounds),
        figures=(
            Figure("samples/s", "", lambda one: one.samples_per_s, form=",.0f"),
            Figure("bytes/sample", "", lambda one: one.bytes_per_sample, form=",.0f"),
            Figure("measured link", "Mbit/s", lambda one: one.link_mbit_per_s, form=",.1f"),
        ),
        pairs=tuple(
            pair
            for name in map(_name, MBIT)
            for pair in (
                PairedFigure(f"{name}: predicted", "samples/s", fastest, name, predicted, form=",.0f"),
                PairedFigure(f"{name}: error", "", fastest, name, error_of, form="+.1%"),
            )
        ),
    )


def _name(mbit_per_s: float) -> str:
    return f"{mbit_per_s:g} Mbit/s"


def figures_of(outcome: Outcome[Measured]) -> list[dict[str, object]]:
    """The figures for the JSON output, one entry for each link."""
    pairs = {figure.name: figure for figure in outcome.benchmark.pairs}
    return [
        {
            "mbit_per_s": mbit,
            "samples_per_s": outcome.figure("samples/s", _name(mbit)),
            "bytes_per_sample": outcome.figure("bytes/sample", _name(mbit)),
            "link_mbit_per_s": outcome.figure("measured link", _name(mbit)),
            "predicted_samples_per_s": outcome.pair(pairs[f"{_name(mbit)}: predicted"]),
            "error": outcome.pair(pairs[f"{_name(mbit)}: error"]),
        }
        for mbit in MBIT
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="elastichost bench links", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=3, help="blocks of the tuner that each run measures")
    parser.add_argument("--access", default="auto", choices=("auto", "served"))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    if problem := why_not():
        print(f"bench links: {problem}", file=sys.stderr)
        return 3
    os.environ["PYTHONPATH"] = str(ROOT)
    with Workshop() as workshop, Bed(2, workshop.disk) as bed:
        cores = sorted(os.sched_getaffinity(0))
        bed.pin_sshd(1, cores[1:] or cores)
        outcome = run(benchmark_of(bed, chosen.access, chosen.blocks, chosen.rounds))
    print_outcomes([outcome])
    if chosen.json:
        write_json("links", {"access": chosen.access, "rounds": chosen.rounds, "links": figures_of(outcome)})
    return exit_code([outcome])
