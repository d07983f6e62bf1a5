"""How well models of speed predict configurations that were never tried, against a simulator that knows the truth.

    python -m benchmarks.tuner.accuracy           all scenarios, 12 seeds: about a minute
    python -m benchmarks.tuner.accuracy --quick   all scenarios, 3 seeds, a quarter of the configurations: 10 s

In every run a model sees 10 configurations of a scenario, 5 spread over the space and 5 random ones, and predicts all
others of some 768. Speeds and the processes' own timings carry 5 % log-normal noise. The truth comes out of fork-join
queues (`elastichost.simulator.micro`), which share no formula with any model.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.measuring import write_json
from elastichost.simulator.micro import simulate, throughputs
from elastichost.simulator.scenarios import SCENARIOS, Scenario, grid
from elastichost.tuner import performance, queueing
from elastichost.tuner.candidates import maximin
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Workload, as_array
from elastichost.tuner.performance import Fit, Prior
from elastichost.tuner.queueing import QueueingSettings

__all__ = ["CASES", "Case", "Figures", "Options", "Summary", "main", "measure", "reaches"]

NOISE = 0.05  # of speeds, and of what processes time: standard deviation of the logarithm
TIMINGS = ("compute_s", "reader_s", "exchange_s", "server_cpu_s", "worker_cpu_s")
SEEN = 10
BLOCK = 600  # iterations that an observation is made of
AIMS = {"mape_median": 0.08, "mape_p90": 0.12, "coverage_low": 0.85, "coverage_high": 0.95}


@dataclass(frozen=True, slots=True)
class Case:
    """One way to predict. seen: observations it gets; history: its prior is fitted to another job of the same kind."""

    name: str
    model: str = "elastichost"
    settings: QueueingSettings | None = None
    seen: int = SEEN
    history: bool = False


CASES = (
    Case("elastichost"),
    Case("dlrover_rm", "dlrover_rm"),
    Case("optimus", "optimus"),
    Case("pollux", "pollux"),
    Case("- direct timings", settings=QueueingSettings(direct_timings=False)),
    Case("- priors", settings=QueueingSettings(priors=False)),
    Case("- hot share", settings=QueueingSettings(hot_share=False)),
    Case("- maxima (sum)", settings=QueueingSettings(sharpness=1.0)),
    Case("3 seen", seen=3),
    Case("3 seen, history", seen=3, history=True),
    Case("1 seen, history", seen=1, history=True),
)


@dataclass(frozen=True, slots=True)
class Options:
    """keep_every: of a scenario's configurations; iterations: that a true speed is made of."""

    seeds: int = 12
    keep_every: int = 1
    iterations: int = 2000
    scenarios: tuple[Scenario, ...] = SCENARIOS


@dataclass(frozen=True, slots=True)
class Run:
    """mape: mean of |predicted / true - 1|; coverage: share of true speeds in the 90 % interval."""

    scenario: str
    case: str
    mape: float
    coverage: float
    extrapolated: float
    fit_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Over the runs of a case; coverage and extrapolated are means."""

    mape_median: float
    mape_p90: float
    coverage: float
    extrapolated: float


@dataclass(frozen=True, slots=True)
class Figures:
    """cases: over all runs; by_scenario: scenario -> case. *_ms: CPU time of the
    `elastichost` model, which uses one thread."""

    runs: int
    configurations: int
    cases: dict[str, Summary]
    by_scenario: dict[str, dict[str, Summary]]
    fit_ms_median: float
    fit_ms_p99: float
    predict_131072_ms: float
    took_s: float


# --- runs -------------------------------------------------------------------------------------------------------------


def _noisy(observation: Observation, generator: np.random.Generator) -> Observation:
    """As a real run would show it: noise of speed and timings, the former known to whom it is told."""
    timings = {name: getattr(observation, name) for name in TIMINGS}
    changed = {
        name: value * float(np.exp(NOISE * generator.standard_normal()))
        for name, value in timings.items()
        if value is not None
    }
    speed = observation.samples_per_s * float(np.exp(NOISE * generator.standard_normal()))
    return msgspec.structs.replace(observation, samples_per_s=speed, log_error=NOISE, **changed)


def _tried(candidates: ConfigurationArray, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices of SEEN: a random first, others far from all before, then random ones; mixed, so that the first few are
    of both kinds."""
    first = int(generator.integers(len(candidates)))
    spread = [first, *maximin(candidates, candidates[[first]], SEEN // 2 - 1)]
    others = np.setdiff1d(np.arange(len(candidates)), spread)
    chosen = np.concatenate([spread, generator.choice(others, SEEN - len(spread), replace=False)])
    generator.shuffle(chosen)
    return chosen.astype(np.int64)


def _observe(
    scenario: Scenario, configurations: Sequence[Configuration], generator: np.random.Generator
) -> list[Observation]:
    seeds = generator.integers(1 << 31, size=len(configurations))
    return [
        _noisy(simulate(scenario, one, max(20, BLOCK // one.workers), int(seed)), generator)
        for one, seed in zip(configurations, seeds, strict=True)
    ]


def _fitted(case: Case, workload: Workload, seen: Sequence[Observation], prior: Prior) -> Fit:
    known = prior if case.history else None
    if case.model == "elastichost":
        return queueing.fit(workload, seen[: case.seen], known, case.settings)
    return performance.fit(case.model, workload, seen[: case.seen])


def runs_of(scenario: Scenario, options: Options, cases: Sequence[Case] = CASES) -> Iterable[Run]:
    """Every case on every seed; all cases of a seed see the same observations, and predict the same configurations."""
    configurations = grid(scenario)[:: options.keep_every]
    candidates = as_array(configurations)
    truth = throughputs(scenario, configurations, options.iterations, seed=0)
    workload = scenario.workload
    for seed in range(options.seeds):
        generator = np.random.default_rng((seed, len(candidates)))
        tried, before = _tried(candidates, generator), _tried(candidates, generator)
        seen = _observe(scenario, [configurations[index] for index in tried], generator)
        earlier = _observe(scenario, [configurations[index] for index in before], generator)
        prior = performance.fit("elastichost", workload, earlier).posterior()
        held_out = np.setdiff1d(np.arange(len(candidates)), tried)
        for case in cases:
            began = time.thread_time()
            fitted = _fitted(case, workload, seen, prior)
            fit_ms = 1e3 * (time.thread_time() - began)
            found = fitted.predict(candidates[held_out])
            true = truth[held_out]
            yield Run(
                scenario=scenario.name,
                case=case.name,
                mape=float(np.mean(np.abs(found.samples_per_s / true - 1.0))),
                coverage=float(np.mean((found.low <= true) & (true <= found.high))),
                extrapolated=float(found.is_extrapolated.mean()),
                fit_ms=fit_ms,
            )


def _summary(runs: Sequence[Run]) -> Summary:
    mapes = [run.mape for run in runs]
    return Summary(
        mape_median=float(np.median(mapes)),
        mape_p90=float(np.quantile(mapes, 0.9)),
        coverage=float(np.mean([run.coverage for run in runs])),
        extrapolated=float(np.mean([run.extrapolated for run in runs])),
    )


def _predict_ms(scenario: Scenario) -> float:
    """Median of five predictions of 131,072 configurations, after a fit to ten."""
    candidates = np.array(list(product(range(1, 33), *[range(1, 17)] * 3)), dtype=np.float64)
    generator = np.random.default_rng(0)
    configurations = grid(scenario)
    tried = _tried(as_array(configurations), generator)
    fitted = queueing.fit(scenario.workload, _observe(scenario, [configurations[i] for i in tried], generator))
    took_ms = []
    for _ in range(5):
        began = time.thread_time()
        fitted.predict(candidates)
        took_ms.append(1e3 * (time.thread_time() - began))
    return float(np.median(took_ms))


def measure(options: Options) -> Figures:
    """All scenarios and cases."""
    began = time.perf_counter()
    # compiles, or loads what was compiled: no part of any figure but took_s
    simulate(SCENARIOS[0], Configuration(1, 1), 20, 0)
    runs: list[Run] = []
    for scenario in options.scenarios:
        runs.extend(runs_of(scenario, options))
    names = [case.name for case in CASES]
    fits_ms = [run.fit_ms for run in runs if run.case == "elastichost"]
    return Figures(
        runs=len(runs) // len(CASES),
        configurations=sum(len(grid(one)[:: options.keep_every]) for one in options.scenarios),
        cases={name: _summary([run for run in runs if run.case == name]) for name in names},
        by_scenario={
            one.name: {name: _summary([r for r in runs if (r.scenario, r.case) == (one.name, name)]) for name in names}
            for one in options.scenarios
        },
        fit_ms_median=float(np.median(fits_ms)),
        fit_ms_p99=float(np.quantile(fits_ms, 0.99)),
        predict_131072_ms=_predict_ms(options.scenarios[0]),
        took_s=time.perf_counter() - began,
    )


# --- output -----------------------------------------------------------------------------------------------------------


def _lines(figures: Figures) -> Iterable[str]:
    yield f"held-out error after {SEEN} configurations of each job (fewer where said), {figures.runs} runs"
    yield f"{'':<18}{'median':>8}{'P90':>8}{'in 90 % interval':>18}{'extrapolated':>14}"
    for name, one in figures.cases.items():
        yield f"{name:<18}{one.mape_median:>8.1%}{one.mape_p90:>8.1%}{one.coverage:>18.1%}{one.extrapolated:>14.1%}"
    models = [case.name for case in CASES[:4]]
    yield ""
    yield f"{'median error':<20}" + "".join(f"{name:>13}" for name in models) + f"{'interval':>11}"
    for name, cases in figures.by_scenario.items():
        errors = "".join(f"{cases[model].mape_median:>13.1%}" for model in models)
        yield f"{name:<20}{errors}{cases[models[0]].coverage:>11.1%}"
    yield ""
    yield (
        f"CPU time of a fit {figures.fit_ms_median:.1f} ms (p99 {figures.fit_ms_p99:.1f} ms), "
        f"of 131,072 predictions {figures.predict_131072_ms:.0f} ms; all of it took {figures.took_s:.1f} s"
    )


def reaches(figures: Figures) -> bool:
    own = figures.cases["elastichost"]
    is_accurate = own.mape_median <= AIMS["mape_median"] and own.mape_p90 <= AIMS["mape_p90"]
    return is_accurate and AIMS["coverage_low"] <= own.coverage <= AIMS["coverage_high"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuner.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="3 seeds, a quarter of the configurations")
    parser.add_argument("--json", action="store_true", help="one JSON object to stdout")
    chosen = parser.parse_args(arguments)
    figures = measure(Options(seeds=3, keep_every=4, iterations=1000) if chosen.quick else Options())
    print("\n".join(_lines(figures)))
    if chosen.json:
        write_json("accuracy", {**asdict(figures), "aims": AIMS})
    return 0 if reaches(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
