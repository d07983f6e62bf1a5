"""All benchmarks of the tuner that do not need a quiet machine; `--quick` runs the most important ones in minutes.

    python -m elastichost bench tuner --quick --json     some minutes; the last line is one JSON object
    python -m elastichost bench tuner                    all parts: an hour

Parts: real (accuracy on recorded grids), coverage (of intervals on unseen jobs), simulated (policies on a cluster),
search (configurations until the best), memory (prediction of running out of memory), accuracy (models on simulated
queues), emulated (real processes, synthetic costs). Live runs compared with static plans (`benchmarks.tuner.live`) and
recording a grid (`benchmarks.tuner.grid_record`) need a quiet machine and are separate commands.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence

import msgspec
from rich.console import Console

from benchmarks.simulator.policy_registry import POLICIES
from benchmarks.tuner import real
from benchmarks.tuner.recorded_grid import read_grids
from benchmarks.tuner.shared_policy import is_policy_shared
from benchmarks.tuner.simulated import benchmark as simulated
from benchmarks.tuner.simulated.columns import best_of
from benchmarks.tuner.simulated.conditions.seeds import QUICK_SEED
from benchmarks.tuner.simulated.plan import PAPER_RIVALS

__all__ = ["Headline", "headline", "main"]

MODELS = ("elastichost", "dlrover_rm", "optimus")
QUICK_PLAN = simulated.Plan(
    policies=tuple(name for name in POLICIES if name != "dlrover_brain"),  # by far the slowest for its jobs
    seeds=3,
    jobs=12,
    hosts=4,
    requests=("random", "sensible"),
    first_seed=QUICK_SEED,
)
QUICK_PROCESSES = 2
PARTS = {
    "real": "benchmarks.tuner.real",
    "coverage": "benchmarks.tuner.coverage",
    "simulated": "benchmarks.tuner.simulated.benchmark",
    "search": "benchmarks.tuner.search.benchmark",
    "memory": "benchmarks.tuner.memory.benchmark",
    "accuracy": "benchmarks.tuner.accuracy",
    "emulated": "benchmarks.tuner.emulated.benchmark",
}
OURS, KNOWING, USUAL = "elastichost", "oracle", "static"


class Headline(msgspec.Struct, frozen=True):
    """The main figures. mape_heldout: median over runs on recorded grids. jct_*, p95_*: mean and P95 completion times,
    paired by seed.

    With requests drawn at random: jct_over_best_baseline, over the best of the DLRover-RM paper's rivals (static,
    elastic scheduler, Optimus), and completion_points_over_static, the difference in percent of all jobs. All others
    with sensible requests: jct_over_best_of_all_sensible, over the best of all rivals, tuned static among them;
    p95_over_tuned, over tuned static; gains, (used / allocated of ours) / (used / allocated of the best rival) - 1;
    changes_per_job, of our policy. policy_shared: the simulator calls what live runs call."""

    mape_heldout: dict[str, float]
    jct_over_best_baseline: float
    jct_over_best_of_all_sensible: float
    p95_over_tuned: float
    jct_over_oracle: float
    completion_points_over_static: float
    cpu_utilisation_gain: float
    memory_utilisation_gain: float
    decision_p99_ms: float
    sim_events_per_s: float
    changes_per_job: float
    policy_shared: bool


def headline(accuracy: real.Figures | None, results: simulated.Results) -> Headline:
    """The main figures. accuracy: None without a recorded grid."""
    drawn, sensible = results.columns["random"], results.columns["sensible"]
    ours, rival = sensible.spreads[OURS], sensible.spreads[sensible.best_rival]
    done, usual = drawn.spreads[OURS]["completed"], drawn.spreads[USUAL]["completed"]
    return Headline(
        mape_heldout={name: accuracy.models[name].median for name in MODELS} if accuracy is not None else {},
        jct_over_best_baseline=drawn.ratios[OURS][best_of(drawn.figures, PAPER_RIVALS)].mean,
        jct_over_best_of_all_sensible=sensible.ratios[OURS][sensible.best_rival].mean,
        p95_over_tuned=sensible.tail_ratios[OURS]["tuned"].mean,
        jct_over_oracle=sensible.ratios[OURS][KNOWING].mean,
        completion_points_over_static=100 * (done.mean - usual.mean),
        cpu_utilisation_gain=ours["cpu_used"].mean / rival["cpu_used"].mean - 1,
        memory_utilisation_gain=ours["memory_used"].mean / rival["memory_used"].mean - 1,
        decision_p99_ms=1e3 * ours["decision_p99_s"].mean,
        # of the policy with the cheapest decisions, so that the figure is the speed of the simulator itself
        sim_events_per_s=max(spread["events_per_s"].mean for spread in sensible.spreads.values()),
        changes_per_job=ours["changes"].mean,
        policy_shared=is_policy_shared(),
    )


def _quick(console: Console) -> Headline:
    began_s = time.perf_counter()
    cases = [case for _, grid in read_grids() for case in grid.cases]
    accuracy = (
        real.measure(cases, real.QUICK_SEEDS, tuple(name for name, _ in read_grids()), (real.MOST,)) if cases else None
    )
    if accuracy is not None:
        real.show(accuracy)
    with simulated.only_results_on_stdout():
        results = simulated.run(
            QUICK_PLAN, (), lambda text: console.print(f"[dim]{text}[/]"), processes=QUICK_PROCESSES
        )
    simulated.show(results, Console(width=simulated.WIDTH))
    console.print(f"[dim]{time.perf_counter() - began_s:.0f} s[/]")
    return headline(accuracy, results)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen parts. Returns the largest of their exit codes; 2 for an unknown part."""
    parser = argparse.ArgumentParser(
        prog="elastichost bench tuner", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="accuracy on the recorded grids, and a small cluster")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", default="", help=f"comma-separated parts: {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    if options.quick and not options.only:
        found = _quick(Console(stderr=True))
        if options.json:
            print(json.dumps(msgspec.to_builtins(found)))
        return 0
    chosen = options.only.split(",") if options.only else list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        print(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    more = [flag for flag in ("--quick", "--json") if getattr(options, flag[2:])]
    worst = 0
    for name in chosen:
        print(f"\n=== {name}\n", flush=True)
        worst = max(worst, importlib.import_module(PARTS[name]).main(more) or 0)
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
