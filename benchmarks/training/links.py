"""Training over two machines, by the speed of the link between them: samples/s and bytes on the wire, beside the model.

The machines are network namespaces of this one (root only), each with a core of its own where there are two or more,
joined by a link that `tbf` limits. Every run is the same job, started over ssh as a user would start it. The model of
the tuner is fitted to the run over the fastest link, to nothing else; what it says of the others is their measured
bandwidth put into its equations. Bytes are those that the interface counted while training was steady, headers and
encryption included.
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
    "resources.workers": [2, 3],  # the tuner watches, and changes nothing
    "resources.servers": 2,
    "tuner.mode": "watch",
    "tuner.first_plan.workers": 2,
}


class Measured(msgspec.Struct, frozen=True):
    """One run. bytes_per_sample: through host 1's interface, both directions; link_mbit_per_s: as the run measured it
    before it began."""

    samples_per_s: float
    bytes_per_sample: float
    link_mbit_per_s: float
    settings: TunerSettings
    observations: tuple[Observation, ...]


@contextlib.contextmanager
def running(bed: Bed, folder: Path, access: str) -> Iterator[Path]:
    """The job under way; gives its run directory."""
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
        for _ in range(2):  # twice: a last checkpoint would go over the slow link, and nobody wants it
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        process.wait(30)


def observed(run_dir: Path) -> tuple[TunerSettings | None, tuple[Observation, ...]]:
    """What the tuner has seen up to now."""
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
        return int(json.loads((run_dir / "status.json").read_text())["samples_trained"])
    return 0


def measure(bed: Bed, mbit_per_s: float, access: str, blocks: int) -> Measured:
    """One run, until so many blocks of it are measured."""
    bed.limit(1, mbit_per_s)
    with tempfile.TemporaryDirectory() as name, running(bed, Path(name), access) as run_dir:
        deadline_s = time.monotonic() + LIMIT_S
        began: tuple[int, int] | None = None
        while True:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{mbit_per_s:g} Mbit/s: no {blocks} blocks within {LIMIT_S:g} s")
            settings, seen = observed(run_dir)
            if began is None and seen:  # what came before was not steady
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
    """Samples/s over the other's link, by the model that has seen the fastest one's run only."""
    model = fit("elastichost", fastest.settings.workload, fastest.observations)
    there = msgspec.structs.replace(
        fastest.settings.workload, bandwidth_bytes_per_s=other.settings.workload.bandwidth_bytes_per_s
    )
    moved = dataclasses.replace(model, workload=there)  # type: ignore[type-var]
    return float(moved.predict(as_array([other.observations[-1].configuration])).samples_per_s[0])


def error_of(fastest: Measured, other: Measured) -> float:
    """Predicted over measured, less one."""
    return predicted(fastest, other) / other.samples_per_s - 1.0


def benchmark_of(bed: Bed, access: str, blocks: int, rounds: int) -> Benchmark[Measured]:
    fastest = _name(MBIT[0])

    def arm(mbit: float) -> Callable[[int], Measured]:
        return lambda _: measure(bed, mbit, access, blocks)

    return Benchmark(
        title="training over two machines, by the speed of their link",
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
    """For programs: a link each."""
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
    parser.add_argument("--blocks", type=int, default=3, help="of the tuner, in each run")
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
