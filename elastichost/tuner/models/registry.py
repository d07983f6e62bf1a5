"""The models of speed by name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from elastichost.tuner.facts import Observation, Workload
from elastichost.tuner.models import dlrover_rm, optimus, pollux, queueing
from elastichost.tuner.models.base import Fit, Prior

__all__ = ["MODELS", "fit"]

OWN = "elastichost"
PUBLISHED: Mapping[str, Callable[[Workload, Sequence[Observation]], Fit]] = {
    "dlrover_rm": dlrover_rm.fit,
    "optimus": optimus.fit,
    "pollux": pollux.fit,
}
MODELS = (OWN, *PUBLISHED)


def fit(name: str, workload: Workload, observations: Sequence[Observation], prior: Prior | None = None) -> Fit:
    """Fits the model of that name; `prior` is for "elastichost" only. Raises ValueError for a name that is none of
    MODELS, and for observations that cannot be (no workers, a speed that is not positive)."""
    if name == OWN:
        return queueing.fit(workload, observations, prior)
    if name in PUBLISHED:
        return PUBLISHED[name](workload, observations)
    raise ValueError(f"{name!r} is no model: {', '.join(MODELS)} are")
