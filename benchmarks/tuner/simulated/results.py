"""Simulates all parts and collects their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.tuner.simulated.columns import Column, column_of
from benchmarks.tuner.simulated.conditions.requests import RequestKind
from benchmarks.tuner.simulated.conditions.seeds import TABLE_STEP, is_for_tuning
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
from benchmarks.tuner.simulated.runs import PlayedKinds, Seeds, decision_times, play_all

__all__ = ["MISFIT", "PARTS", "Care", "Results", "run"]

NO_HEALTH, NO_HOT = "without health", "without hot servers"
HOT_PER_HOUR, STRAGGLERS_PER_HOUR = 1.0, 0.1  # per job; per worker (ten times the usual rate)
# per seed, for parts with our policy only; few families, so that most jobs are similar to earlier ones
OWN_JOBS, OWN_HOSTS, OWN_FAMILIES = 9, 2, 4
# enough free cores that a job may have six times its share under the well-tuned policy
ROOMY_JOBS, ROOMY_HOSTS, ROOMY_LOAD, ROOMY_FAMILIES = 32, 32, 0.1, 8
PARTS = ("policies", "misfit", "ablations", "hot", "stragglers", "start", "sizes")
MISFIT, MISFIT_SIZE = "misfit", 0.2  # a column with sensible requests, in which no model fits by a fifth
USUAL: RequestKind = "sensible"
DRAWN: RequestKind = "random"  # of the parts with our policy only


class Care(msgspec.Struct, frozen=True):
    """How well our policy detects faults."""

    stragglers: Detection
    hot: Detection
    memory: Detection


class Results(msgspec.Struct, frozen=True):
    """All results; None and empty mean not requested. columns: by kind of requests, and MISFIT. is_for_tuning:
    constants were chosen on some of the seeds, so the figures are no evidence. decisions_by_size: p99 in CPU
    seconds, by policy and number of jobs. seconds: of the whole benchmark."""

    plan: Plan
    is_for_tuning: bool
    columns: dict[str, Column]
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
    columns: dict[str, Column] = {
        kind: column_of(kind, plan.misfit, _of(played["policies"], kind)) for kind in plan.requests
    }
    if MISFIT in played:
        columns[MISFIT] = column_of(USUAL, MISFIT_SIZE, _of(played[MISFIT], USUAL))
    # memory runs out where users ask for too little
    careless = DRAWN if DRAWN in plan.requests else plan.requests[0]
    own = {name: _of(seeds, DRAWN) for name, seeds in played.items() if name not in ("policies", MISFIT)}
    timed = (OURS,) if len(parts) > 1 and OURS in names else names
    found = Results(
        plan=plan,
        is_for_tuning=any(is_for_tuning(one.first_seed, one.seeds) for one in plans.values()),
        columns=columns,
        decisions_by_size={name: decision_times(plan, name, sizes) for name in timed} if sizes else {},
        seconds=0.0,
        care=_care(_of(played["policies"], careless)) if OURS in names else None,
        ablations=ablations(own["ablations"], OURS, tuple(ABLATIONS)) if "ablations" in own else {},
        hot=cure(own["hot"], "hot", OURS, NO_HOT) if "hot" in own else None,
        stragglers=cure(own["stragglers"], "straggler", OURS, NO_HEALTH) if "stragglers" in own else None,
        rough=_care(own["stragglers"]) if "stragglers" in own else None,
        start=start(own["start"], OURS) if "start" in own else None,
    )
    return msgspec.structs.replace(found, seconds=time.perf_counter() - began_s)


def _of(seeds: Sequence[PlayedKinds], kind: RequestKind) -> Seeds:
    """The simulations with one kind of requests."""
    return [kinds[kind] for kinds in seeds]


def _more_plans(plan: Plan, parts: Sequence[str]) -> dict[str, Plan]:
    """The plans of the parts that need other jobs. Each has seeds of its own."""
    change = msgspec.structs.replace
    drawn = change(plan, requests=(DRAWN,))
    few = change(drawn, jobs=min(plan.jobs, OWN_JOBS), hosts=OWN_HOSTS, mix=change(plan.mix, families=OWN_FAMILIES))
    # a quick plan has so few jobs that none remains after HISTORY jobs
    roomy = min(ROOMY_JOBS, 3 * plan.jobs)
    found = {
        MISFIT: change(plan, requests=(USUAL,), misfit=MISFIT_SIZE),
        "ablations": change(few, policies=(OURS, *ABLATIONS)),
        "hot": change(
            few, policies=(OURS, NO_HOT, MIGRATION, NO_HEAT), rates=IncidentRates(0.0, 0.0, HOT_PER_HOUR, 0.0)
        ),
        "stragglers": change(few, policies=(OURS, NO_HEALTH), rates=IncidentRates(0.0, STRAGGLERS_PER_HOUR, 0.0, 0.0)),
        "start": change(
            drawn,
            policies=(OURS,),
            jobs=roomy,
            hosts=ROOMY_HOSTS,
            load=ROOMY_LOAD,
            mix=change(plan.mix, families=ROOMY_FAMILIES),
        ),
    }
    return {
        name: change(one, first_seed=plan.first_seed + TABLE_STEP * (place + 1))
        for place, (name, one) in enumerate(found.items())
        if name in parts
    }


def _care(seeds: Seeds) -> Care:
    return Care(
        stragglers=straggler_detection(seeds, OURS),
        hot=hot_detection(seeds, OURS),
        memory=memory_detection(seeds, OURS),
    )
