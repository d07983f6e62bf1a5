"""A policy that knows the truth: true speeds, memory, stragglers and hot PS; best choice across jobs. Pure.

It shows what is possible, and is not a competitor. No rule of allocation is best for every stream of jobs, because
later arrivals are known to none of them. So there are several oracles, one for each of URGENCIES. The bound for a
stream is the oracle that is best for it, chosen afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.settings import SEAMLESS, move_cost
from benchmarks.simulator.cluster.views import ClusterView, Grant, GrantLimits, JobFaults, JobView
from benchmarks.simulator.policies.allocation_cache import CachedAllocation
from benchmarks.simulator.policies.configurations import candidates, cores_of
from elastichost.tuner.cluster.refusals import RefusedGrants, is_refused, noted
from elastichost.tuner.facts import Configuration, ConfigurationArray
from elastichost.tuner.placement.allocation import RHO, Capacity, JobId, JobOptions, Option, allocate
from elastichost.tuner.policy.candidates import as_configurations
from elastichost.tuner.policy.frontier import thinned

__all__ = ["URGENCIES", "OraclePolicy"]

URGENCIES = (0.25, 0.5, 1.0)
OPTIONS = 20
PAYS_S = 600.0  # a change must pay within this time, or within the rest of the job
TIME_LIMIT_S = 60.0  # a limit of nodes ends a search, not the time
MEMORY_AHEAD_S, MEMORY_MARGIN = 600.0, 1.01
HEALTHY = JobFaults(0, 0.0)


class OraclePolicy:
    """At every arrival, end and tick it finds every job's frontier of true speed and cores, deducts the cost of each
    change, and allocates exactly over all jobs. Memory is granted for the next ten minutes. Stragglers are replaced and
    buckets are moved at the next decision."""

    name = "oracle"

    def __init__(self, jobs: Mapping[int, SimulatedJob], urgency: float = 1.0) -> None:
        """jobs: the truth about all jobs that will arrive. urgency: the weight of a job is its remaining time to the
        power of -urgency. 1 is like shortest remaining time first; 0.5 is the rule of `tuner.placement.allocation`."""
        self._jobs, self._urgency = jobs, urgency
        self._array: ConfigurationArray | None = None
        self._options: dict[int, tuple[Option, ...]] = {}
        self._ailing: Mapping[int, JobFaults] = {}
        self._refused, self._asked = RefusedGrants(), dict[JobId, Configuration]()
        self._choices = CachedAllocation(lambda problem, capacity: allocate(problem, capacity, TIME_LIMIT_S).choices)

    def hear(self, ailing: Mapping[int, JobFaults]) -> None:
        self._ailing = ailing

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        for one in view.ended:
            self._options.pop(one.view.job, None)
        self._refused = noted(self._refused, self._asked, {job.job: job.running for job in view.jobs}, now_s)
        movable = [job for job in view.jobs if not job.is_changing]
        cores = view.free_cores + sum(job.running.cores for job in movable if job.running is not None)
        known = {job.job: self._charged(job, self._placeable(view.limits, job)) for job in movable}
        problem = [self._problem(job, known[job.job]) for job in movable]
        offered = [tuple(one.configuration for one in options) for options in known.values()]
        chosen = self._choices.of(problem, Capacity(max(1, cores)), now_s, offered)
        asked: dict[JobId, Configuration] = {
            job.job: known[job.job][chosen[job.job]].configuration for job in movable if job.job in chosen
        }
        self._asked = asked
        return {job.job: self._grant(job, asked[job.job]) for job in movable if job.job in asked}

    def _placeable(self, limits: GrantLimits, job: JobView) -> tuple[Option, ...]:
        """The job's options without those refused lately, and with the running configuration."""
        known = self._known(limits, job)
        kept = tuple(one for one in known if not is_refused(self._refused, job.job, one.configuration)) or known
        if job.running is None or any(one.configuration == job.running for one in kept):
            return kept
        speed = self._jobs[job.job].truth.speed(job.running).samples_per_s
        return (*kept, Option(job.running, speed, job.running.cores))

    def _known(self, limits: GrantLimits, job: JobView) -> tuple[Option, ...]:
        """The frontier of the healthy job in order of cost. Faults are ignored, because they are repaired soon."""
        known = self._options.get(job.job)
        if known is None:
            if self._array is None:
                self._array = candidates(limits)
            speeds = self._jobs[job.job].truth.speeds(self._array)
            front = thinned(speeds, cores_of(self._array), OPTIONS)
            rows = zip(as_configurations(self._array[front]), speeds[front].tolist(), strict=True)
            known = tuple(Option(configuration, speed, configuration.cores) for configuration, speed in rows)
            self._options[job.job] = known
        return known

    def _charged(self, job: JobView, options: tuple[Option, ...]) -> tuple[Option, ...]:
        """The options with their mean speeds over the time in which a change must pay: speed * (1 - lost_s / over_s),
        with lost_s = seconds * (1 - kept * present speed / speed)."""
        running = job.running
        present = next((one for one in options if one.configuration == running), None)
        if running is None or present is None:
            return options
        spec = self._jobs[job.job]
        rows = spec.memory.used_bytes(spec.samples - job.samples_left, running) - running.workers * (
            spec.memory.worker_bytes
        )
        found = []
        for one in options:
            then, speed = one.configuration, max(one.samples_per_s, 1e-9)
            if then != running:
                # PS that are added or removed move this share of the rows
                share = abs(then.servers - running.servers) / max(then.servers, running.servers)
                seconds, kept = move_cost(SEAMLESS, running, then, share * rows)
                over_s = max(calibration.TICK_S, min(PAYS_S, job.samples_left / speed))
                lost_s = min(over_s, seconds * max(0.0, 1.0 - kept * present.samples_per_s / speed))
                one = msgspec.structs.replace(one, samples_per_s=speed * (1.0 - lost_s / over_s))
            found.append(one)
        return tuple(found)

    def _problem(self, job: JobView, options: tuple[Option, ...]) -> JobOptions:
        at = next((place for place, one in enumerate(options) if one.configuration == job.running), None)
        # `allocate` weights by T^-RHO, T being the time with the cheapest option
        least = max(min(options, key=lambda one: one.cores).samples_per_s, 1e-9)
        left_s = max(1.0, job.samples_left / least)
        weight = left_s ** (RHO - self._urgency)
        return JobOptions(job.job, max(1.0, job.samples_left), options, current=at, weight=weight)

    def _grant(self, job: JobView, configuration: Configuration) -> Grant:
        ailment = self._ailing.get(job.job, HEALTHY)
        is_hot = ailment.hot > 0 and job.running is not None and self._is_worth_moving(job, job.running, ailment.hot)
        return Grant(
            configuration,
            self._memory(job, configuration),
            replace_straggler=job.running is not None and ailment.stragglers > 0,
            move_buckets=is_hot,
        )

    def _memory(self, job: JobView, configuration: Configuration) -> int:
        spec = self._jobs[job.job]
        trained, most = spec.samples - job.samples_left, float(spec.samples)
        ahead = spec.truth.speed(configuration).samples_per_s * MEMORY_AHEAD_S
        whole, half = (
            MEMORY_MARGIN * spec.memory.used_bytes(min(most, trained + share * ahead), configuration)
            for share in (1.0, 0.5)
        )
        is_enough = configuration == job.running and half <= job.granted_memory_bytes
        return job.granted_memory_bytes if is_enough else int(whole) + 1

    def _is_worth_moving(self, job: JobView, running: Configuration, hot: float) -> bool:
        """Whether moving the hot share of the rows saves time. During the move the job has a part (`kept`) of its slow
        speed."""
        spec = self._jobs[job.job]
        healthy = spec.truth.speed(running).samples_per_s
        ill = spec.truth.speed(running, min(0.95, spec.truth.skew + hot)).samples_per_s
        rows = hot * spec.memory.used_bytes(spec.samples - job.samples_left, running)
        seconds, kept = move_cost(SEAMLESS, running, running, rows)
        stays_s = job.samples_left / ill
        moves_s = seconds + max(0.0, job.samples_left - seconds * kept * ill) / healthy
        return moves_s < stays_s
