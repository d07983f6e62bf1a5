"""Accuracy of the estimate of peak memory: small real jobs, estimated as `plan` does, then run and measured.

    elastichost bench memory-estimate [--quick] [--json] [--only WORD] [--parts] [--drawn N --seed S]

The jobs differ in model, tables (10 thousand to 2 million rows, dimensions 4 to 64, fixed and dynamic), batch, access,
workers, format of the data, test data and checkpoints. Each job is forked from a process that has imported torch, as
on a host with many jobs, so that memory shared by all jobs is not counted. Jobs named "alone" are started as by
`elastichost run`. The observed value is the largest sum of the arena's pages, the copies for checkpoints and the
anonymous memory of all processes. --parts prints the parts of the estimated and the observed sum.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from benchmarks.harness.aggregates import quantile
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run, silent
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.memory_estimate.job_runner import JobRunner, SeenJob
from benchmarks.memory_estimate.job_shapes import JobShape, cases, drawn

__all__ = ["benchmark_of", "figures_of", "main"]

ARM = "estimates"


def benchmark_of(runner: JobRunner, shapes: Sequence[JobShape], *, parts: bool = False) -> Benchmark[SeenJob]:
    """The benchmark; each round is one job. parts: also prints the parts of both sums."""

    def see(number: int) -> SeenJob:
        one = runner.see(shapes[number])
        _show(one, parts=parts)
        return one

    return Benchmark(
        title="error of estimated peak memory: estimated / observed - 1",
        arms={ARM: see},
        rounds=Rounds(len(shapes)),
        figures=(
            Figure("jobs", "", lambda one: 1.0, sum, ".0f"),
            Figure("p50 of |error|", "", lambda one: abs(one.error), quantile(0.5), ".1%"),
            Figure("p90", "", lambda one: abs(one.error), quantile(0.9), ".1%"),
            Figure("most too low", "", lambda one: max(0.0, -one.error), max, ".1%"),
            Figure("most too high", "", lambda one: max(0.0, one.error), max, ".1%"),
        ),
    )


def figures_of(outcome: Outcome[SeenJob]) -> dict[str, object]:
    """The figures for the JSON output. by_job: predicted and observed megabytes."""
    seen = outcome.values(ARM)
    names = {"p50": "p50 of |error|", "p90": "p90", "max_under": "most too low", "max_over": "most too high"}
    return {
        "jobs": len(seen),
        **{key: outcome.figure(name, ARM) for key, name in names.items()},
        "by_job": {
            one.shape.name: (round(one.estimate.host_bytes / 1e6, 1), round(one.peak.total / 1e6, 1)) for one in seen
        },
    }


# --- what is shown ----------------------------------------------------------------------------------------------------


def _show(one: SeenJob, *, parts: bool) -> None:
    sizes = f"{one.estimate.host_bytes / 1e6:8.1f} MB predicted {one.peak.total / 1e6:8.1f} observed"
    print(f"{one.shape.name:<44}{sizes} {one.error:+7.1%}  {one.estimate.moment}", flush=True)
    if parts:
        _show_parts(one)


def _show_parts(one: SeenJob) -> None:
    parts = sorted(one.estimate.parts, key=lambda part: -part.bytes)
    print("    predicted " + ", ".join(f"{part.name} {part.bytes / 1e6:.1f}" for part in parts if part.bytes > 1e5))
    roles = ", ".join(f"{role} {size / 1e6:.1f}" for role, size in sorted(one.peak.by_role.items()))
    peak = one.peak
    print(
        f"    observed  arena {peak.arena / 1e6:.1f}, copies {peak.copies / 1e6:.1f}, anonymous "
        f"{peak.anonymous / 1e6:.1f} (private: {roles})",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench memory-estimate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--only", default="", help="run only jobs with this word in their name")
    parser.add_argument(
        "--drawn", type=int, default=0, help="run this number of random jobs instead of the listed ones"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random jobs")
    options = parser.parse_args(arguments)
    shapes = drawn(options.drawn, options.seed) if options.drawn else cases()
    chosen = [s for s in shapes if options.only in s.name and (options.drawn or s.is_quick or not options.quick)]
    if not chosen:
        parser.error("no job has the word of --only in its name")
    with Workshop() as workshop:
        os.environ.update(workshop.environment(), ELASTICHOST_HISTORY="off", PYTHONPATH=str(ROOT))
        with JobRunner(workshop, with_roles=options.parts) as runner:
            outcome = run(benchmark_of(runner, chosen, parts=options.parts), silent)
    print_outcomes([outcome])
    if options.json:
        write_json("memory_estimate", figures_of(outcome), outcome.verdicts())
    return exit_code([outcome])
