"""Compares policies on thousands of simulated jobs: completion times, memory, utilisation, faults.

`python -m benchmarks.tuner.simulated [--quick] [--json] [--parallel 2]`. All policies get the same jobs, hosts, noise
and failures (paired seeds). The arrival rate is chosen so that the well-tuned manual policy uses about `--load` of all
cores from the first arrival to the last; the share of each policy is printed. The oracle is the best of several
policies that have the true speeds, chosen for each seed with hindsight. Intervals are 95 % bootstraps over seeds.

With --trace, jobs arrive as in a recorded trace (`cluster.traces.trace` describes the files), and --load changes
nothing; --trace-fold-h lays its periods over each other. `python -m benchmarks.tuner.simulated.scale` measures the
largest clusters.

Policies that look at users' requests are simulated with each kind of them (`requests`): random,
sensible and well tuned. The best rival of a column is the best of all rivals in it. The seeds of tables are others than
those on which constants were chosen (`seeds`).

Parts: policies (always), misfit (true speeds depart by 20 % from what any model can fit), ablations (ours with a part
left out), hot (jobs that get a hot PS), stragglers (ten times as many), start (first plans on a cluster with free
cores), sizes (CPU time of decisions by number of jobs).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.harness.output import write_json
from benchmarks.simulator.policy_registry import POLICIES
from benchmarks.simulator.queueing import truth_tables
from benchmarks.tuner.simulated.conditions.host_mixes import HOST_MIXES
from benchmarks.tuner.simulated.conditions.requests import KINDS
from benchmarks.tuner.simulated.conditions.trace_jobs import TraceChoice
from benchmarks.tuner.simulated.plan import Plan, loaded_jobs
from benchmarks.tuner.simulated.results import PARTS, Results, run
from benchmarks.tuner.simulated.tables import WIDTH, show

__all__ = ["WIDTH", "Plan", "Results", "loaded_jobs", "main", "only_results_on_stdout", "run", "show"]

QUICK = {"seeds": 2, "jobs": 9, "hosts": 3}
SIZES, QUICK_SIZES = "8,100,4000", "8"


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Redirects file descriptor 1 to stderr, because HiGHS sometimes writes a line to stdout directly."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def make_tables(path: Path, told: Callable[[str], None]) -> None:
    """Simulates the truth tables again, which takes minutes."""
    rows = {}
    for scenario in truth_tables.CLUSTER_SCENARIOS:
        rows[scenario.name] = np.stack(list(truth_tables.tabulate(scenario)))
        told(f"{scenario.name}: {len(rows[scenario.name])} points")
    with path.open("wb") as stream:
        truth_tables.write_tables(stream, rows)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuner.simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    parser.add_argument("--parts", default=None, help=f"comma-separated: {', '.join(PARTS)}; quick: the first")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--first-seed", type=int, default=None, help=f"default: {Plan().first_seed}")
    parser.add_argument("--requests", default=",".join(KINDS), help="kinds of requests, comma-separated")
    parser.add_argument("--jobs", type=int, default=None, help="number of jobs for each seed")
    parser.add_argument("--hosts", type=int, default=None)
    parser.add_argument("--hosts-mix", choices=tuple(HOST_MIXES), default=Plan().hosts_mix, help="kinds of hosts")
    parser.add_argument("--trace", type=Path, help="replay the arrivals, lengths and requests of this trace file")
    parser.add_argument(
        "--trace-fold-h", type=float, default=0.0, help="lay periods of this length over each other; 0: as it is"
    )
    parser.add_argument("--load", type=float, default=Plan().load)
    parser.add_argument(
        "--moving", choices=("same", "own"), default="same", help="own: stop and restart jobs as in the papers"
    )
    parser.add_argument("--sizes", default=None, help=f"numbers of jobs to time decisions with; default: {SIZES}")
    parser.add_argument("--parallel", type=int, default=1, help="number of processes; it does not change the figures")
    parser.add_argument("--quick", action="store_true", help="seconds instead of many minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--tabulate", action="store_true", help="only simulate the truth tables again")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the simulations and prints the results. Returns 2 for an unknown part or kind of requests, else 0."""
    chosen = _parsed(arguments)
    console = Console(stderr=True, width=None if sys.stdout.isatty() else WIDTH)

    def told(text: str) -> None:
        console.print(f"[dim]{text}[/]", soft_wrap=True)

    if chosen.tabulate:
        make_tables(Path(truth_tables.__file__).with_name(truth_tables.FILE), told)
        return 0
    asked_parts = ("policies" if chosen.quick else ",".join(PARTS)) if chosen.parts is None else chosen.parts
    parts = tuple(part for part in asked_parts.split(",") if part)
    if unknown := [part for part in parts if part not in PARTS]:
        print(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    kinds = tuple(kind for kind in KINDS if kind in chosen.requests.split(","))
    if unknown := [kind for kind in chosen.requests.split(",") if kind not in KINDS]:
        print(f"unknown requests {unknown[0]!r}: choose from {', '.join(KINDS)}", file=sys.stderr)
        return 2
    asked = {name: getattr(chosen, name) for name in (*QUICK, "first_seed") if getattr(chosen, name) is not None}
    plan = Plan(
        policies=tuple(chosen.policies.split(",")),
        load=chosen.load,
        moving=chosen.moving,
        hosts_mix=chosen.hosts_mix,
        trace=None if chosen.trace is None else TraceChoice(str(chosen.trace), 3600.0 * chosen.trace_fold_h),
        requests=kinds,
        **{**(QUICK if chosen.quick else {}), **asked},
    )
    usual = (QUICK_SIZES if chosen.quick else SIZES) if "sizes" in parts else ""
    sizes = [int(size) for size in (usual if chosen.sizes is None else chosen.sizes).split(",") if size]
    with only_results_on_stdout():
        results = run(plan, sizes, told, parts=parts, processes=chosen.parallel)
    show(results, Console(width=None if sys.stdout.isatty() else WIDTH))
    if chosen.json:
        write_json("simulated", results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
