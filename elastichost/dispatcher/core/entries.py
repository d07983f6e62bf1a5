"""One job as the dispatcher's core keeps it, and what follows from that. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from elastichost.dispatcher.core.demands import Examined, HostPower, Known, memory_of, modes_of, prior
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent, next_state
from elastichost.dispatcher.facts import (
    ENDED_STATES,
    OVER_STATES,
    JobObservation,
    JobRequest,
    JobSample,
    JobState,
    JobStatus,
)
from elastichost.metrics import FrontierPoint
from elastichost.tuner.colocation.facts import CPU, HOST_RESOURCES, JobDemand, Mode, PlacedJob
from elastichost.tuner.colocation.kinds import kind_of

__all__ = ["COMPUTING_NICE", "JobEntry", "StopCause", "with_frontier"]

# Seconds from a job's start until it computes; the share of its demand that one has that is evaluated and saved.
START_S, FINISHING = 1.0, 0.3
# Whoever starts others (nice 0) comes before those that compute: forks come one after another, and as one of many that
# want the cores the process that does them needed 7 s for 24 jobs. A batch of 24 jobs that wait for their input took
# 0.84 of the time with it (three pairs: 0.87, 0.83, 0.80).
COMPUTING_NICE = 5
CHANGES_S = 2.0  # until a status tells of another size: it is written each second, and a worker needs one to come or go
StopCause = Literal["", "cancel", "evict", "memory", "host"]


@dataclass(slots=True)
class JobEntry:
    """examined: None: it is being looked at. placed: None: it has no process. has_run: there is something to go on
    with. raised: factor by which its memory estimates are raised after it ran out; alone: it is to run alone once."""

    request: JobRequest
    submitted_s: float
    state: JobState = "waiting"
    why: str = ""
    examined: Examined | None = None
    known: Known | None = None
    placed: PlacedJob | None = None
    last_placed: PlacedJob | None = None  # where it is, or was
    seen: JobObservation | None = None
    look: JobSample | None = None  # the newest
    look_s: float = 0.0
    has_run: bool = False
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
    not_started: int = 0  # so often in a row its process, or what looks at it, could not be forked
    taken_cores: tuple[int, tuple[int, ...]] | None = None  # incarnation, and the cores that its run last said it has
    refusals: int = 0  # of what its run was lent, since it last took something
    differs_since_s: float | None = None  # its run has another size than it was told
    had_workers: tuple[int, float] = (0, 0.0)  # the most that it may have still, until then
    told_workers: tuple[int, float] = (0, 0.0)  # that it may have already, though its status does not say so until then
    peak_bytes: int = 0
    estimated_bytes: int = 0
    admitted_bytes: int = 0  # charged when it was started: what is charged later follows what it takes
    predicted: float = 0.0
    cores: tuple[int, ...] = ()
    auc: float | None = None
    trained: int = 0
    cpu_s: float = 0.0  # of those of its incarnations that have ended

    @property
    def job(self) -> str:
        return self.request.job

    @property
    def is_live(self) -> bool:
        return self.state in ("starting", "running", "paused", "stopping")

    @property
    def has_ended(self) -> bool:
        """With this dispatcher."""
        return self.state in ENDED_STATES

    @property
    def is_over(self) -> bool:
        """For good."""
        return self.state in OVER_STATES

    def takes(self, used_bytes: int, now_s: float, workers: int = 0) -> None:
        """So much memory, with so many workers (0: as many as it may have now). Where that is its peak the estimate of
        it is that of these workers: the size it was started in was perhaps another."""
        workers = workers or self._most_workers(now_s)
        if used_bytes <= self.peak_bytes:
            return
        self.peak_bytes = used_bytes
        if workers and self.examined is not None:
            self.estimated_bytes = int(self.raised * memory_of(self.examined, workers).host_bytes)

    def _most_workers(self, now_s: float) -> int:
        """0: not known. What its status says is a second old: of those that it was told to have some may be there
        already, and of those that it had some may be there still."""
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
        """Raises IllegalTransitionError."""
        self.state, self.why = next_state(self.state, event), why

    def demand(self, power: HostPower, current: int | None = None) -> JobDemand:
        """What it would need, as far as is known now. It has been examined. current: workers that it has."""
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
        )

    def _wait_share(self, known: Known, mode: Mode) -> float:
        """Of a worker's time, alone on the host, that it does not compute."""
        assert self.examined is not None
        return max(0.0, 1.0 - mode.samples_per_s * known.worker_cpu_s / max(1, mode.workers * mode.worker_cores))

    @property
    def is_finishing(self) -> bool:
        """What is left of its training takes no longer than another job needs to begin: it will be evaluated, saved and
        ended meanwhile, and needs few of the cores."""
        run = self.seen.status if self.seen is not None else None
        if run is None or self.state != "running" or not run.samples_planned:
            return False
        left = run.samples_planned - run.samples_trained
        return left <= START_S * run.samples_per_s or (run.state in ("evaluating", "checkpointing") and left <= 0)

    def replaced(self, power: HostPower) -> None:
        """What runs, with what is known of it now."""
        if self.placed is None:
            return
        workers = self.placed.mode.workers
        demand = self.demand(power, workers)
        if self.is_finishing:
            demand = msgspec.structs.replace(demand, modes=tuple(map(_finishing, demand.modes)))
        index = next((at for at, mode in enumerate(demand.modes) if mode.workers == workers), len(demand.modes) - 1)
        placement = msgspec.structs.replace(self.placed.placement, mode=index)
        self.placed = msgspec.structs.replace(self.placed, demand=demand, placement=placement)

    def status(self, gpu_index: int | None) -> JobStatus:
        """As it is shown."""
        placed, seen = self.placed or self.last_placed, self.seen
        mode = placed.mode if placed is not None else None
        run = seen.status if seen is not None else None
        return JobStatus(
            job=self.job,
            state=self.state,
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
            predicted_speed=self.predicted if self.is_live else 0.0,
            cpu_cores=seen.cpu_cores if seen is not None and self.is_live else 0.0,
            cpu_s=self.cpu_s,
            memory_bytes=seen.memory_bytes if seen is not None and self.is_live else 0,
            gpu_memory_bytes=seen.gpu_memory_bytes if seen is not None and self.is_live else 0,
            peak_bytes=self.peak_bytes,
            estimated_bytes=self.estimated_bytes,
            charged_bytes=self.placed.charged_bytes if self.placed is not None else 0,
            exit_code=self.exit_code,
            out_of_memory=self.out_of_memory,
            test_auc=self.auc,
        )


def _finishing(mode: Mode) -> Mode:
    return msgspec.structs.replace(mode, demand=tuple(FINISHING * share for share in mode.demand))


def with_frontier(modes: tuple[Mode, ...], frontier: tuple[FrontierPoint, ...], current: int) -> tuple[Mode, ...]:
    """Speeds of the sizes that the run's own tuner knows of, in proportion to that of the present one: its model was
    fitted while others took part of the host, so it knows ratios. The others stay."""
    points = {(one.workers, one.worker_cores): one.samples_per_s for one in frontier}
    here = next((mode for mode in modes if mode.workers == current), None)
    if here is None or not points.get((current, here.worker_cores)):
        return modes
    reference = points[current, here.worker_cores]
    return tuple(_scaled(mode, here, points.get((mode.workers, mode.worker_cores), 0.0) / reference) for mode in modes)


def _scaled(mode: Mode, here: Mode, ratio: float) -> Mode:
    """ratio: of the speed to that of `here`; 0: not known."""
    if ratio <= 0 or mode.samples_per_s <= 0:
        return mode
    speed = here.samples_per_s * ratio
    host = tuple(min(1.0, share * speed / mode.samples_per_s) for share in mode.demand[: len(HOST_RESOURCES)])
    return msgspec.structs.replace(mode, samples_per_s=speed, demand=(*host, *mode.demand[len(HOST_RESOURCES) :]))
