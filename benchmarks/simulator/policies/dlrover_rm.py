"""DLRover-RM as in its paper: warm start, fitted plans, greedy choice across jobs, reaction to faults. Pure.

Wang, Lan, Tang et al., "DLRover-RM: resource optimization for deep recommendation models training in the cloud", PVLDB
17(12), 2024. Choices that the paper leaves open are stated where they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, EndedJob, Grant, GrantLimits, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit, least_servers
from benchmarks.simulator.policies.configurations import candidates, clamped, cores_of
from benchmarks.simulator.policies.dlrover_brain import cores_in_use
from benchmarks.simulator.policies.merged_observations import MergedObservations
from elastichost.tuner.facts import Configuration, ConfigurationArray, as_array
from elastichost.tuner.models.registry import fit
from elastichost.tuner.placement.allocation import Capacity, JobOptions, Option, weighted_greedy
from elastichost.tuner.policy.candidates import Bounds, as_configurations
from elastichost.tuner.policy.frontier import nsga2, resource_cost, thinned

__all__ = ["DlroverRmPolicy"]

INTERVAL_S, TICK_S = 180.0, 30.0  # time between plans; time between plans while jobs wait
SIMILAR, SMOOTHING = 5, 0.5
COLD = Configuration(4, 2, 4, 4)
PLANS = 16
WORTH = 1.05  # least ratio of the new to the present speed for a change
MEMORY_MARGIN, HORIZON_S = 0.2, 900.0
HOT, RECORDS = 0.8, 3  # utilisation of the busiest PS


class _Past(msgspec.Struct, frozen=True):
    """The last configuration and memory of a job that completed."""

    final: Configuration
    peak_bytes: float


class DlroverRmPolicy:
    """Stage 1, pre-scaling: a job starts with the exponentially smoothed last configurations of the SIMILAR last jobs
    of the same family and user; the newest has the weight SMOOTHING. Without such jobs it starts with COLD (the paper's
    jobs always find some in months of history).

    Stage 2, auto-scaling, every INTERVAL_S, and every TICK_S while jobs wait: the sum form of the step time is fitted
    by NNLS (`published.dlrover_rm`). The plans are the frontier of predicted throughput and resource cost. Across
    jobs the choice is the weighted greedy one by resource efficiency (`tuner.placement.allocation`). search: "exact"
    uses the frontier of all candidates, of which the paper's NSGA-II finds a part; "nsga2" is the search of the paper,
    and takes a second for each job.

    Stage 3, post-scaling: memory is granted for the value that a linear trend reaches within HORIZON_S, plus a margin.
    If a PS is hot for three records, all PS get more cores, because all PS are alike here. Slow workers get fewer
    samples by dynamic sharding, as in every asynchronous job of this runtime, and are not replaced.
    """

    name = "dlrover_rm"

    def __init__(self, search: Literal["exact", "nsga2"] = "exact", seed: int = 0) -> None:
        self._search, self._seed = search, seed
        self._digests = MergedObservations()
        self._past: dict[tuple[str, str], list[_Past]] = {}
        self._plans: dict[int, tuple[tuple[int, int], tuple[Option, ...]]] = {}
        self._kills: dict[int, tuple[int, int]] = {}  # job -> number of kills, and the least bytes that it gets since
        self._array: ConfigurationArray | None = None
        self._decided_s = -INTERVAL_S

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self._digests.forget(view.ended)
        for one in view.ended:
            self._learn(one)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: self._first(view, job))
        waits = any(job.running is None and job.job not in grants for job in view.jobs)
        is_time = now_s - self._decided_s >= (TICK_S if waits else INTERVAL_S)
        chosen: dict[int, Grant] = {}
        if is_time:
            self._decided_s = now_s
            chosen = self._plan(view, room, grants)
        for job in view.jobs:
            if job.running is None:
                if job.job in chosen:
                    grants[job.job] = chosen[job.job]
            elif not job.is_changing:
                target = chosen[job.job].configuration if job.job in chosen else job.running
                if target == job.running and is_time and not waits:
                    target = self._relieved(view, room, job, job.running)
                grants[job.job] = Grant(target, self._memory(job, target))
        return grants

    # --- stage 1 ------------------------------------------------------------------------------------------------------

    def _learn(self, ended: EndedJob) -> None:
        view = ended.view
        self._plans.pop(view.job, None)
        self._kills.pop(view.job, None)
        if ended.outcome == "completed" and view.running is not None and view.memory:
            past = self._past.setdefault((view.features.family, view.features.user), [])
            past.append(_Past(view.running, max(sample.used_bytes for sample in view.memory[-1:])))
            del past[:-SIMILAR]

    def _first(self, view: ClusterView, job: JobView) -> Grant:
        past = self._past.get((job.features.family, job.features.user))
        if not past:
            tables_bytes = 4.0 * job.features.mean_dim * job.features.rows
            memory = max(float(job.requested_memory_bytes), tables_bytes)
            servers = max(COLD.servers, least_servers(view, int(memory)))
            return Grant(clamped(view.limits, COLD.workers, servers, COLD.worker_cores, COLD.server_cores), int(memory))
        smoothed = np.array(_row(past[0].final), dtype=np.float64)
        for one in past[1:]:
            smoothed = SMOOTHING * np.array(_row(one.final)) + (1 - SMOOTHING) * smoothed
        configuration = clamped(view.limits, *(float(value) for value in np.round(smoothed)))
        return Grant(configuration, int(max(one.peak_bytes for one in past) * (1 + MEMORY_MARGIN)))

    # --- stage 2 ------------------------------------------------------------------------------------------------------

    def _plan(self, view: ClusterView, room: FreeCapacity, started: Mapping[int, Grant]) -> dict[int, Grant]:
        """Plans for all running jobs that are not changing, and for waiting jobs if running jobs can give up cores."""
        jobs = [job for job in view.jobs if job.running is not None and not job.is_changing and job.observations]
        options = {job.job: self._options(view.limits, job, job.running) for job in jobs if job.running is not None}
        cores = room.cores + sum(job.running.cores for job in jobs if job.running is not None)
        problem = [JobOptions(job.job, job.samples_left, options[job.job], current=0) for job in jobs]
        first = {job.job: self._first(view, job) for job in view.jobs if job.running is None and job.job not in started}
        for number, grant in first.items():
            problem.append(JobOptions(number, 1.0, (Option(grant.configuration, 1.0, grant.configuration.cores),)))
        chosen = weighted_greedy(problem, Capacity(max(1, cores)))
        found = {number: grant for number, grant in first.items() if number in chosen}
        for job in jobs:
            now, then = options[job.job][0], options[job.job][chosen.get(job.job, 0)]
            is_worth = then.samples_per_s >= WORTH * now.samples_per_s or then.cores < now.cores
            found[job.job] = Grant((then if is_worth else now).configuration, job.granted_memory_bytes)
        room.cores = cores - sum(grant.configuration.cores for grant in found.values())
        return found

    def _options(self, limits: GrantLimits, job: JobView, running: Configuration) -> tuple[Option, ...]:
        """The running configuration, then the job's plans in order of cost."""
        seen = self._digests.update(job)
        key = MergedObservations.age(job, seen)
        known = self._plans.get(job.job)
        if known is not None and known[0] == key and known[1][0].configuration == running:
            return known[1]
        fitted = fit("dlrover_rm", job.workload, tuple(seen.values()))

        def speed(array: ConfigurationArray) -> npt.NDArray[np.float64]:
            return fitted.predict(array).samples_per_s

        array = self._candidates(limits, speed)
        array = np.concatenate([as_array([running]), array])
        gain = speed(array)
        front = thinned(gain, resource_cost(array), PLANS)
        rows = [0, *(int(row) for row in front if row)]
        chosen = zip(as_configurations(array[rows]), gain[rows].tolist(), strict=True)
        plans = tuple(Option(configuration, rate, configuration.cores) for configuration, rate in chosen)
        self._plans[job.job] = key, plans
        return plans

    def _candidates(self, limits: GrantLimits, speed: object) -> ConfigurationArray:
        if self._search == "nsga2":
            bounds = Bounds(limits.least, limits.most, share_cores=False)
            return nsga2(bounds, speed, cores_of, self._seed).configurations  # type: ignore[arg-type]
        if self._array is None:
            self._array = candidates(limits)
        return self._array

    # --- stage 3 ------------------------------------------------------------------------------------------------------

    def _memory(self, job: JobView, target: Configuration) -> int:
        """Bytes that the trend of the last records reaches, plus a margin; after a kill at least twice the memory at
        the kill."""
        ooms, least = self._kills.get(job.job, (0, 0))
        if job.ooms > ooms:
            least = 2 * job.granted_memory_bytes
            self._kills[job.job] = job.ooms, least
        recent = list(zip(job.memory[-2 * RECORDS :], job.observations[-2 * RECORDS :], strict=True))
        if len(recent) < 2:
            return max(least, job.granted_memory_bytes)
        tables = [sample.used_bytes - _private_bytes(job, one.configuration) for sample, one in recent]
        slope = (tables[-1] - tables[0]) / max(1.0, recent[-1][0].at_s - recent[0][0].at_s)
        left_s = job.samples_left / max(1e-9, job.observations[-1].samples_per_s)
        ahead = max(0.0, slope) * min(HORIZON_S, left_s)
        present = tables[-1] + _private_bytes(job, target)
        needed = (present + ahead) * (1 + MEMORY_MARGIN)
        is_right = present + ahead <= job.granted_memory_bytes <= 1.5 * needed
        return max(least, job.granted_memory_bytes if is_right else int(needed))

    def _relieved(self, view: ClusterView, room: FreeCapacity, job: JobView, running: Configuration) -> Configuration:
        """Returns a configuration with more cores for each PS if one PS is hot; otherwise the running configuration."""
        recent = [one for one in job.observations[-RECORDS:] if one.configuration == running]
        busy = [cores_in_use(one, job.workload).busiest / running.server_cores for one in recent]
        if len(busy) < RECORDS or min(busy) <= HOT:
            return running
        cores = running.server_cores + max(1, running.server_cores // 2)
        target = clamped(view.limits, running.workers, running.servers, running.worker_cores, cores)
        return target if room.take(target.cores - running.cores, 0) else running


def _private_bytes(job: JobView, configuration: Configuration) -> int:
    return configuration.workers * job.facts.worker_bytes + configuration.servers * job.facts.server_bytes


def _row(configuration: Configuration) -> tuple[int, int, int, int]:
    c = configuration
    return c.workers, c.servers, c.worker_cores, c.server_cores
