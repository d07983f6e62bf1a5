"""Results in which plans that never change stand for every policy, because they are simulated in no time."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.tuner.simulated.columns import Column, column_of
from benchmarks.tuner.simulated.conditions.requests import KINDS
from benchmarks.tuner.simulated.plan import Plan
from benchmarks.tuner.simulated.results import Results
from benchmarks.tuner.simulated.runs import play

__all__ = ["results_of", "stand_in_columns"]

SEEDS = (101, 102)
STANDS_FOR = {
    "elastichost": "tuned",
    "oracle": "tuned",
    "dlrover_rm": "static",
    "elastic_scheduler": "static",
    "optimus": "static",
    "tuned": "static",
    "static": "static",
}


def stand_in_columns() -> dict[str, Column]:
    """A column for each kind of requests."""
    played = [play(Plan(policies=("static", "tuned"), jobs=6, hosts=2), seed) for seed in SEEDS]
    return {
        kind: column_of(
            kind, 0.0, [{name: kinds[kind][other] for name, other in STANDS_FOR.items()} for kinds in played]
        )
        for kind in KINDS
    }


def results_of(columns: Mapping[str, Column], first_seed: int = SEEDS[0]) -> Results:
    """Results with these columns, as if they were of seeds from first_seed on."""
    plan = Plan(seeds=len(SEEDS), first_seed=first_seed)
    return Results(plan=plan, is_for_tuning=False, columns=dict(columns), decisions_by_size={}, seconds=1.0)
