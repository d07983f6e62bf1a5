"""How soon the tuner finds the best configuration of a job, and the cost of its trials, in worlds with known speeds.

    python -m benchmarks.tuner.search           all worlds and arms: minutes of one core
    python -m benchmarks.tuner.search --quick   a few worlds, one seed: seconds

The production policy gets looks at a job of the queue simulator (`simulated_worlds`) or of a recorded grid of real runs
(`recorded_worlds`). It starts with the default plan, with a bad random plan (slower than the median of the space), or
with the plan that warm start proposes after 1 to 5 earlier jobs of the family, which were tuned in the same way and
have costs that differ by 10 %. Jobs take 5 minutes to 10 hours (at the best speed). The policy gets looks during the
first minutes; the configuration at the end of this time then runs to the end of the job.

The goal is the goal of the policy: log speed minus the price of the cores (`acquisition.price_of`). "Near" is within
5 % of the best of the space in that measure. "Tried" counts distinct configurations, including the first one, until one
is near; a run that does not end near counts as never. "Over" is the time of the run divided by the time of a run that
has the best configuration from the start. A violation is a configuration with less than 0.9 of the fastest speed
before. The truth of a recorded grid is a mean over few rounds on a machine that drifts; "nearly" also counts runs that
miss "near" by at most one standard error of that truth. "random" and "bayesian" need some minutes of looks, so a quick
run says nothing about them.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.aggregates import percentile
from benchmarks.harness.aims import Verdict, at_least, at_most, is_any_missed
from benchmarks.harness.output import print_table, write_json
from benchmarks.harness.runner import print_verdicts
from benchmarks.tuner.search.recorded_worlds import recorded_worlds
from benchmarks.tuner.search.runs import ARMS, NEVER, Drifted, Options, Run, drifts_of, runs_of
from benchmarks.tuner.search.simulated_worlds import SIMULATED
from benchmarks.tuner.search.world import NEAR, World
from elastichost.tuner.facts import COLUMNS

__all__ = ["Figures", "Share", "Summary", "figures_of", "main", "measure", "share_of", "verdicts_of"]

AIM_COLD, AIM_WARM = 7, 3  # configurations tried
AIMS = (
    at_least(0.9, "soon, cold starts"),
    at_least(0.9, "soon, warm starts"),
    at_least(0.9, "speed of the first plan"),
    at_most(0.05, "decision p99, s"),
)
RESAMPLES = 1000
Floats = npt.NDArray[np.float64]


# --- figures ----------------------------------------------------------------------------------------------------------


class Share(msgspec.Struct, frozen=True):
    """A statistic of runs with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def shown(self, form: str) -> str:
        return f"{self.value:{form}} ({self.low:{form}}-{self.high:{form}})"


def share_of(values: Sequence[float], statistic: Callable[[Floats], Floats]) -> Share:
    """The statistic of the values with its interval. statistic: maps float64 [n, runs] to float64 [n], row by row."""
    array = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(0).integers(0, len(array), (RESAMPLES, len(array)))
    low, high = np.quantile(statistic(array[picks]), (0.025, 0.975), method="nearest")
    return Share(float(statistic(array[None, :])[0]), float(low), float(high))


def _mean(rows: Floats) -> Floats:
    return np.asarray(rows.mean(axis=1))


def _median(rows: Floats) -> Floats:
    return np.quantile(rows, 0.5, axis=1, method="inverted_cdf")


def _ninth(rows: Floats) -> Floats:
    return np.quantile(rows, 0.9, axis=1, method="inverted_cdf")


def _tenth(rows: Floats) -> Floats:
    return np.quantile(rows, 0.1, axis=1, method="inverted_cdf")


class Summary(msgspec.Struct, frozen=True):
    """Figures of some runs. tried, until_s, regret_s: medians. *_p90: 90 % quantiles. soon: share of runs that are near
    within the number of configurations of the aim. nearly: share of runs that are near, or miss it by at most one
    standard error of the truth. regret_s: seconds more than with the best configuration. lowest: P10. violations: share
    of trials. violating: share of runs with a violation."""

    runs: int
    tried: Share
    tried_p90: Share
    soon: Share
    near: Share
    nearly: Share
    behind: Share
    until_s: Share
    over: Share
    over_p90: Share
    regret_s: Share
    lowest: Share
    violations: Share
    violating: Share
    changes: Share


def summary_of(runs: Sequence[Run], most: int) -> Summary:
    violations = [run.violations / max(1, run.trials) for run in runs]
    return Summary(
        runs=len(runs),
        tried=share_of([run.tried for run in runs], _median),
        tried_p90=share_of([run.tried for run in runs], _ninth),
        soon=share_of([run.tried <= most for run in runs], _mean),
        near=share_of([run.is_near for run in runs], _mean),
        nearly=share_of([run.behind <= NEAR + run.doubt for run in runs], _mean),
        behind=share_of([run.behind for run in runs], _mean),
        until_s=share_of([min(run.until_s, 1e9) for run in runs], _median),
        over=share_of([run.over for run in runs], _mean),
        over_p90=share_of([run.over for run in runs], _ninth),
        regret_s=share_of([run.over * run.length_s for run in runs], _median),
        lowest=share_of([run.lowest for run in runs], _tenth),
        violations=share_of(violations, _mean),
        violating=share_of([run.violations > 0 for run in runs], _mean),
        changes=share_of([run.changes for run in runs], _mean),
    )


class Figures(msgspec.Struct, frozen=True):
    """All figures. cold, warm: by arm, in simulated worlds. real_*: in recorded worlds. noise, lengths: of the tuner's
    cold runs. worlds: of the tuner's cold runs in all worlds. accuracy: of warm starts in simulated worlds."""

    cold: dict[str, Summary]
    warm: dict[str, Summary]
    real_cold: dict[str, Summary]
    real_warm: dict[str, Summary]
    noise: dict[str, Summary]
    lengths: dict[str, Summary]
    worlds: dict[str, Summary]
    accuracy: dict[str, Share]
    drifts: tuple[Drifted, ...]
    decision_p50_s: float
    decision_p99_s: float
    decisions: int
    took_s: float


def measure(options: Options, drifting: Sequence[World], told: Callable[[str], None] = lambda text: None) -> Figures:
    """Runs all policies, and the tuner on the drifting worlds. told: is called with the name of each finished world."""
    import scipy.optimize
    import scipy.special  # noqa: F401  # a live run imports these before its first decision

    began_s = time.process_time()
    runs = list(runs_of(options, told))
    drifts = tuple(drifts_of(options, drifting, max(1, options.rival_seeds)))
    return figures_of(runs, drifts, time.process_time() - began_s)


def figures_of(runs: Sequence[Run], drifts: tuple[Drifted, ...], took_s: float) -> Figures:
    """Computes the figures. took_s: CPU seconds of the benchmark."""
    simulated = {one.name for one in SIMULATED}
    cold, warm, real_cold, real_warm = (
        [run for run in runs if (run.start == "warm") is is_warm and (run.world in simulated) is is_simulated]
        for is_simulated, is_warm in ((True, False), (True, True), (False, False), (False, True))
    )
    own = [run for run in cold if run.arm == ARMS[0]]
    started = [run for run in warm if run.arm == ARMS[0]]
    decided = [one for run in runs if run.arm == ARMS[0] for one in run.decisions_s]
    accuracy = {name: share_of([run.accuracy[name] for run in started], _mean) for name in COLUMNS if started}
    if started:
        accuracy["speed"] = share_of([run.start_speed for run in started], _mean)
    return Figures(
        cold=_by(cold, lambda run: run.arm, AIM_COLD),
        warm=_by(warm, lambda run: run.arm, AIM_WARM),
        real_cold=_by(real_cold, lambda run: run.arm, AIM_COLD),
        real_warm=_by(real_warm, lambda run: run.arm, AIM_WARM),
        noise=_by(own, lambda run: next(name for most, name in NOISE if run.cov <= most), AIM_COLD),
        lengths=_by(own, lambda run: f"{run.length_s / 60:.0f} min", AIM_COLD),
        worlds=_by([*own, *(run for run in real_cold if run.arm == ARMS[0])], lambda run: run.world, AIM_COLD),
        accuracy=accuracy,
        drifts=drifts,
        decision_p50_s=percentile(decided, 50),
        decision_p99_s=percentile(decided, 99),
        decisions=len(decided),
        took_s=took_s,
    )


NOISE = ((0.1, "CoV to 0.1"), (0.5, "CoV 0.1 to 0.5"), (math.inf, "CoV over 0.5"))


def _by(runs: Sequence[Run], key: Callable[[Run], str], most: int) -> dict[str, Summary]:
    names = dict.fromkeys(key(run) for run in runs)
    return {name: summary_of([run for run in runs if key(run) == name], most) for name in names}


# --- output -----------------------------------------------------------------------------------------------------------

HEADER = (
    "runs",
    "tried",
    "P90",
    "soon",
    "near",
    "nearly",
    "behind",
    "until, s",
    "over",
    "P90",
    "regret, s",
    "lowest",
    "violations",
    "in runs",
    "changes",
)


def _shown(name: str, one: Summary) -> tuple[str, ...]:
    def tried(share: Share) -> str:
        return "never" if share.value >= NEVER else f"{share.value:.0f}"

    return (
        name,
        str(one.runs),
        tried(one.tried),
        tried(one.tried_p90),
        one.soon.shown(".2f"),
        one.near.shown(".2f"),
        f"{one.nearly.value:.2f}",
        f"{one.behind.value:.1%}",
        f"{one.until_s.value:.0f}" if one.until_s.value < 1e9 else "never",
        one.over.shown(".1%"),
        f"{one.over_p90.value:.1%}",
        f"{one.regret_s.value:.0f}",
        f"{one.lowest.value:.2f}",
        one.violations.shown(".1%"),
        f"{one.violating.value:.0%}",
        f"{one.changes.value:.1f}",
    )


def show(figures: Figures) -> None:
    tables = (
        (f"cold starts (soon: at most {AIM_COLD} tried)", figures.cold),
        (f"warm starts (soon: at most {AIM_WARM} tried)", figures.warm),
        ("cold starts, recorded grids", figures.real_cold),
        ("warm starts, recorded grids", figures.real_warm),
        ("cold starts of the tuner, by noise", figures.noise),
        ("by length of the job", figures.lengths),
        ("by world", figures.worlds),
    )
    for title, rows in tables:
        if not rows:
            continue
        print(f"\n{title}")
        print_table(("", *HEADER), [_shown(name, one) for name, one in rows.items()])
    if figures.accuracy:
        print("\nwarm start: first plan compared with the last (smaller / larger); its speed / speed of the best")
        print("  ".join(f"{name} {one.shown('.2f')}" for name, one in figures.accuracy.items()))
    if figures.drifts:
        print("\ncosts that change in the middle of the job")
        print_table(
            ("world", "what", "noise", "noticed, s", "false", "changes", "behind"), map(_drift_row, figures.drifts)
        )
    print(
        f"\n{figures.decisions} decisions, p50 {1e3 * figures.decision_p50_s:.0f} ms, "
        f"p99 {1e3 * figures.decision_p99_s:.0f} ms of CPU; whole benchmark {figures.took_s:.0f} s"
    )


def _drift_row(one: Drifted) -> tuple[str, ...]:
    noticed = "-" if one.noticed_s is None else f"{one.noticed_s:.0f}"
    alarms, changes = str(one.false_alarms), str(one.changes)
    return one.world, one.what, f"{one.cov:.2f}", noticed, alarms, changes, f"{one.behind:.1%}"


def verdicts_of(figures: Figures) -> list[Verdict]:
    """The verdicts on the tuner in simulated worlds."""
    cold, warm = figures.cold[ARMS[0]], figures.warm[ARMS[0]]
    values = (cold.soon.value, warm.soon.value, figures.accuracy["speed"].value, figures.decision_p99_s)
    return [aim.judge(value) for aim, value in zip(AIMS, values, strict=True)]


QUICK_WORLDS = ("server_bound", "direct, 2 cores")


def _options(is_quick: bool) -> Options:
    recorded = recorded_worlds()
    worlds: tuple[World, ...] = (*SIMULATED, *recorded)
    if not is_quick:
        return Options(worlds=worlds)
    worlds = (*(one for one in SIMULATED if one.name in QUICK_WORLDS), *recorded[:1])
    return Options(seeds=1, rival_seeds=1, looks_s=60.0, lengths_s=(1800.0,), worlds=worlds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 1 if an aim is missed, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuner.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a few worlds, one seed, one minute of looks")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--seeds", type=int, help="number of seeds of the tuner's arm, in each world and start")
    parser.add_argument("--arms", help="comma-separated; the tuner's arm comes first")
    chosen = parser.parse_args(arguments)
    options = _options(chosen.quick)
    if chosen.seeds is not None:
        options = msgspec.structs.replace(
            options, seeds=chosen.seeds, rival_seeds=min(options.rival_seeds, chosen.seeds)
        )
    if chosen.arms is not None:
        options = msgspec.structs.replace(options, arms=tuple(chosen.arms.split(",")))
    drifting = options.worlds[:1] if chosen.quick else [one for one in SIMULATED if one.name in DRIFTING]
    figures = measure(options, drifting, lambda text: print(text, file=sys.stderr))
    show(figures)
    print()
    print_verdicts(verdicts_of(figures))
    if chosen.json:
        write_json("search", figures, verdicts_of(figures))
    return int(is_any_missed(verdicts_of(figures)))


DRIFTING = ("server_bound", "unpipelined", "sync_stragglers, 64 cores", "direct, 16 cores", "served, 16 cores")

if __name__ == "__main__":
    sys.exit(main())
