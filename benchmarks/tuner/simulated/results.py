"""Simulates all parts and collects their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.harness.aggregates import Interval
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.tuner.simulated.figures import Figures, best_rival, figures_of_seed, ratios, spreads
from benchmarks.tuner.simulated.health import (
    Ablation,
    Cure,
    Detection,
    Start,
    ablations,
    cure,
    hot_detection,
    memory_detection,
    start,
    straggler_detection,
)
from benchmarks.tuner.simulated.plan import ABLATIONS, MIGRATION, NO_HEAT, OURS, Plan
from benchmarks.tuner.simulated.runs import Seeds, decision_times, play_all

__all__ = ["PARTS", "Care", "Results", "run"]

NO_HEALTH, NO_HOT = "without health", "without hot servers"
HOT_PER_HOUR, STRAGGLERS_PER_HOUR = 1.0, 0.1  # per job; per worker (ten times the usual rate)
# per seed, for parts with our policy only; few families, so that most jobs are similar to earlier ones
OWN_JOBS, OWN_HOSTS, OWN_FAMILIES = 9, 2, 4
# enough free cores that a job may have six times its share under the well-tuned policy
ROOMY_JOBS, ROOMY_HOSTS, ROOMY_LOAD, ROOMY_FAMILIES = 32, 32, 0.1, 8
PARTS = ("policies", "ablations", "hot", "stragglers", "start", "sizes")


class Care(msgspec.Struct, frozen=True):
    """How well our policy detects faults."""

    stragglers: Detection
    hot: Detection
    memory: Detection


class Results(msgspec.Struct, frozen=True):
    """All results; None and empty mean not requested. figures: by policy, one for each seed. ratios: of mean completion
    times by pair of policies, geometric means over seeds. decisions_by_size: p99 in CPU seconds, by policy and number
    of jobs. seconds: of the whole benchmark."""

    plan: Plan
    figures: dict[str, tuple[Figures, ...]]
    spreads: dict[str, dict[str, Interval]]
    ratios: dict[str, dict[str, Interval]]
    best_rival: str
    decisions_by_size: dict[str, dict[str, float]]
    seconds: float
    care: Care | None = None
    ablations: dict[str, Ablation] = {}
    hot: Cure | None = None
    stragglers: Cure | None = None
    rough: Care | None = None  # with many stragglers
    start: Start | None = None


def run(
    plan: Plan,
    sizes: Sequence[int] = (),
    told: Callable[[str], None] = lambda text: None,
    *,
    parts: Sequence[str] = ("policies",),
    processes: int = 1,
) -> Results:
    """Simulates the policies of a plan on every seed, and the requested parts. sizes: numbers of simultaneous jobs with
    which decisions are timed; of our policy, or of all policies if no other part is requested. told: is called with
    lines of progress."""
    began_s = time.perf_counter()
    names = plan.policies
    plans = {"policies": plan, **_more_plans(plan, parts)}
    played = dict(zip(plans, play_all(tuple(plans.values()), processes, told), strict=True))
    rivals = [figures_of_seed({name: seed[name] for name in names}) for seed in played["policies"]]
    figures = {name: tuple(seed[name] for seed in rivals) for name in names}
    timed = (OURS,) if len(parts) > 1 and OURS in names else names
    found = Results(
        plan=plan,
        figures=figures,
        spreads={name: spreads(rows) for name, rows in figures.items()},
        ratios=ratios(figures),
        best_rival=best_rival(figures),
        decisions_by_size={name: decision_times(plan, name, sizes) for name in timed} if sizes else {},
        seconds=0.0,
        care=_care(played["policies"]) if OURS in names else None,
        ablations=ablations(played["ablations"], OURS, tuple(ABLATIONS)) if "ablations" in parts else {},
        hot=cure(played["hot"], "hot", OURS, NO_HOT) if "hot" in played else None,
        stragglers=cure(played["stragglers"], "straggler", OURS, NO_HEALTH) if "stragglers" in played else None,
        rough=_care(played["stragglers"]) if "stragglers" in played else None,
        start=start(played["start"], OURS) if "start" in played else None,
    )
    return msgspec.structs.replace(found, seconds=time.perf_counter() - began_s)


def _more_plans(plan: Plan, parts: Sequence[str]) -> dict[str, Plan]:
    """The plans of the parts that need other jobs, with the seeds of `plan`."""
    change = msgspec.structs.replace
    few = change(plan, jobs=min(plan.jobs, OWN_JOBS), hosts=OWN_HOSTS, mix=change(plan.mix, families=OWN_FAMILIES))
    # a quick plan has so few jobs that none remains after HISTORY jobs
    roomy = min(ROOMY_JOBS, 3 * plan.jobs)
    found = {
        "ablations": change(few, policies=(OURS, *ABLATIONS)),
        "hot": change(
            few, policies=(OURS, NO_HOT, MIGRATION, NO_HEAT), rates=IncidentRates(0.0, 0.0, HOT_PER_HOUR, 0.0)
        ),
        "stragglers": change(few, policies=(OURS, NO_HEALTH), rates=IncidentRates(0.0, STRAGGLERS_PER_HOUR, 0.0, 0.0)),
        "start": change(
            plan,
            policies=(OURS,),
            jobs=roomy,
            hosts=ROOMY_HOSTS,
            load=ROOMY_LOAD,
            mix=change(plan.mix, families=ROOMY_FAMILIES),
        ),
    }
    return {name: one for name, one in found.items() if name in parts}


def _care(seeds: Seeds) -> Care:
    return Care(
        stragglers=straggler_detection(seeds, OURS),
        hot=hot_detection(seeds, OURS),
        memory=memory_detection(seeds, OURS),
    )
