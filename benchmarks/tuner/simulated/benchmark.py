"""Policies compared on thousands of simulated jobs: completion times, memory, utilisation, what goes wrong.

`python -m benchmarks.tuner.simulated [--quick] [--json] [--parallel 2]`. All policies get the same jobs, hosts, noise
and failures (paired seeds). Jobs come so densely that the well-tuned manual policy has about `--load` of all cores from
the first arrival to the last; how many each policy had is printed. The oracle is the best of several that know the
truth, chosen for each seed with hindsight. Confidence intervals are 95 % bootstraps over seeds.

Parts: policies (always), ablations (ours with a part left out), hot (jobs that get a hot PS), stragglers (ten times as
many), start (first plans, where there is room), sizes (CPU time of decisions, by number of jobs).
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
from benchmarks.tuner.simulated.plan import Plan, loaded_jobs
from benchmarks.tuner.simulated.results import PARTS, Results, run
from benchmarks.tuner.simulated.tables import WIDTH, show

__all__ = ["WIDTH", "Plan", "Results", "loaded_jobs", "main", "only_results_on_stdout", "run", "show"]

QUICK = {"seeds": 2, "jobs": 9, "hosts": 3}
SIZES, QUICK_SIZES = "8,100,4000", "8"


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """HiGHS prints a line of its own now and then, past Python: meanwhile what is written to stdout goes to stderr."""
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
    """Simulates the truth tables anew: minutes."""
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
    parser.add_argument("--jobs", type=int, default=None, help="of each seed")
    parser.add_argument("--hosts", type=int, default=None)
    parser.add_argument("--load", type=float, default=Plan().load)
    parser.add_argument(
        "--moving", choices=("same", "own"), default="same", help="own: stop and restart as in the papers"
    )
    parser.add_argument("--sizes", default=None, help=f"time decisions with so many jobs; usually {SIZES}")
    parser.add_argument("--parallel", type=int, default=1, help="processes; the figures are the same")
    parser.add_argument("--quick", action="store_true", help="seconds instead of many minutes")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--tabulate", action="store_true", help="simulate the truth tables anew, and do nothing else")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
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
        print(f"no part {unknown[0]!r}: choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    asked = {name: getattr(chosen, name) for name in QUICK if getattr(chosen, name) is not None}
    plan = Plan(
        policies=tuple(chosen.policies.split(",")),
        load=chosen.load,
        moving=chosen.moving,
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
