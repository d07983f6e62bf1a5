"""The section [tuner] of the job file: what the tuner measures, and what it may change while the job trains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from elastichost.config.base import Section
from elastichost.config.values import Count, NotNegative, Positive, Share

__all__ = ["FirstPlanSettings", "TunerSection"]


class FirstPlanSettings(Section):
    """`tuner.first_plan`: the size that a new run starts with, within the limits of [resources]. A number that is not
    possible is replaced by the nearest one. Not used with `tuner.mode` "off"."""

    workers: Count = Field(
        default=0, description="Number of workers at the start. 0: taken from similar jobs, else the default."
    )
    servers: Count = Field(
        default=0, description="Number of parameter servers at the start. 0: taken from similar jobs, else the default."
    )
    worker_cores: Count = Field(
        default=0, description="Threads of each worker at the start. 0: taken from similar jobs, else the default."
    )


class TunerSection(Section):
    """`[tuner]`: the tuner measures the speed of the job, fits a model of it, and changes the numbers of workers,
    parameter servers and threads within the limits of [resources]."""

    mode: Literal["act", "propose", "watch", "off"] = Field(
        default="act",
        description='"act": the tuner changes the plan while the job trains. "watch": it measures and reports what it '
        'would change. "off": it does neither, and the first plan stays. '
        '"propose": set by the dispatcher of many jobs; what the tuner proposes is carried out when the dispatcher '
        "grants it.",
    )
    model: Literal["elastichost", "dlrover_rm", "optimus"] = Field(
        default="elastichost",
        description="Model that predicts the speed of a plan. dlrover_rm and optimus are the published models of those "
        "names, for comparison.",
    )
    search: Literal["auto", "exact", "nsga2"] = Field(
        default="auto",
        description='How plans are searched. "auto": all of them, or coarse to fine where there are more than 20,000. '
        '"exact": all of them. "nsga2": NSGA-II where there are more than 6,000; needs the extra elastichost[nsga2].',
    )
    explore: Literal["safe", "free", "off"] = Field(
        default="safe",
        description='Which plans may be tried. "safe": plans whose expected speed is at least `floor` of the best '
        'known one. "free": any plan. "off": none; the plan changes only where the gain is certain enough without a '
        "trial.",
    )
    floor: Share = Field(
        default=0.9,
        description="Lowest speed of a plan that may be tried, as a share of the best known speed. Not used by explore "
        '"free".',
    )
    block_s: Positive = Field(
        default=3.0, description="Shortest time in seconds for which a plan is measured before the tuner decides."
    )
    min_gain: NotNegative = Field(
        default=0.03,
        description="Price of cores, as a share of speed: a plan that uses all cores must be faster by this share, a "
        "plan with fewer cores by proportionally less. 0: cores cost nothing.",
    )
    first_plan: FirstPlanSettings = FirstPlanSettings()
    warm_start: bool = Field(
        default=True,
        description="Choose the first plan, and start the tuner's model, from the recorded history of similar jobs.",
    )
    memory: Literal["act", "watch", "off"] = Field(
        default="act",
        description='For jobs with dynamic tables. "act": memory is freed before `resources.memory` is exceeded, for '
        'example by dropping rows. "watch": the coming shortage is reported only. "off": neither.',
    )
