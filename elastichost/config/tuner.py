"""The section of the job file that says what the tuner may do."""

from __future__ import annotations

from typing import Literal

from elastichost.config.schema import Count, NotNegative, Positive, Section, Share

__all__ = ["FirstPlanSettings", "TunerSection"]


class FirstPlanSettings(Section):
    """`tuner.first_plan`: what a run starts with where `resources` leaves it open; 0: history or the default says."""

    workers: Count = 0
    servers: Count = 0
    worker_cores: Count = 0


class TunerSection(Section):
    """`[tuner]`: mode "act" changes the plan while the job trains, "watch" only measures and tells what it would do,
    "off" neither: the first plan stays. model: what predicts speeds. search: how plans are found among the candidates.
    explore: "safe" tries only plans of which `floor` of the best speed known is expected, "free" any, "off" none.
    block_s: shortest time a plan is measured before anything is decided. min_gain: share of the speed that a move must
    gain. warm_start: the first plan and the model begin with what history knows of similar jobs. memory: "act" frees
    memory before resources.memory is used up, "watch" only tells, "off" neither."""

    mode: Literal["act", "watch", "off"] = "act"
    model: Literal["elastichost", "dlrover_rm", "optimus"] = "elastichost"
    search: Literal["auto", "exact", "nsga2"] = "auto"
    explore: Literal["safe", "free", "off"] = "safe"
    floor: Share = 0.9
    block_s: Positive = 3.0
    min_gain: NotNegative = 0.03
    first_plan: FirstPlanSettings = FirstPlanSettings()
    warm_start: bool = True
    memory: Literal["act", "watch", "off"] = "act"
