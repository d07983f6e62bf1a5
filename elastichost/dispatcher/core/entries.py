"""The entry of one job in the dispatcher's core, and the demand and status that follow from it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from elastichost.dispatcher.core.demands import (
    Examined,
    HostPower,
    Known,
    basis_of,
    learnt,
    memory_of,
    modes_of,
    prior,
    waits_for_unknown,
    with_frontier,
)
from elastichost.dispatcher.core.effects import Effect, Lent, NoteEvent, StartJob
from elastichost.dispatcher.core.input_capacity import InputCapacity, JobReading
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent, next_state
from elastichost.dispatcher.facts import (
    ENDED_STATES,
    OVER_STATES,
    JobObservation,
    JobRequest,
    JobSample,
    JobState,
    JobStatus,
    Size,
)
from elastichost.metrics import PlanStatus
from elastichost.runs.events import JobStarted
from elastichost.tuner.cluster.proposals import Proposal
from elastichost.tuner.colocation.facts import (
    CPU,
    RESOURCES,
    HostCapacity,
    JobDemand,
    Mode,
    PlacedJob,
    Start,
)
from elastichost.tuner.colocation.kinds import kind_of
from elastichost.tuner.facts import Configuration

__all__ = ["COMPUTING_NICE", "JobEntry", "StopCause", "begun", "first_to_start"]

# Seconds from a job's start until it computes; share of its demand that a job keeps while it is evaluated and saved.
START_S, FINISHING = 1.0, 0.3
# Jobs run at nice 5, and the process that forks them at nice 0, so that it gets a core at once. With equal nice values
# it needed 7 s to fork 24 jobs, one after another. A batch of 24 jobs that wait for their input took 0.84 of the time
# with nice 5 (three pairs of runs: 0.87, 0.83, 0.80).
COMPUTING_NICE = 5
# Seconds until a status shows a new size: a status is written each second, and a worker needs one to start or to end.
CHANGES_S = 2.0
StopCause = Literal["", "cancel", "evict", "memory", "host"]


@dataclass(slots=True)
class JobEntry:
    """Everything that the core knows of one job. Times are seconds since the dispatcher began.

    examined: None: its examination is not done. known: measurements of its speed. placed: None: it has no supervisor.
    has_run: its run directory holds a run to continue. raised: factor on its memory estimates after it ran out of
    memory. alone: at its next start no other job may run."""

    request: JobRequest
    submitted_s: float
    state: JobState = "waiting"
    why: str = ""
    examined: Examined | None = None
    known: Known | None = None
    placed: PlacedJob | None = None
    last_placed: PlacedJob | None = None  # the present placement, or the last one
    seen: JobObservation | None = None  # the newest
    look: JobSample | None = None  # the newest measurement of its speed
    look_s: float = 0.0  # time of that
    has_run: bool = False
    holds_arena: bool = False  # until its start: its arena is left from an earlier dispatcher and occupies memory
    incarnation: int = 0
    starts: int = 0
    started_s: float | None = None
    placed_s: float = 0.0
    ended_s: float | None = None
    stop_cause: StopCause = ""
    exit_code: int | None = None
    raised: float = 1.0
    alone: bool = False
    out_of_memory: int = 0
    not_before_s: float = 0.0
    nice: int = COMPUTING_NICE
    not_started: int = 0  # consecutive failures to fork its supervisor or its examination
    taken_cores: tuple[int, tuple[int, ...]] | None = None  # incarnation, and the cores that its run last confirmed
    granted: Configuration | None = None  # the last proposal of its run's own tuner that was granted
    refusals: int = 0  # consecutive refusals of what its run was lent
    differs_since_s: float | None = None  # since when its run has another size than it was told
    had_workers: tuple[int, float] = (0, 0.0)  # most workers that may still be alive, and until when
    told_workers: tuple[int, float] = (0, 0.0)  # workers that may be alive before a status shows them, and until when
    peak_bytes: int = 0  # of this incarnation: the next one may have another size
    earlier_peak_bytes: int = 0  # of those before it
    estimated_bytes: int = 0
    admitted_bytes: int = 0  # charge at its start, raised when it gets more workers
    predicted: float = 0.0
    cores: tuple[int, ...] = ()
    auc: float | None = None
    trained: int = 0
    cpu_s: float = 0.0  # CPU seconds of its ended incarnations

    @property
    def job(self) -> str:
        return self.request.job

    @property
    def is_live(self) -> bool:
        return self.state in ("starting", "running", "paused", "stopping")

    @property
    def has_ended(self) -> bool:
        """Whether this dispatcher does nothing more for it. A stopped job continues under the next dispatcher."""
        return self.state in ENDED_STATES

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return self.state in OVER_STATES

    def takes(self, used_bytes: int, now_s: float, workers: int = 0) -> None:
        """Records the memory that the job uses now. At a new peak, `estimated_bytes` becomes the estimate for its
        present number of workers, which may differ from the number at its start. workers: 0: the largest number that
        may be alive now."""
        workers = workers or self._most_workers(now_s)
        if used_bytes <= self.peak_bytes:
            return
        self.peak_bytes = used_bytes
        if workers and self.examined is not None:
            self.estimated_bytes = int(self.raised * memory_of(self.examined, workers).host_bytes)

    def _most_workers(self, now_s: float) -> int:
        """The largest number of workers that may be alive now; 0: not known. A status is up to a second old, so new
        workers may already be alive, and old ones may still be."""
        run = self.seen.status if self.seen is not None else None
        counted = sum(one.role == "worker" for one in run.processes) if run is not None else 0
        if not counted:
            return 0
        most, until_s = self.had_workers
        if counted >= most or now_s >= until_s:
            most = counted
            self.had_workers = most, now_s + CHANGES_S
        told = self.placed.mode.workers if self.placed is not None else 0
        if told != self.told_workers[0]:
            self.told_workers = told, now_s + CHANGES_S
        return max(most, told if now_s < self.told_workers[1] else 0)

    def apply(self, event: JobLifecycleEvent, why: str) -> None:
        """Changes the state. why: the reason that users see. Raises IllegalTransitionError."""
        self.state, self.why = next_state(self.state, event), why

    def demand(self, power: HostPower, current: int | None = None) -> JobDemand:
        """The resources that the job demands, by what is known now. It must be examined. current: its present number of
        workers; None: it does not run."""
        assert self.examined is not None
        known = self.known or prior(self.examined)
        modes = modes_of(self.examined, known, power, current)
        if current is not None and self.seen is not None and self.seen.status is not None:
            modes = with_frontier(modes, self.seen.status.frontier, current)
        if self.raised != 1.0:
            modes = tuple(
                msgspec.structs.replace(mode, memory_bytes=int(mode.memory_bytes * self.raised)) for mode in modes
            )
        return JobDemand(
            job=self.job,
            kind=kind_of(modes[-1].demand, self._wait_share(known, modes[-1])),
            modes=modes,
            samples_left=max(1.0, self.examined.samples_planned - self.trained),
            arrived_s=self.submitted_s,
            weight=self.request.weight,
            is_measured=known.is_measured,
            exclusive=self.alone,
            not_before_s=self.not_before_s,
            basis=basis_of(known, power),
            waits_for_unknown=waits_for_unknown(known, power),
        )

    @property
    def may_read(self) -> bool:
        """Whether it may read training data now: it has processes, and is not known to do something else."""
        run = self.seen.status if self.seen is not None else None
        is_active = self.state in ("starting", "running", "stopping")
        return is_active and (run is None or run.state in ("starting", "training"))

    def learns(
        self, look: JobSample, inputs: InputCapacity, cores: int, now_s: float, others: Collection[str] = ()
    ) -> Known:
        """Takes a measurement of its speed, and tells `inputs` what it has read. cores: of the host. others: the other
        jobs that may read now. Returns what is known now, which holds for its twins too. It must be placed and
        examined."""
        assert self.placed is not None and self.examined is not None
        self.look, self.look_s = look, now_s
        is_contested = inputs.is_contested(self.job, now_s, others)
        known, threads = self.known or prior(self.examined), self.placed.mode.worker_cores
        self.known = learnt(known, look, threads, cores, is_contested=is_contested)
        if look.read_bytes is not None and look.input_wait_s is not None:
            read = look.read_bytes / look.seconds
            twin, wait, lacking = self.examined.twin, look.input_wait_share, look.core_wait_share
            each = look.worker_cpu_s / max(1.0, look.read_bytes)
            reading = JobReading(self.job, twin, look.workers, read, wait, each, lacking, look.seconds, now_s)
            inputs.take(reading, others)
        return self.known

    def _wait_share(self, known: Known, mode: Mode) -> float:
        """Share of the time in which a worker does not compute while the job is alone on the host."""
        assert self.examined is not None
        return max(0.0, 1.0 - mode.samples_per_s * known.worker_cpu_s / max(1, mode.workers * mode.worker_cores))

    @property
    def is_finishing(self) -> bool:
        """Whether its training ends before another job that starts now begins to compute. From then on the job only
        evaluates and saves, which needs few cores."""
        run = self.seen.status if self.seen is not None else None
        if run is None or self.state != "running" or not run.samples_planned:
            return False
        left = run.samples_planned - run.samples_trained
        return left <= START_S * run.samples_per_s or (run.state in ("evaluating", "checkpointing") and left <= 0)

    def replaced(self, power: HostPower) -> None:
        """Updates the demand of a job that has a placement to what is known now."""
        if self.placed is None:
            return
        workers = self.placed.mode.workers
        demand = self.demand(power, workers)
        if self.is_finishing:
            demand = msgspec.structs.replace(demand, modes=tuple(map(_finishing, demand.modes)))
        index = next((at for at, mode in enumerate(demand.modes) if mode.workers == workers), len(demand.modes) - 1)
        placement = msgspec.structs.replace(self.placed.placement, mode=index)
        self.placed = msgspec.structs.replace(self.placed, demand=demand, placement=placement)

    def becomes(self, size: Size, power: HostPower) -> bool:
        """Changes the mode to a size with other numbers of PS and threads too, which all its modes have from now on.
        Returns False, and changes nothing, if no mode has that many workers."""
        assert self.placed is not None and self.examined is not None
        before = self.examined
        self.examined = msgspec.structs.replace(before, servers=size.servers, threads=size.worker_cores)
        demand = self.demand(power, size.workers)
        index = next((at for at, mode in enumerate(demand.modes) if mode.workers == size.workers), None)
        if index is None:
            self.examined = before
            return False
        placement = msgspec.structs.replace(self.placed.placement, mode=index)
        self.placed = msgspec.structs.replace(self.placed, demand=demand, placement=placement)
        return True

    @property
    def proposal(self) -> Proposal | None:
        """What its run's own tuner proposes; None: nothing, or it is stale, because the job has another size by now."""
        run = self.seen.status if self.seen is not None else None
        if run is None or run.proposal is None or self.placed is None or self.state != "running":
            return None
        mode, told = self.placed.mode, run.proposal
        if told.present != PlanStatus(mode.workers, mode.servers, mode.worker_cores):
            return None
        return Proposal(_configuration(told.present), _configuration(told.wanted), told.kind, told.reason)

    @property
    def is_tried(self) -> bool:
        """Whether it runs a granted proposal that its run's tuner has not measured yet."""
        run = self.seen.status if self.seen is not None else None
        return self.granted is not None and run is not None and not run.is_measured

    @property
    def own_tuner(self) -> str:
        """What its run's own tuner proposes or has got, in words; "": nothing."""
        if (proposal := self.proposal) is not None:
            return f"its tuner proposes {proposal.wanted}: {proposal.reason}"
        if self.granted is None or not self.is_live:
            return ""
        return f"its tuner {'measures' if self.is_tried else 'has got'} {self.granted}, as it proposed"

    def status(self, gpu_index: int | None) -> JobStatus:
        """The status of the job for `host.json`. gpu_index: CUDA index of its GPU."""
        placed, seen = self.placed or self.last_placed, self.seen
        mode = placed.mode if placed is not None else None
        run = seen.status if seen is not None else None
        return JobStatus(
            job=self.job,
            state=self.state,
            own_tuner=self.own_tuner,
            run_dir=self.request.run_dir,
            why=self.why,
            kind=placed.demand.kind if placed is not None else "",
            submitted_s=self.submitted_s,
            started_s=self.started_s,
            ended_s=self.ended_s,
            starts=self.starts,
            workers=mode.workers if mode is not None else 0,
            servers=mode.servers if mode is not None else 0,
            worker_cores=mode.worker_cores if mode is not None else 0,
            cores=self.cores,
            gpu=gpu_index if placed is not None and placed.placement.device != CPU else None,
            samples_planned=self.examined.samples_planned if self.examined is not None else 0,
            samples_trained=self.trained,
            samples_per_s=run.samples_per_s if run is not None and self.is_live else 0.0,
            solo_samples_per_s=mode.samples_per_s if mode is not None else 0.0,
            demand=mode.demand if mode is not None else (),
            demand_basis=placed.demand.basis if placed is not None else (),
            read_bytes_per_s=mode.samples_per_s * (self.known.read_bytes or 0.0) if mode and self.known else 0.0,
            predicted_speed=self.predicted if self.is_live else 0.0,
            cpu_cores=seen.cpu_cores if seen is not None and self.is_live else 0.0,
            cpu_s=self.cpu_s,
            memory_bytes=seen.memory_bytes if seen is not None and self.is_live else 0,
            gpu_memory_bytes=seen.gpu_memory_bytes if seen is not None and self.is_live else 0,
            peak_bytes=max(self.peak_bytes, self.earlier_peak_bytes),
            estimated_bytes=self.estimated_bytes,
            charged_bytes=self.placed.charged_bytes if self.placed is not None else 0,
            exit_code=self.exit_code,
            out_of_memory=self.out_of_memory,
            test_auc=self.auc,
        )


def first_to_start(entries: Iterable[JobEntry]) -> list[JobEntry]:
    """The waiting jobs that may start before the others. The arena of a job that an earlier dispatcher left occupies
    memory, for which no job is charged until that job has started. So jobs with such arenas start first; the others
    learn why they wait."""
    waiting = [entry for entry in entries if entry.state == "waiting"]
    holders = [entry for entry in waiting if entry.holds_arena]
    for entry in waiting if holders else ():
        if not entry.holds_arena and entry.examined is not None:
            entry.why = f"waits until {holders[0].job} has started, whose rows an earlier dispatcher left in memory"
    return holders or waiting


def begun(
    entry: JobEntry, start: Start, placed: PlacedJob, cores: tuple[int, ...], room: HostCapacity, now_s: float
) -> tuple[Effect, ...]:
    """Starts a job. cores: those of the host, which all jobs may use until they are shared. room: of the host."""
    entry.placed = entry.last_placed = placed
    entry.placed_s, entry.incarnation = now_s, entry.incarnation + 1
    entry.estimated_bytes, entry.admitted_bytes = placed.mode.memory_bytes, start.charged_bytes
    entry.earlier_peak_bytes, entry.peak_bytes = max(entry.earlier_peak_bytes, entry.peak_bytes), 0
    entry.starts += 1
    entry.started_s = now_s if entry.started_s is None else entry.started_s
    entry.seen = entry.granted = None
    entry.holds_arena = False
    entry.cores = cores
    entry.apply(JobLifecycleEvent.START, start.reason)
    mode, is_open = placed.mode, entry.examined is not None and entry.examined.size_is_open
    gpu = room.gpus[start.placement.device].index if start.placement.device != CPU else None
    return (
        NoteEvent(started(start, placed)),
        StartJob(
            start.job,
            entry.incarnation,
            Lent(entry.cores, room.memory_bytes, gpu, start.charged_gpu_bytes),
            Size(mode.workers, mode.servers, mode.worker_cores) if is_open else None,
            resume=entry.has_run,
            charged_bytes=start.charged_bytes,
            threads=mode.cores + mode.servers,
            nice=entry.nice,
        ),
    )


def started(start: Start, placed: PlacedJob) -> JobStarted:
    """The event of a start, with the demand of the job on each resource that it uses and the origin of that."""
    rows = zip(RESOURCES, placed.mode.demand, placed.demand.basis or [""] * len(RESOURCES), strict=True)
    used = [(name, share, basis) for name, share, basis in rows if share > 0]
    return JobStarted(
        job=start.job,
        reason=start.reason,
        workers=placed.mode.workers,
        charged_bytes=start.charged_bytes,
        speeds=dict(start.speeds),
        demand={name: round(share, 4) for name, share, _ in used},
        basis={name: basis for name, _, basis in used if basis},
    )


def _configuration(plan: PlanStatus) -> Configuration:
    return Configuration(plan.workers, plan.servers, plan.worker_cores)


def _finishing(mode: Mode) -> Mode:
    return msgspec.structs.replace(mode, demand=tuple(FINISHING * share for share in mode.demand))
