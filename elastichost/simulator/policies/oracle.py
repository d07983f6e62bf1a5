"""Who knows the truth: true speeds and memory, and the best choice across jobs. What is possible, not a rival. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from elastichost.simulator.jobs import JobSpec
from elastichost.simulator.policies.common import candidates, cores_of, thinned_frontier
from elastichost.simulator.views import ClusterView, Grant, JobView, Limits
from elastichost.tuner.allocate import Capacity, JobOptions, Option, allocate
from elastichost.tuner.candidates import as_configurations
from elastichost.tuner.facts import Configuration, ConfigurationArray

__all__ = ["Oracle"]

OPTIONS = 20
INTERVAL_S = 300.0  # when nobody comes or goes
MEMORY_AHEAD_S, MEMORY_MARGIN = 600.0, 1.02
BLOCKS = 3  # that say the same, before anything is done about it
STRAGGLES = 0.5  # a slowest worker below this is a straggler
HOT = 1.15  # hot share over what it is while the job is healthy


class Oracle:
    """Every job's frontier of true speed and cores, and the exact allocation over all jobs, when a job comes or goes
    and every INTERVAL_S. Memory is granted for the next ten minutes. What is measured tells it of stragglers and hot
    PS, as it tells others."""

    name = "oracle"

    def __init__(self, jobs: Mapping[int, JobSpec]) -> None:
        """jobs: the truth about all jobs that will come."""
        self._jobs = jobs
        self._array: ConfigurationArray | None = None
        self._options: dict[int, tuple[Option, ...]] = {}
        self._decided_s = -INTERVAL_S
        self._acted_at: dict[int, int] = {}  # job -> blocks it had when a worker or buckets were moved last

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        for one in view.ended:
            self._options.pop(one.view.job, None)
            self._acted_at.pop(one.view.job, None)
        movable = [job for job in view.jobs if not job.is_changing]
        if view.trigger == "tick" and now_s - self._decided_s < INTERVAL_S:
            return {job.job: self._grant(job, job.running) for job in movable if job.running is not None}
        self._decided_s = now_s
        cores = view.free_cores + sum(job.running.cores for job in movable if job.running is not None)
        problem = []
        for job in movable:
            options = self._known(view.limits, job)
            at = next((place for place, one in enumerate(options) if one.configuration == job.running), None)
            problem.append(JobOptions(job.job, job.samples_left, options, current=at))
        chosen = allocate(problem, Capacity(max(1, cores))).choices
        return {
            job.job: self._grant(job, self._options[job.job][chosen[job.job]].configuration)
            for job in movable
            if job.job in chosen
        }

    def _known(self, limits: Limits, job: JobView) -> tuple[Option, ...]:
        known = self._options.get(job.job)
        if known is None:
            if self._array is None:
                self._array = candidates(limits)
            speeds = self._jobs[job.job].truth.speeds(self._array)
            front = thinned_frontier(speeds, cores_of(self._array), OPTIONS)
            rows = zip(as_configurations(self._array[front]), speeds[front].tolist(), strict=True)
            known = tuple(Option(configuration, speed, configuration.cores) for configuration, speed in rows)
            self._options[job.job] = known
        return known

    def _grant(self, job: JobView, configuration: Configuration) -> Grant:
        spec = self._jobs[job.job]
        trained = spec.samples - job.samples_left
        ahead = spec.truth.speed(configuration).samples_per_s * MEMORY_AHEAD_S
        needed = MEMORY_MARGIN * spec.memory.used_bytes(min(float(spec.samples), trained + ahead), configuration)
        half = MEMORY_MARGIN * spec.memory.used_bytes(min(float(spec.samples), trained + ahead / 2), configuration)
        is_enough = configuration == job.running and half <= job.granted_memory_bytes
        memory = job.granted_memory_bytes if is_enough else int(needed)
        if job.running is None or configuration != job.running:
            return Grant(configuration, memory)
        is_slow, is_hot = self._straggles(job), self._is_hot(job)
        if is_slow or is_hot:
            self._acted_at[job.job] = len(job.observations)
        return Grant(configuration, memory, replace_straggler=is_slow, move_buckets=is_hot)

    def _straggles(self, job: JobView) -> bool:
        recent = job.slowest[self._acted_at.get(job.job, 0) :][-BLOCKS:]
        return len(recent) == BLOCKS and max(recent) < STRAGGLES

    def _is_hot(self, job: JobView) -> bool:
        recent = job.observations[self._acted_at.get(job.job, 0) :][-BLOCKS:]
        servers, skew = recent[0].configuration.servers if recent else 1, self._jobs[job.job].truth.skew
        if len(recent) < BLOCKS or servers < 2 or any(one.configuration != job.running for one in recent):
            return False
        healthy = skew + (1 - skew) / servers
        return all((one.hot_share or healthy) > HOT * healthy for one in recent)
