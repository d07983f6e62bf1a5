"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from elastichost.simulator.jobs import JobSpec
from elastichost.simulator.views import Policy

__all__ = ["POLICIES", "make_policy"]

Maker = Callable[[Sequence[JobSpec], int], Policy]


def _plain(module: str, name: str) -> Maker:
    def make(jobs: Sequence[JobSpec], seed: int) -> Policy:
        policy: Policy = getattr(import_module(f"elastichost.simulator.policies.{module}"), name)()
        return policy

    return make


def _seeded(module: str, name: str) -> Maker:
    def make(jobs: Sequence[JobSpec], seed: int) -> Policy:
        policy: Policy = getattr(import_module(f"elastichost.simulator.policies.{module}"), name)(seed=seed)
        return policy

    return make


def _knowing(module: str, name: str) -> Maker:
    def make(jobs: Sequence[JobSpec], seed: int) -> Policy:
        known = {job.job: job for job in jobs}
        policy: Policy = getattr(import_module(f"elastichost.simulator.policies.{module}"), name)(known)
        return policy

    return make


# what knows the truth last
POLICIES: dict[str, Maker] = {
    "static": _plain("static", "Static"),
    "elastic_scheduler": _plain("elastic_scheduler", "ElasticScheduler"),
    "optimus": _plain("optimus", "Optimus"),
    "pollux": _seeded("pollux", "Pollux"),
    "dlrover_brain": _plain("dlrover_brain", "DlroverBrain"),
    "dlrover_rm": _seeded("dlrover_rm", "DlroverRm"),
    "elastichost": _plain("own", "Elastichost"),
    "tuned": _knowing("static", "Tuned"),
    "oracle": _knowing("oracle", "Oracle"),
}


def make_policy(name: str, jobs: Sequence[JobSpec], seed: int) -> Policy:
    """A new one, for one simulation of these jobs. Raises ValueError for a name that there is not."""
    if name not in POLICIES:
        raise ValueError(f"no policy {name!r}: choose from {', '.join(POLICIES)}")
    return POLICIES[name](jobs, seed)
