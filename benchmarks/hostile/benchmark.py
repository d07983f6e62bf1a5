"""Hostile peers: the slowdown of a run on two machines while strangers and insiders attack all its sockets.

    python -m elastichost bench hostile            four minutes
    python -m elastichost bench hostile --quick    two pairs of short windows: a minute

The benchmark has one run; its machines have transport "local". Windows without and with attackers alternate. The
attacks are: invalid bytes before the handshake, connections that close at once or send nothing, and a peer with an
accepted key that sends invalid messages. They go to all sockets at a bounded rate, from a process with nice 19. Here
the attackers share cores with the victims, which attackers on other machines would not do. Therefore two figures are
shown: samples per second, and samples per CPU second of the victims.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

import msgspec

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.hostile.attackers import Target
from benchmarks.hostile.victims import Victims, Window, victims_in

__all__ = ["benchmark_of", "main"]

ALONE, ATTACKED = "alone", "attacked"
AIM = 0.90
MOST_GROWTH_MIB = 64.0
PAUSE_S = 3.5  # after an attack: the run closes the remaining unauthenticated connections within this time
RATIO = PairedFigure[Window](
    "attacked / alone", "", ALONE, ATTACKED, lambda alone, attacked: attacked.samples_per_s / alone.samples_per_s
)
CPU_RATIO = PairedFigure[Window](
    "attacked / alone, per CPU second of the victims",
    "",
    ALONE,
    ATTACKED,
    lambda alone, attacked: attacked.samples_per_cpu_s / alone.samples_per_cpu_s,
)


class Attack:
    """Runs the attackers while the context is open. `acts`: their number of attacks."""

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


def benchmark_of(victims: Victims, pairs: int, window_s: float, rate: float) -> Benchmark[Window]:
    """Windows without and with attackers, alternately. An arm raises RuntimeError if the run dies."""

    def attacked(_: int) -> Window:
        with Attack(victims.targets(), rate) as attack:
            victims.window(1.0)  # time for the imports of the attackers
            window = victims.window(window_s)
        time.sleep(PAUSE_S)
        return msgspec.structs.replace(window, acts=attack.acts)

    return Benchmark(
        title="hostile peers",
        arms={ALONE: lambda _: victims.window(window_s), ATTACKED: attacked},
        rounds=Rounds(pairs),
        figures=(
            Figure("samples/s", "", lambda one: one.samples_per_s, form=",.0f"),
            Figure("samples per CPU second", "", lambda one: one.samples_per_cpu_s, form=",.0f"),
            Figure("growth of memory", "MiB", lambda one: one.growth_bytes / 2**20, median, ".1f"),
            Figure("processes lost", "", lambda one: one.lost, max, ".0f"),
            Figure("acts", "", lambda one: one.acts, sum, ",.0f", (ATTACKED,)),
        ),
        pairs=(RATIO, CPU_RATIO),
        aims=(
            Aim(RATIO.name, AIM, "at least"),
            Aim(CPU_RATIO.name, AIM, "at least"),
            Aim("growth of memory", MOST_GROWTH_MIB, "at most", ATTACKED, ".1f"),
            *(Aim("processes lost", 0.0, "at most", arm, ".0f") for arm in (ALONE, ATTACKED)),
        ),
    )


def measure(pairs: int, window_s: float, rate: float) -> Outcome[Window]:
    """Measures all windows. Raises RuntimeError if the run dies."""
    with Workshop() as workshop, victims_in(workshop) as victims:
        victims.window(window_s)  # warm-up
        return run(benchmark_of(victims, pairs, window_s, rate))


def figures_of(outcome: Outcome[Window], rate: float) -> dict[str, object]:
    """The figures for the JSON output. Ratios are of quotients within a pair of windows."""
    attacked = outcome.of(ATTACKED).values()
    return {
        "rate": rate,
        "acts": sum(one.acts for one in attacked),
        "alone": outcome.figure("samples/s", ALONE),
        "attacked": outcome.figure("samples/s", ATTACKED),
        "ratio": outcome.pair(RATIO),
        "cpu_ratio": outcome.pair(CPU_RATIO),
        "growth_bytes": int(median(one.growth_bytes for one in attacked)),
        "restarts": max(one.lost for arm in (ALONE, ATTACKED) for one in outcome.of(arm).values()),
        "aim": AIM,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two pairs of short windows")
    parser.add_argument("--rate", type=float, default=100.0, metavar="ACTS", help="attacks per second (100)")
    chosen = parser.parse_args(argv)
    outcome = measure(2 if chosen.quick else 8, 5.0 if chosen.quick else 10.0, chosen.rate)
    print_outcomes([outcome])
    write_json("hostile", figures_of(outcome, chosen.rate), outcome.verdicts())
    return exit_code([outcome])
