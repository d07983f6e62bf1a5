"""The section of the job file about the learning-rate schedule: a pure function of the samples that were trained.

It depends on nothing else, so it goes on unchanged when a run is scaled, when a process is killed, and after a resume.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from elastichost.config.base import Section
from elastichost.config.values import Count, Share

__all__ = ["ScheduleSettings"]


class ScheduleSettings(Section):
    """`train.schedule`: how the learning rates change while the job trains: a linear warm-up, then a decay or none."""

    name: Literal["constant", "linear", "cosine", "warmup_stable_decay"] = Field(
        default="constant",
        description='What follows the warm-up. "linear" and "cosine" fall from its end on to `final_factor`. '
        '"warmup_stable_decay" is constant, and falls linearly in the last `decay_share` of the samples.',
    )
    warmup_samples: Count = Field(
        default=0,
        description="Number of samples over which the learning rates rise linearly to their full value. 0: no warm-up.",
    )
    total_samples: Count = Field(
        default=0,
        description="Number of samples after which the learning rates have their last value. 0: all samples of all "
        "epochs. With a fixed number, more epochs in a resumed run leave the schedule as it was.",
    )
    final_factor: Share = Field(
        default=0.0, description="What is left of the learning rates at the end of a decay, as a share. Below 1."
    )
    decay_share: Share = Field(
        default=0.2, description='With "warmup_stable_decay": the share of all samples in which the rates fall.'
    )

    def factor(self, samples: int, planned_samples: int) -> float:
        """The factor of the learning rates for a batch that ends with this sample, from 0 to 1.

        planned_samples: of all epochs together. linear: 1 - (1 - f) p; cosine (Loshchilov and Hutter 2017, equation 5):
        f + (1 - f) (1 + cos(pi p)) / 2, where f is `final_factor` and p the share of the decay that is over.
        warmup_stable_decay is the schedule of Hu et al. 2024 (MiniCPM), section 4, with a linear decay."""
        if samples < self.warmup_samples:
            return samples / self.warmup_samples
        last = self.total_samples or planned_samples
        match self.name:
            case "constant":
                return 1.0
            case "linear":
                return 1.0 - (1.0 - self.final_factor) * _share(samples, self.warmup_samples, last)
            case "cosine":
                over = _share(samples, self.warmup_samples, last)
                return self.final_factor + (1.0 - self.final_factor) * (1.0 + math.cos(math.pi * over)) / 2.0
            case "warmup_stable_decay":
                first = max(self.warmup_samples, last - round(self.decay_share * last))
                return 1.0 - (1.0 - self.final_factor) * _share(samples, first, last)


def _share(samples: int, first: int, last: int) -> float:
    """The share of [first, last] that is over, from 0 to 1."""
    return min(1.0, max(0.0, (samples - first) / max(1, last - first)))
