"""The tuner of this project in the simulated cluster: translates views, calls the functions of a live run, and returns
their decisions as grants. It has no threshold and no rule of its own. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from benchmarks.simulator.cluster.views import ClusterView, EndedJob, Grant, GrantLimits, JobView
from benchmarks.simulator.policies.elastichost_memory import MemoryOfJobs
from elastichost.config.sections.supervision import SupervisionSection
from elastichost.history.features import Estimates, JobFeatures, JobRecord
from elastichost.history.store import KEPT
from elastichost.supervisor.autoscale.history_writer import is_worth_recording, record_of
from elastichost.tuner.cluster import facts
from elastichost.tuner.cluster.decide import decide
from elastichost.tuner.cluster.first_options import first_options
from elastichost.tuner.cluster.proposals import Proposal, next_proposal, option_of
from elastichost.tuner.cluster.refusals import RefusedGrants, noted, open_options
from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.health import HealthSettings, HealthState
from elastichost.tuner.health import observe as slow_workers
from elastichost.tuner.models.base import Prior
from elastichost.tuner.placement.allocation import JobId, OptionArray
from elastichost.tuner.placement.rebalance import BalanceState, Rebalance
from elastichost.tuner.placement.rebalance import decide as balanced
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.decision import TunerSettings, TunerState
from elastichost.tuner.policy.job_frontier import JobFront, age_of, cores_of, front_of, job_options
from elastichost.tuner.policy.policy import advance_block
from elastichost.tuner.policy.profile import TIMINGS
from elastichost.tuner.warm_start import METRIC, WarmStart, warm_start

__all__ = ["ElastichostPolicy", "PolicyParts"]

HEALTH = HealthSettings(after_s=SupervisionSection().straggler_s)


class PolicyParts(msgspec.Struct, frozen=True):
    """The parts of the policy that an ablation can switch off."""

    warm_start: bool = True
    direct_timers: bool = True
    exact: bool = True
    memory: bool = True
    health: bool = True
    hot_servers: bool = True


@dataclass(frozen=True, slots=True)
class _Told:
    """What a running job has in the history: the arguments of `record_of`, from which the record is made if another job
    is near enough to read it. final: the configuration at that time."""

    features: JobFeatures
    tuner: TunerState
    settings: TunerSettings
    final: Configuration
    at_s: float

    def record(self) -> JobRecord | None:
        now_utc = _utc(self.at_s)
        return record_of(self.features, self.tuner, self.settings, self.final, now_utc, Estimates(), ended_well=True)


@dataclass(slots=True)
class _Job:
    """The states of one job that a live run keeps, and what follows from them. blocks: number of folded blocks. front:
    for this age of the observations. options: for this running configuration."""

    first: Configuration
    prior: Prior | None = None
    tuner: TunerState = field(default_factory=TunerState)
    health: HealthState = field(default_factory=HealthState)
    balance: BalanceState = field(default_factory=BalanceState)
    blocks: int = 0
    age: tuple[int, int] | None = None
    front: JobFront | None = None
    options: OptionArray | None = None
    options_for: Configuration | None = None
    proposal: Proposal | None = None
    told: _Told | None = None
    replaces: bool = False
    moves: bool = False


class ElastichostPolicy:
    """Each job has its tuner; at every arrival, end and tick `tuner.cluster.decide` divides the cores among them."""

    name = "elastichost"

    def __init__(self, parts: PolicyParts | None = None) -> None:
        self._parts = parts or PolicyParts()
        self._jobs: dict[int, _Job] = {}
        self._records: deque[JobRecord] = deque(maxlen=KEPT)
        self._memory = MemoryOfJobs(drops=self._parts.memory)
        self._refusals = RefusedGrants()
        self._granted: dict[JobId, Configuration] = {}

    def observe(self, view: ClusterView, now_s: float) -> None:
        """See `views.ObservingPolicy`."""
        for ended in view.ended:
            self._learn(ended, view.limits, now_s)
        for job in view.jobs:
            if job.job not in self._jobs:
                self._jobs[job.job] = self._begun(job, view.limits)
            state, blocks = self._jobs[job.job], len(job.observations)
            if state.blocks == blocks and state.options is not None and state.options_for == job.running:
                continue  # nothing new is known: of many jobs, this is true of most at an arrival
            for block in range(state.blocks, blocks):
                self._fold(job, state, block, view)
            state.blocks = blocks
            self._update_options(job, state, view.limits)

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self.observe(view, now_s)
        running: dict[JobId, Configuration | None] = {job.job: job.running for job in view.jobs}
        self._refusals = noted(self._refusals, self._granted, running, now_s)
        jobs = tuple(self._seen(job, view.limits) for job in view.jobs)
        taken = sum(job.running.cores for job in view.jobs if job.running is not None)
        has_news = view.trigger != "tick"
        shared = facts.ClusterView(jobs=jobs, cores=view.free_cores + taken, has_news=has_news)
        chosen = {grant.job: grant.configuration for grant in decide(shared, is_exact=self._parts.exact)}
        found = {job.job: self._grant(job, chosen[job.job]) for job in view.jobs if job.job in chosen}
        self._granted = {
            job: grant.configuration
            for job, grant in found.items()
            if grant is not None and grant.configuration != running[job]
        }
        return found

    def _grant(self, job: JobView, configuration: Configuration) -> Grant | None:
        if job.is_changing:
            return None
        state, memory = self._jobs[job.job], self._memory.of(job)
        grant = Grant(configuration, memory.granted(job, configuration), drops_rows=memory.drops_rows)
        if configuration == job.running:
            grant = msgspec.structs.replace(grant, replace_straggler=state.replaces, move_buckets=state.moves)
            state.replaces = state.moves = False
        return grant

    # --- one job ------------------------------------------------------------------------------------------------------

    def settings(self, job: JobView, limits: GrantLimits, prior: Prior | None) -> TunerSettings:
        """The settings of the job's tuner."""
        bounds = Bounds(limits.least, limits.most, share_cores=False)
        return TunerSettings(job.workload, bounds, prior=prior, keeps_cores=True)

    def _seen(self, job: JobView, limits: GrantLimits) -> facts.JobView:
        state, bounds = self._jobs[job.job], self.settings(job, limits, None).bounds
        assert state.options is not None
        options = open_options(self._refusals, job.job, state.options)
        is_measured = bool(job.observations) and job.observations[-1].configuration == job.running
        return facts.JobView(
            job=job.job,
            samples_left=job.samples_left,
            options=options,
            current=options.place_of(job.running) if job.running is not None else None,
            is_changing=job.is_changing,
            is_measured=is_measured,
            proposal=option_of(state.proposal, partial(cores_of, bounds=bounds)) if is_measured else None,
        )

    def _fold(self, job: JobView, state: _Job, number: int, view: ClusterView) -> None:
        """Gives one measured block to the tuner, the health check, the rebalancer and the memory forecast."""
        block = job.observations[number]
        has_ended = block.configuration != job.running
        settings = self.settings(job, view.limits, state.prior)
        state.tuner, decision = advance_block(
            state.tuner, self._known(block), int(job.samples_left), settings, block.at_s, has_ended=has_ended
        )
        state.proposal = next_proposal(state.proposal, decision, job.running)
        if is_worth_recording(decision):
            state.told = _Told(job.features, state.tuner, settings, block.configuration, block.at_s)
        if self._parts.health:
            state.health, remarks = slow_workers(state.health, job.worker_speeds(number), HEALTH, block.at_s)
            state.replaces = any(remark.replace for remark in remarks)
        if self._parts.hot_servers:
            loads = job.loads[number]
            speeds = dict.fromkeys(range(block.configuration.servers), 1.0)
            state.balance, rebalance = balanced(
                state.balance, loads.heat, loads.owners, speeds, loads.busiest, block.at_s
            )
            state.moves = isinstance(rebalance, Rebalance)
        self._memory.of(job).fold(job, number, view)

    def _known(self, block: Observation) -> Observation:
        if self._parts.direct_timers:
            return block
        return msgspec.structs.replace(block, **dict.fromkeys(TIMINGS))

    def _update_options(self, job: JobView, state: _Job, limits: GrantLimits) -> None:
        """Computes the frontier of the job again if something new is known."""
        settings, age = self.settings(job, limits, state.prior), age_of(state.tuner)
        if state.age != age:
            state.front, state.age, state.options = front_of(state.tuner, settings), age, None
        if state.options is None or state.options_for != job.running:
            if state.front is None:
                state.options = first_options(job.running or state.first, job.samples_left)
            else:
                state.options = job_options(state.front, settings.bounds, job.running, state.first)
            state.options_for = job.running

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _begun(self, job: JobView, limits: GrantLimits) -> _Job:
        found = None
        if self._parts.warm_start:
            bounds = Bounds(limits.least, limits.most, share_cores=False)
            found = warm_start(job.features, (*self._records, *self._of_running(job.features)), bounds)
            self._memory.begin(job, found.memory)
        if isinstance(found, WarmStart):
            return _Job(found.configuration, found.prior if found.prior.mean else None)
        return _Job(job.request)

    def _of_running(self, features: JobFeatures) -> tuple[JobRecord, ...]:
        """The records of running jobs that are near enough to count."""
        told = (state.told for state in self._jobs.values() if state.told is not None)
        near = (one.record() for one in told if METRIC.is_near(METRIC.distance(features, one.features)))
        return tuple(record for record in near if record is not None)

    def _learn(self, ended: EndedJob, limits: GrantLimits, now_s: float) -> None:
        job, is_complete = ended.view, ended.outcome == "completed"
        state = self._jobs.pop(job.job, None)
        memory = self._memory.learnt(job, is_complete=is_complete)
        if state is None or job.running is None:
            return
        settings = self.settings(job, limits, state.prior)
        now_utc = _utc(now_s)
        record = record_of(job.features, state.tuner, settings, job.running, now_utc, memory, ended_well=is_complete)
        if record is not None:
            self._records.append(record)


def _utc(now_s: float) -> str:
    """A time as records have it: later ones are greater texts."""
    return f"{now_s:020.3f}"
