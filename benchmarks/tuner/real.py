"""Accuracy of speed models for configurations of real jobs that were not measured, on recorded grids.

    python -m benchmarks.tuner.real [--quick] [--json]

In every run a model gets some random configurations of a case, each with all its blocks, and predicts the others. The
true speed of a configuration is the mean over all its blocks; the difference between its blocks is printed too, because
it limits the accuracy of that truth. `elastichost` predicts as the tuner does: its queueing model, corrected by
measurements of similar configurations. `queues` is the model without correction, and the rivals have none either; with
`+` they are corrected too. `table` has no model: it predicts the mean of the measured configurations with the same
workers and threads. Coverage: share of true speeds within the 90 % interval, widened by the standard error of the true
speed, which follows from the differences between its blocks. `benchmarks.tuner.coverage` has the coverage by job.
Intervals are bootstraps over cases, because the runs of a case share their blocks.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.output import print_table, write_json
from benchmarks.tuner.recorded_grid import GridCase, read_grids
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, as_array
from elastichost.tuner.models.base import NORMAL_90, interval
from elastichost.tuner.models.registry import fit
from elastichost.tuner.models.residual_gp import surface
from elastichost.tuner.policy.profile import merged

__all__ = ["ARMS", "MOST", "Accuracy", "Figures", "Truth", "main", "measure", "merge", "show", "truth_of"]

# arm -> model, and whether it is corrected by measurements of similar configurations
ARMS: dict[str, tuple[str, bool]] = {
    "elastichost": ("elastichost", True),
    "queues": ("elastichost", False),
    "dlrover_rm": ("dlrover_rm", False),
    "optimus": ("optimus", False),
    "pollux": ("pollux", False),
    "dlrover_rm+": ("dlrover_rm", True),
    "optimus+": ("optimus", True),
    "pollux+": ("pollux", True),
    "table": ("", False),
}
SEEN = (3, 5, 10)
MOST = SEEN[-1]
SEEDS, QUICK_SEEDS = 40, 8
RESAMPLES = 2000


class Accuracy(msgspec.Struct, frozen=True):
    """The accuracy of one arm: mean |predicted / true - 1| over the held-out configurations; its median and P90 over
    runs, with a 95 % bootstrap interval of the median. coverage: share of true speeds in the 90 % interval."""

    median: float
    low: float
    high: float
    p90: float
    coverage: float


class Figures(msgspec.Struct, frozen=True):
    """All figures. models: arm -> accuracy after MOST configurations. by_case: case -> arm. by_seen: number of measured
    configurations -> arm. repeatability: mean difference between single blocks and the mean of their configuration."""

    models: dict[str, Accuracy]
    by_case: dict[str, dict[str, Accuracy]]
    by_seen: dict[str, dict[str, Accuracy]]
    repeatability: dict[str, float]
    grids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """The n configurations of a case: their merged observations, their true speeds in samples/s, float64 [n], and the
    standard error of the logarithms of the true speeds, the same for all."""

    configurations: tuple[Configuration, ...]
    observations: tuple[Observation, ...]
    samples_per_s: npt.NDArray[np.float64]
    log_error: float


class _Run(msgspec.Struct, frozen=True):
    case: str
    seen: int
    arm: str
    mape: float
    covered: float


def measure(cases: Sequence[GridCase], seeds: int, grids: tuple[str, ...] = (), seen: Sequence[int] = SEEN) -> Figures:
    """Measures every arm on every case, `seeds` times. Raises ValueError for a case with too few configurations."""
    runs = [run for number, case in enumerate(cases) for many in seen for run in _runs(case, number, many, seeds)]
    of = {many: [run for run in runs if run.seen == many] for many in seen}
    return Figures(
        models=_by_arm(of[seen[-1]]),
        by_case={case.name: _by_arm([run for run in of[seen[-1]] if run.case == case.name]) for case in cases},
        by_seen={str(many): _by_arm(ones) for many, ones in of.items()},
        repeatability={case.name: _repeatability(case) for case in cases},
        grids=grids,
    )


def _by_arm(runs: Sequence[_Run]) -> dict[str, Accuracy]:
    return {arm: _accuracy([run for run in runs if run.arm == arm]) for arm in ARMS}


def _blocks(case: GridCase) -> dict[Configuration, list[Observation]]:
    found: dict[Configuration, list[Observation]] = {}
    for block in case.blocks:
        found.setdefault(block.configuration, []).append(block)
    return found


def _mean(blocks: Sequence[Observation]) -> float:
    return float(np.exp(np.mean([np.log(block.samples_per_s) for block in blocks])))


def merge(blocks: Sequence[Observation]) -> Observation:
    """Merges several blocks of one configuration into one observation."""
    return functools.reduce(merged, blocks)


def _repeatability(case: GridCase) -> float:
    apart = [abs(block.samples_per_s / _mean(blocks) - 1) for blocks in _blocks(case).values() for block in blocks]
    return float(np.mean(apart))


def truth_of(case: GridCase) -> Truth:
    """The true speeds of all configurations of a case."""
    blocks = _blocks(case)
    configurations = sorted(blocks)
    logs = [np.log([block.samples_per_s for block in blocks[one]]) for one in configurations]
    variances = [one.var(ddof=1) / len(one) for one in logs if len(one) > 1]
    return Truth(
        tuple(configurations),
        tuple(merge(blocks[one]) for one in configurations),
        np.array([np.exp(one.mean()) for one in logs]),
        float(np.sqrt(np.mean(variances))) if variances else 0.0,
    )


def _runs(case: GridCase, number: int, many: int, seeds: int) -> Iterator[_Run]:
    truth = truth_of(case)
    configurations, true = truth.configurations, truth.samples_per_s
    if len(configurations) <= many:
        raise ValueError(f"{case.name} has {len(configurations)} configurations: more than {many} are needed")
    array = as_array(configurations)
    for seed in range(seeds):
        random = np.random.default_rng([seed, number])
        seen = random.permutation(len(configurations))[:many]
        held = np.setdiff1d(np.arange(len(configurations)), seen)
        observations = tuple(truth.observations[at] for at in seen)
        for arm in ARMS:
            found = _predicted(arm, case, observations, array[held])
            error = float(np.mean(np.abs(found.samples_per_s / true[held] - 1)))
            reach = np.hypot(found.log_error, truth.log_error) * NORMAL_90
            covered = float(np.mean(np.abs(np.log(found.samples_per_s / true[held])) <= reach))
            yield _Run(case.name, many, arm, error, covered)


def _predicted(
    arm: str, case: GridCase, observations: tuple[Observation, ...], array: ConfigurationArray
) -> Predictions:
    model, is_corrected = ARMS[arm]
    if not model:
        return _table(observations, array)
    fitted = fit(model, case.workload, observations)
    return surface(fitted, observations, None).at(array) if is_corrected else fitted.predict(array)


def _table(observations: tuple[Observation, ...], array: ConfigurationArray) -> Predictions:
    """Predicts the mean log speed of the observations with the same workers and threads, or of all observations if
    there are none. The error is the spread of these observations."""
    seen, logs = (
        as_array([one.configuration for one in observations]),
        np.log([one.samples_per_s for one in observations]),
    )
    alike = np.all(array[:, None, [0, 2]] == seen[None, :, [0, 2]], axis=2)
    alike |= ~alike.any(axis=1)[:, None]
    mean = (alike * logs).sum(axis=1) / alike.sum(axis=1)
    spread = np.sqrt((alike * (logs - mean[:, None]) ** 2).sum(axis=1) / alike.sum(axis=1))
    return interval(mean, np.maximum(spread, np.std(logs) / len(logs)), np.zeros(len(array), dtype=np.bool_))


def _accuracy(runs: Sequence[_Run]) -> Accuracy:
    by_case: dict[str, list[float]] = {}
    for run in runs:
        by_case.setdefault(run.case, []).append(run.mape)
    groups, random = list(by_case.values()), np.random.default_rng(0)
    medians = [
        np.median(np.concatenate([groups[pick] for pick in random.integers(len(groups), size=len(groups))]))
        for _ in range(RESAMPLES)
    ]
    errors = np.concatenate(groups)
    return Accuracy(
        median=float(np.median(errors)),
        low=float(np.quantile(medians, 0.025)),
        high=float(np.quantile(medians, 0.975)),
        p90=float(np.quantile(errors, 0.9)),
        coverage=float(np.mean([run.covered for run in runs])),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 3 if the repository has no recorded grid, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    grids = read_grids()
    if not grids:
        print(
            f"there is no recorded grid in {Path(__file__).parent / 'data'}: record one with "
            "`python -m benchmarks.tuner.grid_record FILE`",
            file=sys.stderr,
        )
        return 3
    cases = [case for _, grid in grids for case in grid.cases]
    found = measure(cases, QUICK_SEEDS if options.quick else SEEDS, tuple(name for name, _ in grids))
    show(found)
    if options.json:
        write_json("real", found)
    return 0


def show(found: Figures) -> None:
    """Prints the figures on stdout."""
    alone = [arm for arm in ARMS if not arm.endswith("+")]
    rows = [(f"all ({', '.join(found.grids)})", *(_words(found.models[arm]) for arm in alone), "")]
    for case, models in found.by_case.items():
        rows.append((case, *(_words(models[arm]) for arm in alone), f"{found.repeatability[case]:.1%}"))
    print(f"Held-out error after {MOST} configurations: median (P90), coverage of the 90 % interval\n")
    print_table(("case", *alone, "blocks differ"), rows)
    print("\nBy number of measured configurations, all cases; +: corrected by similar measurements as in the tuner\n")
    print_table(
        ("seen", *ARMS), [(many, *(_words(models[arm]) for arm in ARMS)) for many, models in found.by_seen.items()]
    )


def _words(accuracy: Accuracy) -> str:
    return f"{accuracy.median:.1%} ({accuracy.p90:.1%}), {accuracy.coverage:.0%}"


if __name__ == "__main__":
    raise SystemExit(main())
