"""Accuracy of speed models for configurations that were not measured, on simulated queues with known speeds.

    python -m benchmarks.tuner.accuracy           all scenarios, 12 seeds: about a minute
    python -m benchmarks.tuner.accuracy --quick   all scenarios, 3 seeds, a quarter of the configurations: 10 s

In every run a model gets the speeds of 10 configurations of a scenario, 5 spread over the space and 5 random ones, and
predicts all others (about 768). Speeds and the processes' own timings have 5 % log-normal noise. The true speeds come
from simulated fork-join queues (`benchmarks.simulator.queueing.fork_join`), not from the formula of any model. But the
queues consist of the same parts as elastichost's model (computing with a serial part, PS as queues, wires, overlapping
requests), and provide the timings that this model needs. The scenarios therefore favour it, and the rivals' weaknesses
look larger here than elsewhere. `benchmarks.tuner.real` tests the same models on real runs.

The models of Optimus and Pollux have no cores, and Pollux has no PS; where these vary, their errors do not contradict
their papers. "cores fixed" tests all models with only workers and PS varying. "like jobs": the prior comes from
`warm_start` with 3 jobs of the same kind with costs that differ by a factor (log-normal, sd 0.25). "ran before": the
prior comes from one earlier run of the same job with other noise, as for a job that runs every day.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.aims import Verdict, at_least, at_most, bounds_of, is_any_missed
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import print_verdicts
from benchmarks.simulator.queueing.configuration_grid import grid
from benchmarks.simulator.queueing.fork_join import simulate, throughputs
from elastichost.emulation.scenarios import SCENARIOS, Scenario
from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Workload, as_array
from elastichost.tuner.models import queueing, registry
from elastichost.tuner.models.base import Fit, Prior
from elastichost.tuner.models.queueing import QueueingSettings
from elastichost.tuner.policy.candidates import Bounds, maximin
from elastichost.tuner.warm_start import WarmStart, warm_start

__all__ = ["CASES", "LIKE_JOBS", "Case", "Figures", "Options", "Summary", "main", "measure", "reaches", "verdicts_of"]

NOISE = 0.05  # standard deviation of the logarithm of speeds and of the processes' timings
TIMINGS = ("compute_s", "reader_s", "exchange_s", "server_cpu_s", "worker_cpu_s")
SEEN = 10
BLOCK = 600  # iterations in one observation
AIMS = (
    at_most(0.08, "mape_median", ".1%"),
    at_most(0.12, "mape_p90", ".1%"),
    at_least(0.85, "coverage_low", ".1%"),
    at_most(0.95, "coverage_high", ".1%"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to predict. seen: number of observations. history: the source of its prior, "" for none. cores_fixed:
    only workers and PS vary."""

    name: str
    model: str = "elastichost"
    settings: QueueingSettings | None = None
    seen: int = SEEN
    history: str = ""
    cores_fixed: bool = False


LIKE, ITSELF = "like jobs", "ran before"
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
    Case("3 seen, like jobs", seen=3, history=LIKE),
    Case("1 seen, like jobs", seen=1, history=LIKE),
    Case("3 seen, ran before", seen=3, history=ITSELF),
    Case("1 seen, ran before", seen=1, history=ITSELF),
    Case("elastichost, cores fixed", cores_fixed=True),
    Case("dlrover_rm, cores fixed", "dlrover_rm", cores_fixed=True),
    Case("optimus, cores fixed", "optimus", cores_fixed=True),
    Case("pollux, cores fixed", "pollux", cores_fixed=True),
)
FIXED_CORES = ((4, 4), (1, 1))  # cores of a worker and of a PS; the first pair that the scenario's space has is used
LIKE_JOBS, LIKE_SPREAD = 3, 0.25  # number of earlier jobs, and the standard deviation of the logarithms of their costs
COSTS = {  # costs that get independent factors
    "compute": ("serial_s", "sample_s"),
    "read": ("reader_sample_s",),
    "serve": ("pull_sample_s", "push_sample_s", "request_s"),
    "dense": ("dense_s",),
    "latency": ("latency_s",),
}
ANY = Bounds(Configuration(1, 1, 1, 1), Configuration(32, 16, 8, 8), share_cores=False)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the benchmark. keep_every: uses every n-th configuration of a scenario. iterations: simulated for a
    true speed."""

    seeds: int = 12
    keep_every: int = 1
    iterations: int = 2000
    scenarios: tuple[Scenario, ...] = SCENARIOS


@dataclass(frozen=True, slots=True)
class Run:
    """One run. mape: mean of |predicted / true - 1|. coverage: share of true speeds in the 90 % interval."""

    scenario: str
    case: str
    mape: float
    coverage: float
    extrapolated: float
    fit_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures over the runs of a case; coverage and extrapolated are means."""

    mape_median: float
    mape_p90: float
    coverage: float
    extrapolated: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures. cases: over all runs. by_scenario: scenario -> case. *_ms: CPU time of the `elastichost` model,
    which uses one thread."""

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
    """An observation with the noise of a real run on speed and timings; it states the error of its speed."""
    timings = {name: getattr(observation, name) for name in TIMINGS}
    changed = {
        name: value * float(np.exp(NOISE * generator.standard_normal()))
        for name, value in timings.items()
        if value is not None
    }
    speed = observation.samples_per_s * float(np.exp(NOISE * generator.standard_normal()))
    return msgspec.structs.replace(observation, samples_per_s=speed, log_error=NOISE, **changed)


def _tried(candidates: ConfigurationArray, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices of SEEN configurations: the first at random, others far from all earlier ones, the rest at random; in
    mixed order, so that the first few contain both kinds."""
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


def like(scenario: Scenario, generator: np.random.Generator) -> Scenario:
    """Another job of the same kind: each cost is multiplied by an independent factor."""
    changed: dict[str, float] = {}
    for names in COSTS.values():
        factor = float(np.exp(LIKE_SPREAD * generator.standard_normal()))
        changed |= {name: getattr(scenario, name) * factor for name in names}
    return msgspec.structs.replace(scenario, **changed)


def prior_of(scenario: Scenario, jobs: Sequence[Scenario], space: Space, generator: np.random.Generator) -> Prior:
    """The prior that `warm_start` computes from earlier jobs, each with SEEN measured configurations."""
    records = []
    for number, job in enumerate(jobs):
        seen = _observe(job, space.some(_tried(space.array, generator)), generator)
        found = registry.fit("elastichost", job.workload, seen).posterior()
        features = JobFeatures(scenario.name, name=scenario.name if job == scenario else f"another-{number}")
        fastest = max(seen, key=lambda one: one.samples_per_s)
        size = PlanSize(*msgspec.structs.astuple(fastest.configuration))
        parameters = Estimates(found.mean, found.sd)
        records.append(
            JobRecord(features, f"{number}", size, fastest.samples_per_s, size, True, "elastichost", parameters)
        )
    started = warm_start(JobFeatures(scenario.name, name=scenario.name), records, ANY)
    assert isinstance(started, WarmStart), "warm_start must accept jobs of the same kind"
    return started.prior


def _fitted(case: Case, workload: Workload, seen: Sequence[Observation], priors: Mapping[str, Prior]) -> Fit:
    known = priors.get(case.history)
    if case.model == "elastichost":
        return queueing.fit(workload, seen[: case.seen], known, case.settings)
    return registry.fit(case.model, workload, seen[: case.seen])


@dataclass(frozen=True, slots=True)
class Space:
    """Configurations, as objects and as float64 [n, 4], with their true speeds float64 [n]."""

    configurations: tuple[Configuration, ...]
    array: ConfigurationArray
    truth: npt.NDArray[np.float64]

    def some(self, indices: Iterable[int]) -> list[Configuration]:
        return [self.configurations[index] for index in indices]


def space_of(scenario: Scenario, configurations: Sequence[Configuration], iterations: int) -> Space:
    truth = throughputs(scenario, configurations, iterations, seed=0)
    return Space(tuple(configurations), as_array(configurations), truth)


def cores_fixed(scenario: Scenario) -> list[Configuration]:
    """The configurations of the scenario's grid with FIXED_CORES."""
    configurations = grid(scenario)
    for worker_cores, server_cores in FIXED_CORES:
        found = [one for one in configurations if (one.worker_cores, one.server_cores) == (worker_cores, server_cores)]
        if len(found) > 2 * SEEN:
            return found
    raise ValueError(f"{scenario.name} has too few configurations of the same cores")


def runs_of(scenario: Scenario, options: Options, cases: Sequence[Case] = CASES) -> Iterable[Run]:
    """Runs every case on every seed. All cases of a seed and a space get the same observations and predict the same
    configurations. Earlier jobs differ from the tested jobs or runs."""
    spaces = {
        False: space_of(scenario, grid(scenario)[:: options.keep_every], options.iterations),
        True: space_of(scenario, cores_fixed(scenario), options.iterations),
    }
    for seed in range(options.seeds):
        for is_fixed, space in spaces.items():
            chosen = [case for case in cases if case.cores_fixed == is_fixed]
            yield from _runs_in(scenario, space, chosen, np.random.default_rng((seed, len(space.array))))


def _runs_in(scenario: Scenario, space: Space, cases: Sequence[Case], generator: np.random.Generator) -> Iterable[Run]:
    tried = _tried(space.array, generator)
    seen = _observe(scenario, space.some(tried), generator)
    priors = {}
    if any(case.history for case in cases):
        priors[LIKE] = prior_of(scenario, [like(scenario, generator) for _ in range(LIKE_JOBS)], space, generator)
        priors[ITSELF] = prior_of(scenario, [scenario], space, generator)
    held_out = np.setdiff1d(np.arange(len(space.array)), tried)
    true = space.truth[held_out]
    for case in cases:
        began = time.thread_time()
        fitted = _fitted(case, scenario.workload, seen, priors)
        fit_ms = 1e3 * (time.thread_time() - began)
        found = fitted.predict(space.array[held_out])
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
    """The median time of five predictions of 131,072 configurations after a fit to ten observations, in ms."""
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
    """Measures all scenarios and cases."""
    began = time.perf_counter()
    # compiles or loads the kernels, so that their compilation counts only in took_s
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
    yield f"held-out error after {SEEN} configurations of each job (fewer where noted), {figures.runs} runs"
    yield f"{'':<26}{'median':>8}{'P90':>8}{'in 90 % interval':>18}{'extrapolated':>14}"
    for name, one in figures.cases.items():
        yield f"{name:<26}{one.mape_median:>8.1%}{one.mape_p90:>8.1%}{one.coverage:>18.1%}{one.extrapolated:>14.1%}"
    models = [case.name for case in CASES[:4]]
    yield ""
    yield f"{'median error':<20}" + "".join(f"{name:>13}" for name in models) + f"{'interval':>11}"
    for name, cases in figures.by_scenario.items():
        errors = "".join(f"{cases[model].mape_median:>13.1%}" for model in models)
        yield f"{name:<20}{errors}{cases[models[0]].coverage:>11.1%}"
    yield ""
    yield (
        f"CPU time of a fit {figures.fit_ms_median:.1f} ms (p99 {figures.fit_ms_p99:.1f} ms), "
        f"of 131,072 predictions {figures.predict_131072_ms:.0f} ms; whole benchmark {figures.took_s:.1f} s"
    )


def verdicts_of(figures: Figures) -> list[Verdict]:
    """The verdicts on the model `elastichost` over all runs."""
    own = figures.cases["elastichost"]
    values = (own.mape_median, own.mape_p90, own.coverage, own.coverage)
    return [aim.judge(value) for aim, value in zip(AIMS, values, strict=True)]


def reaches(figures: Figures) -> bool:
    """Whether no aim is missed."""
    return not is_any_missed(verdicts_of(figures))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 1 if an aim is missed, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuner.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="3 seeds, a quarter of the configurations")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(arguments)
    figures = measure(Options(seeds=3, keep_every=4, iterations=1000) if chosen.quick else Options())
    print("\n".join(_lines(figures)), end="\n\n")
    print_verdicts(verdicts_of(figures))
    if chosen.json:
        write_json("accuracy", {**asdict(figures), "aims": bounds_of(AIMS)}, verdicts_of(figures))
    return 0 if reaches(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
