"""The tuner of this project for many jobs: warm start, queueing model, exact allocation; memory grants, replacement of
stragglers, moves of hot buckets. It calls the same functions as a live run. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from benchmarks.simulator.cluster.views import ClusterView, EndedJob, Grant, GrantLimits, JobView
from benchmarks.simulator.policies.allocation_cache import CachedAllocation, RefusedRequests
from benchmarks.simulator.policies.configurations import candidates, cores_of, thinned_frontier
from benchmarks.simulator.policies.elastichost_memory import ForecastMemory
from benchmarks.simulator.policies.merged_observations import MergedObservations
from elastichost.history.features import Estimates, JobRecord, PlanSize
from elastichost.plan import ProcessId
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, as_array
from elastichost.tuner.health import HealthSettings, HealthState, WorkerSpeed, observe
from elastichost.tuner.models.base import Fit, Prior
from elastichost.tuner.models.registry import fit
from elastichost.tuner.placement.allocation import Capacity, JobId, JobOptions, Option, allocate, weighted_greedy
from elastichost.tuner.policy.candidates import Bounds, as_configurations
from elastichost.tuner.warm_start import ColdStart, warm_start

__all__ = ["ElastichostPolicy", "PolicyParts"]

OPTIONS = 20
COLD = Configuration(4, 2, 4, 4)
COLD_LEFT_S = 1200.0  # assumed duration of a job about which nothing is known
REMEMBERED = 400  # number of jobs
# Number of models that one decision fits: one for every FITS_OF jobs, within these limits. The models of other jobs are
# fitted in the next decisions, so that the time of a decision is limited.
FITS_OF, LEAST_FITS, MOST_FITS = 8, 3, 16
# numbers of processes that are considered: neighbours differ by less than the error of a prediction
WORKERS = (*range(1, 9), *range(10, 17, 2), *range(20, 33, 4))
SERVERS = (1, 2, 3, 4, 6, 8, 12, 16)
TIME_LIMIT_S = 60.0  # a limit of nodes ends a search, not the time, so all machines get the same result
WORTH, WORTH_S = 0.03, 5.0  # least gains of a change: share of the speed, and seconds
HOT, HOT_BLOCKS, HOT_MORE = 1.3, 3, 0.11
FINE = 0.9  # share of its peers' speed from which `tuner.health` accepts a worker
HEALTH = HealthSettings(after_s=60.0, replace_every_s=300.0, hopeless=0.6)


class PolicyParts(msgspec.Struct, frozen=True):
    """The parts of the policy that an ablation can switch off."""

    warm_start: bool = True
    direct_timers: bool = True
    exact: bool = True
    memory: bool = True
    health: bool = True
    hot_servers: bool = True


@dataclass(slots=True)
class _Job:
    """The state of one job. fitted_at: age of its observations at the last fit. looked_at: its blocks at the last
    check, and whether its model was due for a fit then."""

    prior: Prior | None = None
    first: Configuration | None = None
    fitted_at: tuple[int, int] | None = None
    looked_at: tuple[int, bool] = (-1, True)
    turn: int = 0  # number of fits of all jobs up to its own last one
    fitted: Fit | None = None
    options: tuple[Option, ...] = ()
    health: HealthState = field(default_factory=HealthState)
    judged: int = 0  # number of blocks in which the slowest worker was checked
    is_suspect: bool = False  # its slowest worker was slow at the last check
    skew: float | None = None  # share of the load that no move divides
    moved_at: int = 0  # number of blocks when buckets were moved last
    weighed: int = 0  # number of blocks when its PS were checked last


class ElastichostPolicy:
    """Each job has a frontier of configurations. It follows from the job's model, which is fitted to measurements of
    the job and of similar jobs. At every arrival, end and tick the options of all jobs are compared
    (`tuner.placement.allocation`)."""

    name = "elastichost"

    def __init__(self, parts: PolicyParts | None = None) -> None:
        self._parts = parts = parts or PolicyParts()
        self._digests = MergedObservations()
        self._jobs: dict[int, _Job] = {}
        self._records: list[JobRecord] = []
        self._memory = ForecastMemory(predicts=parts.memory)
        self._array: ConfigurationArray | None = None
        self._turn, self._refused = 0, RefusedRequests()
        self._choices = CachedAllocation(_exact if parts.exact else weighted_greedy)

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        for one in view.ended:
            self._learn(one, now_s)
        self._digests.forget(view.ended)
        for job in view.jobs:
            self._memory.observe(job)
        movable = [job for job in view.jobs if self._is_movable(job, view)]
        self._refused.note(view, now_s)
        chosen = self._allocate(view, movable)
        grants: dict[int, Grant | None] = {}
        for job in view.jobs:
            if job.is_changing:
                continue
            target = chosen.get(job.job, job.running)
            if target is None:
                continue
            memory = self._memory.granted(job, target, self._speed(job, target))
            grants[job.job] = self._cared_for(job, Grant(target, memory), now_s)
        self._refused.asked = {job: grant.configuration for job, grant in grants.items() if grant is not None}
        return grants

    def _is_movable(self, job: JobView, view: ClusterView) -> bool:
        """Whether the job's configuration may change. A job that is short of memory gets memory first. At a tick, a job
        changes only if its present configuration was measured, because otherwise nothing new is known about it."""
        if job.is_changing:
            return False
        if job.running is None:
            return True
        if job.job in self._jobs and self._memory.is_short(job, self._speed(job, job.running)):
            return False
        if view.trigger != "tick":
            return True
        return bool(job.observations) and job.observations[-1].configuration == job.running

    # --- speeds -------------------------------------------------------------------------------------------------------

    def _allocate(self, view: ClusterView, movable: list[JobView]) -> dict[int, Configuration]:
        cores = view.free_cores + sum(job.running.cores for job in movable if job.running is not None)
        problem, options = [], {}
        due = self._due(movable)
        for job in movable:
            known = self._options(view.limits, job, is_due=job.job in due)
            known = options[job.job] = self._refused.without(job, known)
            at = next((place for place, one in enumerate(known) if one.configuration == job.running), None)
            problem.append(JobOptions(job.job, max(job.samples_left, 1.0), known, current=at))
        versions = [(one.options, self._jobs[job.job].turn) for one, job in zip(problem, movable, strict=True)]
        chosen = self._choices.of(problem, Capacity(max(1, cores)), view.now_s, versions)
        found = {}
        for job in movable:
            if job.job in chosen:
                target = options[job.job][chosen[job.job]]
                found[job.job] = target.configuration if self._is_worth(job, target) else job.running
        return {job: target for job, target in found.items() if target is not None}

    def _is_worth(self, job: JobView, target: Option) -> bool:
        """Whether a change pays: not for a small gain or a job that ends soon. A change to fewer cores always does."""
        if job.running is None or target.cores < job.running.cores:
            return True
        present = self._speed(job, job.running)
        gain = target.samples_per_s / max(present, 1e-9) - 1
        return gain >= WORTH and gain * job.samples_left / max(target.samples_per_s, 1e-9) >= WORTH_S

    def _speed(self, job: JobView, configuration: Configuration) -> float:
        state = self._jobs[job.job]
        for option in state.options:
            if option.configuration == configuration:
                return option.samples_per_s
        if state.fitted is None:
            return job.samples_left / COLD_LEFT_S
        return float(state.fitted.predict(as_array([configuration])).samples_per_s[0])

    def _due(self, jobs: list[JobView]) -> set[int]:
        """Of the jobs with new measurements, those with the oldest models."""
        waiting = []
        for job in jobs:
            state = self._jobs.get(job.job)
            if state is None:
                waiting.append((0, job.job))
                continue
            blocks = len(job.observations)
            if state.looked_at[0] != blocks:
                is_old = state.fitted_at != MergedObservations.age(job, self._digests.update(job))
                state.looked_at = blocks, is_old
            if state.looked_at[1]:
                waiting.append((state.turn, job.job))
        most = min(MOST_FITS, max(LEAST_FITS, len(jobs) // FITS_OF))
        return {number for _, number in sorted(waiting)[:most]}

    def _options(self, limits: GrantLimits, job: JobView, *, is_due: bool) -> tuple[Option, ...]:
        """The frontier of the job's configurations in order of cost, and the running configuration."""
        state = self._jobs.get(job.job)
        if state is None:
            state = self._jobs[job.job] = self._begun(limits, job)
        if is_due:
            seen = self._digests.update(job)
            self._turn += 1
            state.turn, state.fitted_at = self._turn, MergedObservations.age(job, seen)
            state.looked_at = len(job.observations), False
            state.fitted = self._fit(job, state, seen)
            state.options = self._frontier(limits, job, state)
        elif not state.options:
            state.options = self._unknown(job, state)
        if job.running is not None and all(one.configuration != job.running for one in state.options):
            here = Option(job.running, self._speed(job, job.running), job.running.cores)
            state.options = (*state.options, here)
        return state.options

    def _fit(self, job: JobView, state: _Job, seen: Mapping[Configuration, Observation]) -> Fit | None:
        if not seen and state.prior is None:
            return None
        known = tuple(seen.values())
        if not self._parts.direct_timers:
            known = tuple(_untimed(one) for one in known)
        return fit("elastichost", job.workload, known, state.prior)

    def _frontier(self, limits: GrantLimits, job: JobView, state: _Job) -> tuple[Option, ...]:
        if state.fitted is None:
            return self._unknown(job, state)
        if self._array is None:
            array = candidates(limits)
            self._array = array[np.isin(array[:, 0], WORKERS) & np.isin(array[:, 1], SERVERS)]
        # The expected speeds: with speeds reduced by half a standard error, completion times are 4 % longer, because
        # unknown configurations are then never tried.
        speeds = state.fitted.predict(self._array).samples_per_s
        front = thinned_frontier(speeds, cores_of(self._array), OPTIONS)
        rows = zip(as_configurations(self._array[front]), speeds[front].tolist(), strict=True)
        return tuple(Option(configuration, speed, configuration.cores) for configuration, speed in rows)

    def _unknown(self, job: JobView, state: _Job) -> tuple[Option, ...]:
        """The first configuration of a job without a model."""
        first = state.first or COLD
        return (Option(first, job.samples_left / COLD_LEFT_S, first.cores),)

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _begun(self, limits: GrantLimits, job: JobView) -> _Job:
        if not self._parts.warm_start:
            return _Job()
        bounds = Bounds(limits.least, limits.most, share_cores=False)
        found = warm_start(job.features, self._records, bounds)
        if isinstance(found, ColdStart):
            return _Job()
        self._memory.expect(job.job, found.memory)
        return _Job(prior=found.prior if found.prior.mean else None, first=found.configuration)

    def _learn(self, ended: EndedJob, now_s: float) -> None:
        job = ended.view
        state = self._jobs.pop(job.job, None)
        memory = self._memory.learnt(job)
        if state is None or state.fitted is None or not job.observations or job.running is None:
            return
        best = max(job.observations, key=lambda one: one.samples_per_s)
        found = state.fitted.posterior()
        c = job.running
        size = PlanSize(c.workers, c.servers, c.worker_cores, c.server_cores)
        self._records.append(
            JobRecord(
                features=job.features,
                ended_utc=f"{now_s:020.3f}",
                best=size,
                samples_per_s=best.samples_per_s,
                final=size,
                ended_well=ended.outcome == "completed",
                model="elastichost",
                parameters=Estimates(found.mean, found.sd),
                memory=memory,
            )
        )
        del self._records[:-REMEMBERED]

    # --- stragglers and hot PS ----------------------------------------------------------------------------------------

    def _cared_for(self, job: JobView, grant: Grant, now_s: float) -> Grant:
        state = self._jobs[job.job]
        if job.running is None or grant.configuration != job.running or not job.observations:
            return grant
        return msgspec.structs.replace(
            grant,
            replace_straggler=self._parts.health and self._straggles(job, state, now_s),
            move_buckets=self._parts.hot_servers and self._is_hot(job, state),
        )

    def _straggles(self, job: JobView, state: _Job, now_s: float) -> bool:
        """Compares the slowest worker with its peers by `tuner.health`; True: it is to be replaced."""
        if len(job.slowest) <= state.judged:
            return False
        state.judged, slowest = len(job.slowest), job.slowest[-1]
        if slowest >= FINE and not state.is_suspect:
            return False
        state.is_suspect = slowest < FINE
        speeds = tuple(
            WorkerSpeed(ProcessId("worker", index, 1), rate, rate, has_work=True)
            for index, rate in enumerate((1.0, 1.0, slowest))
        )
        state.health, remarks = observe(state.health, speeds, HEALTH, now_s)
        return any(remark.replace for remark in remarks)

    def _is_hot(self, job: JobView, state: _Job) -> bool:
        """Whether a PS is hot: for HOT_BLOCKS blocks it has had more than HOT times its even share of the load, and a
        skew that is at least HOT_MORE above the skew that no move divides. The latter is the skew after the last move
        or the first one, whichever is less. With p PS, the hot share is skew + (1 - skew) / p."""
        blocks, servers = len(job.observations), job.running.servers if job.running is not None else 0
        if servers < 2 or blocks == state.weighed or blocks < state.moved_at + HOT_BLOCKS:
            return False
        state.weighed = blocks
        recent = job.observations[-HOT_BLOCKS:]
        if any(one.configuration != job.running for one in recent):
            return False
        skew = statistics.median(_skew(one.hot_share, servers) for one in recent)
        if state.skew is None or blocks == state.moved_at + HOT_BLOCKS:
            state.skew = skew
        state.skew = min(state.skew, skew)
        least = min(_skew(one.hot_share, servers) for one in recent)
        if least < state.skew + HOT_MORE or servers * least + 1 - least <= HOT:
            return False
        state.moved_at = blocks
        return True


def _exact(jobs: Sequence[JobOptions], capacity: Capacity) -> dict[JobId, int]:
    return dict(allocate(jobs, capacity, TIME_LIMIT_S).choices)


def _skew(hot_share: float | None, servers: int) -> float:
    return max(0.0, ((hot_share or 0.0) - 1 / servers) / (1 - 1 / servers))


def _untimed(observation: Observation) -> Observation:
    """The observation without the times that processes measure themselves."""
    return msgspec.structs.replace(
        observation,
        compute_s=None,
        reader_s=None,
        exchange_s=None,
        server_cpu_s=None,
        worker_cpu_s=None,
        bytes_moved=None,
    )
