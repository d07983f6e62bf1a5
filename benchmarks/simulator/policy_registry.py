"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.views import Policy
from benchmarks.simulator.policies.dlrover_brain import DlroverBrainPolicy
from benchmarks.simulator.policies.dlrover_rm import DlroverRmPolicy
from benchmarks.simulator.policies.elastic_scheduler import ElasticSchedulerPolicy
from benchmarks.simulator.policies.elastichost_policy import ElastichostPolicy
from benchmarks.simulator.policies.integer_programs.optimal_allocator import OptimalAllocatorPolicy
from benchmarks.simulator.policies.integer_programs.sia import SiaPolicy
from benchmarks.simulator.policies.optimus import OptimusPolicy
from benchmarks.simulator.policies.oracle import OraclePolicy
from benchmarks.simulator.policies.pollux import PolluxPolicy
from benchmarks.simulator.policies.static import StaticPolicy, TunedStaticPolicy

__all__ = ["POLICIES", "make_policy"]

PolicyFactory = Callable[[Sequence[SimulatedJob], int], Policy]  # for these jobs, with this seed

# policies that have the true speeds are last
POLICIES: dict[str, PolicyFactory] = {
    "static": lambda jobs, seed: StaticPolicy(),
    "elastic_scheduler": lambda jobs, seed: ElasticSchedulerPolicy(),
    "optimus": lambda jobs, seed: OptimusPolicy(),
    "pollux": lambda jobs, seed: PolluxPolicy(seed=seed),
    "sia": lambda jobs, seed: SiaPolicy(),
    "optimal_allocator": lambda jobs, seed: OptimalAllocatorPolicy(),
    "dlrover_brain": lambda jobs, seed: DlroverBrainPolicy(),
    "dlrover_rm": lambda jobs, seed: DlroverRmPolicy(seed=seed),
    "elastichost": lambda jobs, seed: ElastichostPolicy(),
    "tuned": lambda jobs, seed: TunedStaticPolicy({job.job: job for job in jobs}),
    "oracle": lambda jobs, seed: OraclePolicy({job.job: job for job in jobs}),
}


def make_policy(name: str, jobs: Sequence[SimulatedJob], seed: int) -> Policy:
    """Makes a new policy for one simulation of these jobs. Raises ValueError for an unknown name."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; the policies are {', '.join(POLICIES)}")
    return POLICIES[name](jobs, seed)
