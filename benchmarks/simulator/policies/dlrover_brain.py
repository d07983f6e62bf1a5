"""DLRover's production heuristics: rules about the CPU use of PS, and margins. Pure.

The order of the rules is that of the optimizers of DLRover's "brain" service
(github.com/intelligent-machine-learning/dlrover, go/brain). So are the constants, except those that
this project's design sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.simulator.cluster.views import ClusterView, EndedJob, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit
from benchmarks.simulator.policies.configurations import clamped
from elastichost.tuner.facts import Configuration, Observation, Workload

__all__ = ["CoresInUse", "DlroverBrainPolicy", "cores_in_use"]

GIB = 2**30
RECORDS = 3  # records of a configuration before a rule applies
OVERLOAD, HOT, EXHAUSTED = 0.85, 0.8, 0.99  # utilisation of a PS's cores
HOT_MEMORY, HOT_MEMORY_BYTES = 0.9, 8 * GIB  # share of the granted memory; bytes that each PS gets more
WORKERS_PER_STEP, WORKERS_LESS, FIRST_WORKERS = 8, 4, 32
DECELERATED = 0.2  # share of the speed that is lost
PS_MEMORY_MARGIN, WORKER_MEMORY_MARGIN, MOST_WORKER_MARGIN = 0.2, 0.6, 8 * GIB
COLD_SERVERS, COLD_SERVER_CORES, COLD_SERVER_BYTES = 4, 12, 16 * GIB
FIRST_WORKER_CORES, FIRST_WORKER_BYTES = 12, 16 * GIB
SERVER_CORES_MARGIN, HISTORY_CORES_MARGIN, MOST_SERVERS = 4, 0.5, 15
TARGET_WORKERS = 32
HISTORY = 10  # number of jobs of a family that are remembered


class CoresInUse(tuple[float, float, float]):
    """Cores in use: of the busiest PS, of all PS, and of one worker."""

    __slots__ = ()

    @property
    def busiest(self) -> float:
        return self[0]

    @property
    def servers(self) -> float:
        return self[1]

    @property
    def worker(self) -> float:
        return self[2]


def cores_in_use(observation: Observation, workload: Workload) -> CoresInUse:
    """Returns the cores in use as cgroups would report them: CPU seconds of an iteration times iterations per
    second."""
    iterations = observation.samples_per_s / workload.batch_size
    servers = iterations * (observation.server_cpu_s or 0.0)
    workers = 1 if workload.mode == "sync" else observation.configuration.workers
    worker = iterations * (observation.worker_cpu_s or 0.0) / workers
    share = observation.hot_share or 1.0 / observation.configuration.servers
    return CoresInUse((servers * share, servers, worker))


@dataclass(slots=True)
class _Job:
    is_adjusted: bool = False  # the PS were fitted, once, after the first records
    ooms: int = 0
    memory_factor: float = 1.0
    speed_before: float | None = None  # samples/s of the configuration before the present one
    records_from: int = 0  # first observation of the present configuration


@dataclass(slots=True)
class _Family:
    """The use of a family's ended jobs: cores of all PS (mean of each job) and of the busiest PS, cores of a worker,
    bytes of all PS."""

    servers: list[float] = field(default_factory=list)
    busiest: float = 0.0
    worker: float = 0.0
    server_bytes: float = 0.0


class DlroverBrainPolicy:
    """A job starts with one worker with 12 cores and four PS with 12 cores, or with the use of its family's jobs plus
    margins.

    After three records the PS are fitted to 32 workers (`ps_init_adjust`). Then `worker_resource` adds up to eight
    workers at a time while the busiest PS uses less than 0.85 of its cores, unless the last step lost a fifth of the
    speed. It takes four workers away if the busiest PS uses more than 0.99. If a PS uses more than 0.8, all PS are
    enlarged by the same ratio (`hot_ps`). Memory is the used memory plus a margin, and twice as much after a kill
    (`ps_oom`).
    """

    name = "dlrover_brain"

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}
        self._families: dict[str, _Family] = {}

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        for one in view.ended:
            self._learn(one)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: self._first(view, job))
        for job in view.jobs:
            if job.running is None or job.is_changing:
                continue
            grant = self._adjust(view, job, job.running, room)
            if grant is not None:
                grants[job.job] = grant
        return grants

    def _learn(self, ended: EndedJob) -> None:
        view = ended.view
        self._jobs.pop(view.job, None)
        if ended.outcome != "completed" or not view.observations:
            return
        family = self._families.setdefault(view.features.family, _Family())
        records = [cores_in_use(one, view.workload) for one in view.observations]
        family.servers = [*family.servers, sum(one.servers for one in records) / len(records)][-HISTORY:]
        family.busiest = max(family.busiest, max(one.busiest for one in records))
        family.worker = max(family.worker, max(one.worker for one in records))
        family.server_bytes = max(family.server_bytes, _server_bytes(view))

    def _first(self, view: ClusterView, job: JobView) -> Grant:
        """The first grant: `ps_create` from the family's history, without history `ps_cold_create`; `worker_create`."""
        family = self._families.get(job.features.family)
        workers = 1
        if family is None:
            configuration = clamped(view.limits, workers, COLD_SERVERS, FIRST_WORKER_CORES, COLD_SERVER_CORES)
            memory = configuration.servers * COLD_SERVER_BYTES + workers * FIRST_WORKER_BYTES
            return Grant(configuration, memory)
        cores = family.busiest + SERVER_CORES_MARGIN
        total = sum(family.servers) / len(family.servers) * (1 + HISTORY_CORES_MARGIN)
        servers = math.ceil(total / cores)
        if servers > MOST_SERVERS:
            servers, cores = MOST_SERVERS, math.ceil(total / MOST_SERVERS)
        worker_cores = max(math.ceil(family.worker), FIRST_WORKER_CORES)
        configuration = clamped(view.limits, workers, servers, worker_cores, math.ceil(cores))
        memory = int(family.server_bytes * (1 + PS_MEMORY_MARGIN)) + workers * FIRST_WORKER_BYTES
        return Grant(configuration, memory)

    def _adjust(self, view: ClusterView, job: JobView, running: Configuration, room: FreeCapacity) -> Grant | None:
        state = self._jobs.setdefault(job.job, _Job())
        if job.ooms > state.ooms:
            # The PS here share the tables evenly, so `ps_oom` doubles the number of PS. The memory of all PS doubles in
            # both cases.
            state.ooms = job.ooms
            state.memory_factor *= 2
            target = clamped(
                view.limits, running.workers, 2 * running.servers, running.worker_cores, running.server_cores
            )
            memory = max(2 * job.granted_memory_bytes, self._memory(job, target, state))
            fits = room.take(max(0, target.cores - running.cores), memory - job.granted_memory_bytes)
            return Grant(target if fits else running, memory)
        records = [one for one in job.observations[state.records_from :] if one.configuration == running]
        if len(records) < RECORDS:
            return None
        recent = [cores_in_use(one, job.workload) for one in records[-RECORDS:]]
        speed = sum(one.samples_per_s for one in records[-RECORDS:]) / RECORDS
        was_adjusted = state.is_adjusted
        target = self._affordable(running, self._target(view, running, recent, speed, state), room)
        memory = job.granted_memory_bytes
        if target != running or not was_adjusted:
            memory = self._memory(job, target, state)
        elif all(sample.used_bytes > HOT_MEMORY * memory for sample in job.memory[-RECORDS:]):
            memory += HOT_MEMORY_BYTES * running.servers
        if target == running and memory == job.granted_memory_bytes:
            return None
        if not room.take(0, max(0, memory - job.granted_memory_bytes)):
            return None
        if target != running:
            state.speed_before, state.records_from = speed, len(job.observations)
        return Grant(target, memory)

    def _target(
        self,
        view: ClusterView,
        running: Configuration,
        recent: Sequence[CoresInUse],
        speed: float,
        state: _Job,
    ) -> Configuration:
        busiest = sum(one.busiest for one in recent) / len(recent)
        if not state.is_adjusted:
            state.is_adjusted = True
            return self._fit_servers(view, running, recent)
        if busiest / running.server_cores > EXHAUSTED and running.workers > WORKERS_LESS:
            return clamped(
                view.limits,
                running.workers - WORKERS_LESS,
                running.servers,
                running.worker_cores,
                running.server_cores,
            )
        if busiest / running.server_cores > HOT:
            return self._enlarge_servers(view, running, busiest)
        is_slower = state.speed_before is not None and speed < (1 - DECELERATED) * state.speed_before
        peak = max(one.busiest for one in recent) / running.server_cores
        if peak >= OVERLOAD or is_slower:
            return running
        wanted = math.ceil(OVERLOAD / max(peak, 1e-3) * running.workers)
        step = WORKERS_PER_STEP if running.workers > 1 else FIRST_WORKERS
        workers = min(wanted, running.workers + step, FIRST_WORKERS if running.workers == 1 else wanted)
        worker_cores = math.ceil(max(one.worker for one in recent) + 1)
        return clamped(view.limits, workers, running.servers, worker_cores, running.server_cores)

    def _fit_servers(self, view: ClusterView, running: Configuration, recent: Sequence[CoresInUse]) -> Configuration:
        """`ps_init_adjust`: PS for the number of workers that the largest number of PS could serve, at most 32."""
        busiest = math.ceil(max(one.busiest for one in recent))
        cores = busiest + SERVER_CORES_MARGIN
        spread = max(busiest / (MOST_SERVERS / running.servers), 1e-9)  # cores in use of the busiest of 15 PS
        workers = min(TARGET_WORKERS, math.ceil(cores / spread * running.workers))
        total = workers / running.workers * max(one.servers for one in recent)
        servers = max(1, math.ceil(total / cores))
        return clamped(view.limits, running.workers, servers, running.worker_cores, cores)

    def _enlarge_servers(self, view: ClusterView, running: Configuration, busiest: float) -> Configuration:
        """`hot_ps`: enlarges the cores of all PS by the same ratio, so that they can serve 32 workers."""
        cores = math.ceil(busiest * max(1.0, TARGET_WORKERS / running.workers))
        cores = max(running.server_cores, cores)
        return clamped(view.limits, running.workers, running.servers, running.worker_cores, cores)

    def _memory(self, job: JobView, target: Configuration, state: _Job) -> int:
        """Bytes that PS and workers use now, plus their margins."""
        worker = job.facts.worker_bytes
        each = worker + min(WORKER_MEMORY_MARGIN * worker, MOST_WORKER_MARGIN)
        more = max(0, target.servers - job.observations[-1].configuration.servers) * job.facts.server_bytes
        servers = (_server_bytes(job) + more) * (1 + PS_MEMORY_MARGIN) * state.memory_factor
        return int(servers + target.workers * each)

    def _affordable(self, running: Configuration, target: Configuration, room: FreeCapacity) -> Configuration:
        """Returns the target with as many of its new workers as free cores allow; the running configuration if none
        fits."""
        for workers in range(target.workers, min(running.workers, target.workers) - 1, -1):
            tried = Configuration(workers, target.servers, target.worker_cores, target.server_cores)
            if room.take(max(0, tried.cores - running.cores), 0):
                return tried
        return running


def _server_bytes(job: JobView) -> float:
    """Bytes of all PS together at the last measurement."""
    return job.memory[-1].used_bytes - job.observations[-1].configuration.workers * job.facts.worker_bytes
