"""Scale-out: from the request of a worker to its first committed batch; the time of hand-overs of buckets.

One worker joins and leaves again and again while another one trains; then PS join and leave.

The requests are commands to the run, as `elastichost scale` sends them. The times of the steps come from the run's
journal; the time of the commit comes from the arena, which this process reads:

    decide     from the command to the supervisor's decision to start the worker
    fork       until the fork server has forked the process and reported its pid
    hello      until its first message: arguments, job file, sockets
    build      until Ready: the user's model, the arena, the readers, the shard map, the dense vector
    lease      until its first lease is granted
    batch      until its first batch is committed: reading, rows, forward, backward, commit
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks.harness.aggregates import Percentiles, percentile, percentiles_of
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import Workshop
from benchmarks.recovery.scaled_run import WORKER, ScaledRun
from elastichost.wire.commands import ScaleMsg

__all__ = ["HandOver", "ScaleOut", "figures_of", "hand_overs_of", "main", "measure", "scale_outs_of"]

BATCHES_BETWEEN = 20  # batches that an incarnation commits before it is removed
HAND_OVERS = 10  # number of times that a PS joins or leaves
AIM_S = 0.3
JOINS, MOVES = "a worker", "a hand-over"
STEPS = ("decide", "fork", "hello", "build", "lease", "batch")


class ScaleOut(msgspec.Struct, frozen=True):
    """The times of one worker that joined, in seconds: the steps one after another, and `left_s`: its time to leave."""

    steps_s: dict[str, float]
    left_s: float

    @property
    def total_s(self) -> float:
        return sum(self.steps_s.values())


class HandOver(msgspec.Struct, frozen=True):
    """One PS that joined or left: buckets handed over, seconds from freeze to publish, and the lowest rate as a share
    of the rate before."""

    moved: int
    took_s: float
    dip: float


def scale_out(run: ScaledRun, incarnation: int) -> ScaleOut:
    """Requests the worker, waits until this incarnation has joined and trained a little, and removes it again."""
    name = f"worker-{WORKER}"
    asked_s = time.monotonic()
    run.ask(ScaleMsg(workers=2))
    trained_s = run.wait(lambda: run.committed_s(incarnation, 1))
    moments = [asked_s, run.wait(lambda: run.line("process_starting", name, asked_s)).monotonic_s]
    for kind in ("process_started", "process_connected", "process_ready", "lease_granted"):
        moments.append(run.wait(lambda kind=kind: run.line(kind, name, asked_s)).monotonic_s)  # type: ignore[misc]
    moments.append(trained_s)
    steps_s = {step: after - before for step, (before, after) in zip(STEPS, pairwise(moments), strict=True)}
    run.wait(lambda: run.committed_s(incarnation, BATCHES_BETWEEN))
    left_s = time.monotonic()
    run.ask(ScaleMsg(workers=1))
    gone_s = run.wait(lambda: run.line("process_ended", name, left_s)).monotonic_s
    run.lines.clear()
    return ScaleOut(steps_s, gone_s - left_s)


def hand_over(run: ScaledRun, servers: int) -> HandOver:
    """Changes the number of PS and watches the run until the rate is steady again."""
    reached = run.ask(ScaleMsg(servers=servers), until_reached=True)
    assert reached is not None
    run.lines.clear()
    figures = msgspec.convert(reached.data, type=_HandOverFigures)
    return HandOver(figures.buckets_moved, figures.handover_s, figures.dip)


class _HandOverFigures(msgspec.Struct, frozen=True):
    """The figures of the hand-over in the reply of the run."""

    buckets_moved: int
    handover_s: float
    dip: float


def scale_outs_of(job: ScaledRun, times: int) -> Benchmark[ScaleOut]:
    return Benchmark(
        title="from the request of a worker to its first committed batch",
        arms={JOINS: lambda number: scale_out(job, number + 1)},
        rounds=Rounds(times),
        figures=(
            Figure("total", "ms", lambda one: 1e3 * one.total_s, percentiles_of, ".0f"),
            *(Figure(step, "ms", _step_ms(step), percentiles_of, ".0f") for step in STEPS),
            Figure("leaves", "ms", lambda one: 1e3 * one.left_s, percentiles_of, ".0f"),
        ),
        aims=(Aim("total", 1e3 * AIM_S, "at most", form=".0f"),),
    )


def _step_ms(step: str) -> Callable[[ScaleOut], float]:
    return lambda one: 1e3 * one.steps_s[step]


def hand_overs_of(job: ScaledRun, times: int) -> Benchmark[HandOver]:
    return Benchmark(
        title="a PS joins or leaves",
        arms={MOVES: lambda number: hand_over(job, 2 - number % 2)},
        rounds=Rounds(times),
        figures=(
            Figure("buckets handed over", "", lambda one: one.moved, max, ".0f"),
            Figure("freeze to publish", "ms", lambda one: 1e3 * one.took_s, percentiles_of, ".0f"),
            Figure(
                "lowest rate over 200 ms, share of the rate before", "", lambda one: one.dip, _median_and_least, ".0%"
            ),
        ),
    )


def _median_and_least(values: Sequence[float]) -> Percentiles:
    """The percentiles with the smallest value as the worst: a low share is a deep dip."""
    return Percentiles(len(values), percentile(values, 50), percentile(values, 1), min(values))


@contextmanager
def scaled_run(job: Path, settings: Sequence[str]) -> Iterator[ScaledRun]:
    """A run that trains."""
    with Workshop() as workshop:
        found = ScaledRun(job, settings, workshop)
        found.wait(lambda: found.line("lease_granted", "worker-0", 0.0))
        yield found
        found.close()


def measure(
    job: Path, times: int, settings: Sequence[str], hand_overs: int = HAND_OVERS
) -> tuple[Outcome[ScaleOut], Outcome[HandOver]]:
    """Measures joins and hand-overs. Raises RuntimeError if the run ends during the measurement."""
    with scaled_run(job, settings) as under_way:
        return run(scale_outs_of(under_way, times)), run(hand_overs_of(under_way, hand_overs))


def figures_of(found: Sequence[ScaleOut], moves: Sequence[HandOver]) -> dict[str, object]:
    """The figures for the JSON output, in seconds. `steps`: each step. `left`: the time that a worker needs to leave.
    `hand_over`: from freeze to publish, of `buckets` at a time. `dip`: the lowest rate over 200 ms of a hand-over, as a
    share of the rate before. Raises ValueError without measurements."""
    dips = [move.dip for move in moves]
    return {
        "times": len(found),
        "total": percentiles_of([one.total_s for one in found]),
        "steps": {step: percentiles_of([one.steps_s[step] for one in found]) for step in STEPS},
        "left": percentiles_of([one.left_s for one in found]),
        "hand_overs": len(moves),
        "hand_over": percentiles_of([move.took_s for move in moves]),
        "buckets": max(move.moved for move in moves),
        "dip_p50": percentile(dips, 50),
        "dip_worst": min(dips),
        "aim_s": AIM_S,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench scale-out", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50, help="number of times that a worker joins and leaves (50)")
    parser.add_argument(
        "--hand-overs", type=int, default=HAND_OVERS, help=f"number of times that a PS joins or leaves ({HAND_OVERS})"
    )
    parser.add_argument(
        "--job", type=Path, default=EXAMPLES / "synthetic.toml", help="job file (the synthetic example)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting of the job; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    outcomes = measure(chosen.job, chosen.times, chosen.set, chosen.hand_overs)
    print_outcomes(outcomes)
    if chosen.json:
        joined, moved = outcomes
        write_json("scale-out", figures_of(joined.values(JOINS), moved.values(MOVES)), joined.verdicts())
    return exit_code(outcomes)
