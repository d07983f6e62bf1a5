"""Controls how running jobs slow each other, and divides workers and cores among them. Pure, except that functions
change the state and the entries.

Every WINDOW_S the speed of each job is measured as one window. The windows correct the predicted speeds of pairs of
kinds (`tuner.colocation.corrections`), and lead to steps down and up (`tuner.colocation.feedback`). `shared` gives each
job a number of workers and cores (`tuner.cluster`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from elastichost.dispatcher.core.demands import HostPower
from elastichost.dispatcher.core.effects import Effect, FreezeJob, NoteEvent, ReniceJob, ResizeJob, ThawJob
from elastichost.dispatcher.core.entries import COMPUTING_NICE, JobEntry
from elastichost.dispatcher.core.input_capacity import BLOCKED
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent
from elastichost.dispatcher.facts import Size
from elastichost.runs.events import JobShared, JobTended
from elastichost.tuner.cluster.decide import decide
from elastichost.tuner.cluster.facts import ClusterView, JobView
from elastichost.tuner.cluster.proposals import Proposal, option_of
from elastichost.tuner.colocation import corrections as teaching
from elastichost.tuner.colocation.facts import RESOURCES, HostCapacity, JobDemand, Mode, PlacedJob, Placement
from elastichost.tuner.colocation.feedback import Action, FeedbackState, Pressure, Window, advance, speed_samples
from elastichost.tuner.colocation.ledger import HostLedger, charge_of
from elastichost.tuner.colocation.policies import predicted
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import JobId, Option
from elastichost.tuner.placement.core_allocation import assigned_cores

__all__ = ["InterferenceState", "job_view", "shared", "tended"]

WINDOW_S = 3.0
WARM_UP_S = 4.0  # after a job's start, in which its speed is not measured
LOW_NICE = 15  # about a tenth of the CPU weight of COMPUTING_NICE
OTHERS = "others"  # the kind of all processes that belong to no job
FRESH_S = 4.0  # greatest age of a measurement that is used in a window
STILL_S = 5.0  # least time between two sizes of a job


@dataclass(slots=True)
class InterferenceState:
    """The state that is kept between windows. next_s: end of the present window. resized_s: job -> time of its newest
    size or cores; after a refusal a time in the future, so that the run is left alone until then. shared: the jobs
    among which cores were divided last."""

    feedback: FeedbackState = field(default_factory=FeedbackState)
    speed_samples: teaching.SpeedSamples = field(default_factory=teaching.SpeedSamples)
    corrections: teaching.Corrections = field(default_factory=teaching.Corrections)
    next_s: float = 0.0
    resized_s: dict[str, float] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()


def windows_of(entries: Sequence[JobEntry], room: HostCapacity, now_s: float) -> tuple[Window, ...]:
    """Returns the windows of the jobs that hold memory, except those that are starting, and those that are stopping and
    were not evicted by feedback."""
    placed = [entry.placed for entry in entries if entry.placed is not None]
    placed.append(_others(entries, room.cores, now_s))
    together = predicted(placed, room)
    return tuple(_window(entry, together, now_s) for entry in entries if _can_be_told(entry))


def _can_be_told(entry: JobEntry) -> bool:
    """Whether the job has a window. An action on a job that is starting or stopping has no effect, but feedback would
    count it as done. A job that feedback evicted has a window, because its memory will be freed."""
    is_told = entry.state in ("running", "paused") or entry.stop_cause == "evict"
    return entry.placed is not None and is_told


def _others(entries: Sequence[JobEntry], cores: int, now_s: float) -> PlacedJob:
    """The processes that belong to no job, as one job that uses their share of the cores. So the predicted speeds of
    the jobs are lower, and feedback does not act on a job because of those processes."""
    fresh = [entry.look for entry in entries if entry.look is not None and now_s - entry.look_s <= FRESH_S]
    busy = max((look.host_share for look in fresh), default=0.0)
    ours = sum(look.all_cpu_s / look.seconds for look in fresh) / cores
    share = min(1.0, max(0.0, busy - ours))
    mode = Mode(1, 1, 1, 1.0, (share, *(0.0,) * (len(RESOURCES) - 1)), 0)
    return PlacedJob(JobDemand("", OTHERS, (mode,), 1.0), Placement(0), 0)


def _window(entry: JobEntry, together: Mapping[str, float], now_s: float) -> Window:
    placed = entry.placed
    assert placed is not None
    look = entry.look if now_s - entry.look_s <= FRESH_S else None
    is_steady = entry.state == "running" and now_s - placed.since_s >= WARM_UP_S
    speed = None
    if is_steady and look is not None and placed.demand.is_measured:
        speed = min(1.0, look.samples / look.seconds / max(placed.mode.samples_per_s, 1e-9))
        if not look.samples and look.input_wait_share >= BLOCKED:
            speed = None  # its source has stalled, which no other job can help
    used = entry.seen.used_bytes if entry.seen is not None else 0
    return Window(
        job=entry.job,
        kind=placed.demand.kind,
        speed=speed,
        predicted=together.get(entry.job, 1.0),
        since_s=placed.since_s,
        device=placed.placement.device,
        can_shrink=placed.placement.mode > 0,
        over_bytes=max(0, used - entry.admitted_bytes),
    )


def tended(
    state: InterferenceState, entries: Sequence[JobEntry], room: HostCapacity, used_bytes: int, now_s: float
) -> tuple[tuple[Effect, ...], tuple[str, ...]]:
    """Advances feedback by one window, or returns nothing when the window is not over. Returns effects, and the jobs
    that the caller must evict. used_bytes: memory that all jobs use now."""
    if now_s < state.next_s:
        return (), ()
    state.next_s = now_s + WINDOW_S
    windows = windows_of(entries, room, now_s)
    state.speed_samples = teaching.learnt(state.speed_samples, speed_samples(state.feedback, windows, now_s))
    state.corrections = teaching.fitted(state.speed_samples, now_s)
    pressure = Pressure(used_bytes / max(1, room.memory_bytes), tuple(0.0 for _ in room.gpus))
    state.feedback, actions = advance(state.feedback, windows, pressure, now_s)
    by_name = {entry.job: entry for entry in entries}
    effects: list[Effect] = []
    evicted: list[str] = []
    for action in actions:
        effects += _done(by_name[action.job], action)
        if action.kind == "evict":
            evicted.append(action.job)
    return tuple(effects), tuple(evicted)


def _done(entry: JobEntry, action: Action) -> Iterator[Effect]:
    yield NoteEvent(JobTended(entry.job, action.kind, action.reason))
    placed = entry.placed
    assert placed is not None
    match action.kind:
        case "shrink" | "grow":
            to = placed.placement.mode + (1 if action.kind == "grow" else -1)
            if 0 <= to < len(placed.demand.modes):
                yield from resized(entry, to, None)
        case "lower" | "raise":
            entry.nice = LOW_NICE if action.kind == "lower" else COMPUTING_NICE
            yield ReniceJob(entry.job, entry.nice)
        case "pause":
            if entry.state == "running":
                entry.apply(JobLifecycleEvent.PAUSE, action.reason)
                entry.placed = msgspec.structs.replace(placed, is_paused=True)
                yield FreezeJob(entry.job)
        case "resume":
            if entry.state == "paused":
                entry.apply(JobLifecycleEvent.RESUME, action.reason)
                entry.placed = msgspec.structs.replace(placed, is_paused=False)
                if entry.nice != COMPUTING_NICE:
                    entry.nice = COMPUTING_NICE
                    yield ReniceJob(entry.job, entry.nice)
                yield ThawJob(entry.job)


def resized(entry: JobEntry, mode: int, cores: tuple[int, ...] | None) -> Iterator[Effect]:
    """Gives a job another of its modes, and other cores. mode: index. cores: None: unchanged."""
    placed = entry.placed
    assert placed is not None
    size = None
    if mode != placed.placement.mode:
        entry.placed = msgspec.structs.replace(placed, placement=msgspec.structs.replace(placed.placement, mode=mode))
        chosen = placed.demand.modes[mode]
        size = Size(chosen.workers, chosen.servers, chosen.worker_cores)
    if cores is not None:
        entry.cores = cores
    yield ResizeJob(entry.job, size=size, cores=cores)


def shared(
    state: InterferenceState,
    entries: Sequence[JobEntry],
    cores: tuple[int, ...],
    ledger: HostLedger,
    power: HostPower,
    now_s: float,
) -> tuple[Effect, ...]:
    """Divides cores and workers among the running, measured jobs of open size, by the gain of each. A job gets at most
    as many workers as its charge and an equal part of the free memory in the ledger allow. A job that keeps its cores
    gets the size that its run's own tuner proposes.

    Returns nothing while one of these jobs has had its size for less than STILL_S."""
    jobs = [entry for entry in entries if _is_shareable(entry)]
    # all jobs or none, because the cores of a job that is left out would be given to others
    if not jobs or any(now_s - state.resized_s.get(entry.job, -1e9) <= STILL_S for entry in jobs):
        return ()
    shrunk = {one.job for one in state.feedback.jobs if one.was_shrunk}
    views = tuple(job_view(entry, len(cores), ledger, len(jobs), is_shrunk=entry.job in shrunk) for entry in jobs)
    names = frozenset(entry.job for entry in jobs)
    has_news, state.shared = names != state.shared, names
    grants = decide(ClusterView(jobs=views, cores=len(cores), is_one_host=True, has_news=has_news))
    own: dict[JobId, tuple[int, ...]] = {entry.job: _own_cores(entry, len(cores)) for entry in jobs}
    numbers = assigned_cores(own, {grant.job: grant.cores for grant in grants if grant.is_own}, cores)
    effects: list[Effect] = []
    for entry, grant in zip(jobs, grants, strict=True):
        placed, share = entry.placed, numbers.get(entry.job, cores)
        assert placed is not None
        changed = share if share != entry.cores else None
        if changed is None and grant.is_proposal and entry.becomes(size := _size(grant.configuration), power):
            state.resized_s[entry.job], entry.granted = now_s, grant.configuration
            effects.append(NoteEvent(JobShared(entry.job, str(grant.configuration), (), grant.reason)))
            effects.append(ResizeJob(entry.job, size=size, is_proposal=True))
            continue
        if grant.option == placed.placement.mode and changed is None:
            continue
        state.resized_s[entry.job] = now_s
        size_of = str(_option(placed.demand.modes[grant.option], len(cores)).configuration)
        effects.append(NoteEvent(JobShared(entry.job, size_of, share, grant.reason)))
        effects += resized(entry, grant.option, changed)
    return tuple(effects)


def _is_shareable(entry: JobEntry) -> bool:
    open_size = entry.examined is not None and entry.examined.size_is_open
    return open_size and entry.state == "running" and entry.placed is not None and entry.placed.demand.is_measured


def _own_cores(entry: JobEntry, host_cores: int) -> tuple[int, ...]:
    """The cores that no other job has; (): it floats, or was just started."""
    return entry.cores if len(entry.cores) < host_cores else ()


def job_view(entry: JobEntry, host_cores: int, ledger: HostLedger, jobs: int, *, is_shrunk: bool = False) -> JobView:
    """A placed job as `decide` sees it. jobs: number of jobs that share the free memory of the ledger. is_shrunk:
    feedback took workers from it, and only feedback gives them back."""
    placed = entry.placed
    assert placed is not None
    room_bytes = placed.charged_bytes + ledger.free_bytes // jobs
    modes = placed.demand.modes
    fits = [charge_of(ledger.margins, placed.demand.kind, mode)[0] <= room_bytes for mode in modes]
    most = max(
        (at for at, does in enumerate(fits) if does), default=0
    )  # modes are ordered by workers, and so by memory
    most = min(most, placed.placement.mode) if is_shrunk else most
    options = tuple(_option(mode, host_cores) for mode in modes[: max(most, placed.placement.mode) + 1])
    proposal = entry.proposal
    if proposal is not None and not _has_room(proposal, placed.mode, modes[most].workers):
        proposal = None
    return JobView(
        job=entry.job,
        samples_left=placed.demand.samples_left,
        options=options,
        current=placed.placement.mode,
        weight=placed.demand.weight,
        busy_cores=placed.mode.demand[0] * host_cores,
        has_own_cores=bool(_own_cores(entry, host_cores)),
        is_measured=not entry.is_tried,
        proposal=option_of(proposal, lambda space: np.minimum(host_cores, space[:, 0] * space[:, 2])),
    )


def _option(mode: Mode, host_cores: int) -> Option:
    configuration = Configuration(mode.workers, mode.servers, mode.worker_cores)
    return Option(configuration, mode.samples_per_s, min(host_cores, max(1, mode.cores)), mode.memory_bytes)


def _has_room(proposal: Proposal, present: Mode, most_workers: int) -> bool:
    """Whether a proposal has no more computing threads than the job has now, and memory for its workers."""
    wanted = proposal.wanted
    fits = wanted.workers <= max(most_workers, present.workers)
    return fits and wanted.workers * wanted.worker_cores <= present.cores


def _size(configuration: Configuration) -> Size:
    return Size(configuration.workers, configuration.servers, configuration.worker_cores)
