"""The plan of a simulation: policies, numbers of jobs and hosts, arrival rate, faults."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import JobMix, SimulatedJob, draw_jobs, spread_out
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.cluster.settings import SEAMLESS, STOP_AND_RESTART, ClusterSettings, RescaleStyle
from benchmarks.simulator.cluster.views import Policy
from benchmarks.simulator.policies.configurations import candidates
from benchmarks.simulator.policies.elastichost_policy import ElastichostPolicy, PolicyParts
from benchmarks.simulator.policies.static import best_configuration
from benchmarks.simulator.policy_registry import POLICIES, make_policy
from benchmarks.simulator.queueing import truth_tables
from benchmarks.simulator.queueing.misfit import misfit
from benchmarks.tuner.simulated.conditions.host_mixes import hosts_of
from benchmarks.tuner.simulated.conditions.requests import KINDS, RequestKind
from benchmarks.tuner.simulated.conditions.seeds import TABLE_SEED
from benchmarks.tuner.simulated.conditions.trace_jobs import TraceChoice, jobs_of_trace

__all__ = [
    "ABLATIONS",
    "BLIND",
    "KNOWING",
    "MIGRATION",
    "NO_HEAT",
    "OURS",
    "PAPER_RIVALS",
    "RIVALS",
    "Arm",
    "Plan",
    "loaded_jobs",
    "make_arm",
]

OURS, KNOWING = "elastichost", "oracle"
PAPER_RIVALS = ("static", "elastic_scheduler", "optimus")  # the DLRover-RM paper compares itself with the best of these
RIVALS = tuple(name for name in POLICIES if name not in (OURS, KNOWING))
BLIND = ("dlrover_brain", "tuned", KNOWING)  # do not look at requests, so they are simulated once for all kinds
STOPPING = ("static", "tuned", "optimus", "pollux")  # the original systems of these policies stop and restart jobs
LOAD_ROUNDS, LOAD_TOLERANCE = 6, 0.03
MIGRATION_S = 300.0  # duration of a stop-and-restart migration: "about 5 minutes" in the paper


class Arm(msgspec.Struct, frozen=True):
    """elastichost's policy with a part left out, with another way of moving buckets, or with other fault rates than the
    plan."""

    parts: PolicyParts = PolicyParts()
    bucket_style: RescaleStyle | None = None
    rates: IncidentRates | None = None


ABLATIONS: dict[str, Arm] = {
    "without warm start": Arm(PolicyParts(warm_start=False)),
    "without direct timers": Arm(PolicyParts(direct_timers=False)),
    "greedy, not exact": Arm(PolicyParts(exact=False)),
    "without memory": Arm(PolicyParts(memory=False)),
    "without health": Arm(PolicyParts(health=False)),
    "without hot servers": Arm(PolicyParts(hot_servers=False)),
}
MIGRATION, NO_HEAT = "stop-and-restart migration", "nothing gets hot"
ARMS = {
    **ABLATIONS,
    MIGRATION: Arm(bucket_style=RescaleStyle("stop_and_restart", MIGRATION_S)),
    NO_HEAT: Arm(rates=IncidentRates(0.0, 0.0, 0.0, 0.0)),
}


class Plan(msgspec.Struct, frozen=True):
    """The plan of a simulation. policies: names of policies and arms. load: share of all cores that the well-tuned
    policy uses while jobs arrive. moving: "same" if every policy moves processes as elastichost does; "own" if those of
    STOPPING stop and restart jobs as in their papers. requests: kinds of requests; every policy that looks at them is
    simulated with each. misfit: standard deviation of a smooth departure of the true speeds. rates: of faults.
    hosts_mix: kinds of hosts, by name. trace: of arrivals, which `load` then does not change; None: arrivals are
    drawn."""

    policies: tuple[str, ...] = tuple(POLICIES)
    seeds: int = 20
    jobs: int = 20
    hosts: int = 4
    load: float = 0.7
    moving: str = "same"
    requests: tuple[RequestKind, ...] = KINDS
    misfit: float = 0.0
    mix: JobMix = JobMix()
    rates: IncidentRates = IncidentRates()
    first_seed: int = TABLE_SEED
    hosts_mix: str = "same"
    trace: TraceChoice | None = None

    def settings(self, policy: str) -> ClusterSettings:
        style = STOP_AND_RESTART if self.moving == "own" and policy in STOPPING else SEAMLESS
        arm = ARMS.get(policy, Arm())
        hosts = hosts_of(self.hosts_mix, self.hosts)
        rates = self.rates if arm.rates is None else arm.rates
        return ClusterSettings(hosts=hosts, style=style, bucket_style=arm.bucket_style, rates=rates)


def make_arm(name: str, jobs: Sequence[SimulatedJob], seed: int) -> Policy:
    """The policy or arm of a name. Raises ValueError for an unknown name."""
    return ElastichostPolicy(ARMS[name].parts) if name in ARMS else make_policy(name, jobs, seed)


def loaded_jobs(plan: Plan, seed: int) -> tuple[SimulatedJob, ...]:
    """The jobs of a seed. Their arrival rate is chosen so that the well-tuned policy has about `load` of all cores
    allocated between the first arrival and the last: first from the core-seconds that it needs, then from the load
    measured in a simulation. A few jobs in bursts cannot reach every load; then the nearest load is used. The jobs of a
    trace arrive as they did."""
    settings = plan.settings("tuned")
    if plan.trace is not None:
        return jobs_of_trace(plan.trace, seed, plan.jobs, plan.mix, settings.limits)
    jobs = draw_jobs(seed, plan.jobs, plan.mix, truth_tables.tables(), settings.limits)
    if plan.misfit:
        jobs = tuple(
            msgspec.structs.replace(job, truth=misfit(job.truth, plan.misfit, seed, job.features.family))
            for job in jobs
        )
    array = candidates(settings.limits)
    core_s = 0.0
    for job in jobs:
        configuration = best_configuration(job, array, job.share_cores)
        core_s += configuration.cores * job.samples / job.truth.speed(configuration).samples_per_s
    cores = sum(host.cores for host in settings.hosts)
    jobs = spread_out(jobs, core_s / (plan.load * cores) / max(1e-9, jobs[-1].arrived_s))
    best, best_share = jobs, 0.0
    for _ in range(LOAD_ROUNDS):
        share = simulate_jobs(jobs, make_policy("tuned", jobs, seed), settings, seed).busy_share
        if abs(share - plan.load) < abs(best_share - plan.load):
            best, best_share = jobs, share
        if abs(share - plan.load) <= LOAD_TOLERANCE:
            break
        jobs = spread_out(jobs, max(share, 0.1) / plan.load)
    return best
