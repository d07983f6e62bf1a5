"""The models of speed by name (`tuner.model` of the job file). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from elastichost.tuner.facts import Observation, Workload
from elastichost.tuner.models import queueing
from elastichost.tuner.models.base import Fit, Prior
from elastichost.tuner.models.published import dlrover_rm, optimus, pollux
from elastichost.tuner.models.two_kinds import fit_kinds

__all__ = ["MODELS", "fit"]

OWN = "elastichost"
PUBLISHED: Mapping[str, Callable[[Workload, Sequence[Observation]], Fit]] = {
    "dlrover_rm": dlrover_rm.fit,
    "optimus": optimus.fit,
    "pollux": pollux.fit,
}
MODELS = (OWN, *PUBLISHED)


def fit(name: str, workload: Workload, observations: Sequence[Observation], prior: Prior | None = None) -> Fit:
    """Fits the model of that name; a job with GPUs gets a fit for each kind of worker (`two_kinds`). prior: used only
    by "elastichost". Raises ValueError for an unknown name, and for invalid observations (`base.checked`)."""
    if workload.gpus:
        return fit_kinds(workload, observations, partial(fit, name), prior)
    if name == OWN:
        return queueing.fit(workload, observations, prior)
    if name in PUBLISHED:
        return PUBLISHED[name](workload, observations)
    raise ValueError(f"unknown model {name!r}; the models are {', '.join(MODELS)}")
