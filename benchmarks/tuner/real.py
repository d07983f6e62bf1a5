"""How well models of speed predict configurations of real jobs, on the recorded grids.

    python -m benchmarks.tuner.real [--quick] [--json]

In every run a model sees SEEN random configurations of a case, each with all its blocks, and predicts the others, whose
true speed is the mean over all their blocks. What the blocks of a configuration differ by is printed beside it: the
truth is known no better. `elastichost` predicts as the tuner does, the model corrected by what was measured nearby;
`queues` is its model alone. Coverage: true speeds within the 90 % interval, the error of their own measurement added.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.measuring import print_table, write_json
from benchmarks.tuner.grid_data import GridCase, read_grids
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, as_array
from elastichost.tuner.kriging import surface
from elastichost.tuner.performance import NORMAL_90, fit
from elastichost.tuner.profile import merged

__all__ = ["Accuracy", "Figures", "main", "measure"]

MODELS = ("elastichost", "queues", "dlrover_rm", "optimus", "pollux")
SEEN = 10
SEEDS, QUICK_SEEDS = 40, 8


class Accuracy(msgspec.Struct, frozen=True):
    """Of one model: mean |predicted / true - 1| over the held-out configurations; median and P90 over runs with a 95 %
    bootstrap interval of the median. coverage: share of true speeds in the 90 % interval."""

    median: float
    low: float
    high: float
    p90: float
    coverage: float


class Figures(msgspec.Struct, frozen=True):
    """by_case: case -> model. repeatability: mean difference of single blocks from their configuration's mean."""

    models: dict[str, Accuracy]
    by_case: dict[str, dict[str, Accuracy]]
    repeatability: dict[str, float]
    grids: tuple[str, ...]


class _Run(msgspec.Struct, frozen=True):
    case: str
    model: str
    mape: float
    covered: float


def measure(cases: Sequence[GridCase], seeds: int, grids: tuple[str, ...] = ()) -> Figures:
    """Every model on every case, `seeds` times. Raises ValueError for cases with no more than SEEN configurations."""
    runs = [run for case in cases for run in _runs(case, seeds)]
    return Figures(
        models={model: _accuracy([run for run in runs if run.model == model]) for model in MODELS},
        by_case={
            case.name: {
                model: _accuracy([run for run in runs if (run.case, run.model) == (case.name, model)])
                for model in MODELS
            }
            for case in cases
        },
        repeatability={case.name: _repeatability(case) for case in cases},
        grids=grids,
    )


def _blocks(case: GridCase) -> dict[Configuration, list[Observation]]:
    found: dict[Configuration, list[Observation]] = {}
    for block in case.blocks:
        found.setdefault(block.configuration, []).append(block)
    return found


def _mean(blocks: Sequence[Observation]) -> float:
    return float(np.exp(np.mean([np.log(block.samples_per_s) for block in blocks])))


def merge(blocks: Sequence[Observation]) -> Observation:
    """One observation of several blocks of one configuration."""
    return functools.reduce(merged, blocks)


def _repeatability(case: GridCase) -> float:
    apart = [abs(block.samples_per_s / _mean(blocks) - 1) for blocks in _blocks(case).values() for block in blocks]
    return float(np.mean(apart))


def _runs(case: GridCase, seeds: int) -> Iterator[_Run]:
    blocks = _blocks(case)
    configurations = sorted(blocks)
    if len(configurations) <= SEEN:
        raise ValueError(f"{case.name} has {len(configurations)} configurations: more than {SEEN} are needed")
    true = np.array([_mean(blocks[one]) for one in configurations])
    true_error = np.array([merge(blocks[one]).log_error for one in configurations])
    array = as_array(configurations)
    for seed in range(seeds):
        random = np.random.default_rng([seed, len(configurations)])
        seen = random.permutation(len(configurations))[:SEEN]
        held = np.setdiff1d(np.arange(len(configurations)), seen)
        observations = tuple(merge(blocks[configurations[at]]) for at in seen)
        for model in MODELS:
            found = _predicted(model, case, observations, array[held])
            error = float(np.mean(np.abs(found.samples_per_s / true[held] - 1)))
            reach = np.hypot(found.log_error, true_error[held]) * NORMAL_90
            covered = float(np.mean(np.abs(np.log(found.samples_per_s / true[held])) <= reach))
            yield _Run(case.name, model, error, covered)


def _predicted(
    model: str, case: GridCase, observations: tuple[Observation, ...], array: ConfigurationArray
) -> Predictions:
    if model == "elastichost":
        return surface(fit(model, case.workload, observations), observations, None).at(array)
    return fit("elastichost" if model == "queues" else model, case.workload, observations).predict(array)


def _accuracy(runs: Sequence[_Run]) -> Accuracy:
    errors = np.array([run.mape for run in runs])
    draws = np.random.default_rng(0).integers(len(errors), size=(2000, len(errors)))
    medians = np.median(errors[draws], axis=1)
    return Accuracy(
        median=float(np.median(errors)),
        low=float(np.quantile(medians, 0.025)),
        high=float(np.quantile(medians, 0.975)),
        p90=float(np.quantile(errors, 0.9)),
        coverage=float(np.mean([run.covered for run in runs])),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    grids = read_grids()
    if not grids:
        print(f"no grid was recorded in {Path(__file__).parent / 'data'}", file=sys.stderr)
        return 3
    cases = [case for _, grid in grids for case in grid.cases]
    found = measure(cases, QUICK_SEEDS if options.quick else SEEDS, tuple(name for name, _ in grids))
    show(found)
    if options.json:
        write_json("real", found)
    return 0


def show(found: Figures) -> None:
    """On stdout."""
    rows = [(f"all ({', '.join(found.grids)})", *(_words(found.models[model]) for model in MODELS), "")]
    for case, models in found.by_case.items():
        rows.append((case, *(_words(models[model]) for model in MODELS), f"{found.repeatability[case]:.1%}"))
    print(f"Held-out error after {SEEN} configurations: median (P90), coverage of the 90 % interval\n")
    print_table(("case", *MODELS, "blocks differ"), rows)


def _words(accuracy: Accuracy) -> str:
    return f"{accuracy.median:.1%} ({accuracy.p90:.1%}), {accuracy.coverage:.0%}"


if __name__ == "__main__":
    raise SystemExit(main())
