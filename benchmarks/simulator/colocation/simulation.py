"""A batch of jobs on one simulated host, in virtual time, under a policy of co-location. Pure.

Between events the rates of all jobs are constant; `interference` gives them. The functions of a live host decide which
jobs run, what they are charged, and which are shrunk, paused or evicted: `dispatch`, the ledger, `speed_samples`,
`fitted` and `advance`, called as the dispatcher calls them. Their input is what the dispatcher would know: estimates
with errors (`beliefs`), windows of noisy speeds, memory in use. The same batch, settings and seeds give the same
result, bit for bit. Random values do not depend on the policy.

    tick (every window, and at every event):   observe memory -> windows -> advance -> dispatch

Differences from a live host, the same for every policy:
- Cores are not divided among jobs (`core_allocation`), and sizes change by feedback only.
- No process outside the jobs uses the host.
- A job that is about to end counts in full, so no other job starts in its last second.
- The memory of GPUs is observed in the same way as that of the host.
- Only the ledger and feedback limit memory. If use exceeds the memory, one job is killed: on the host the largest, as
  the kernel does; on a GPU the one that requested memory last.
- A job that starts uses memory, but no cores.

Without `ColocationSettings.feedback` nothing is learnt about pairs, and no job is shrunk, paused or evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.simulator.colocation import calibration
from benchmarks.simulator.colocation.beliefs import DispatcherBeliefs
from benchmarks.simulator.colocation.interference import ComputingJob, InterferenceModel, draw_pair_costs
from benchmarks.simulator.colocation.job_run import ColocatedJobOutcome, ColocatedJobRun
from benchmarks.simulator.colocation.jobs import JobBatch, JobMode
from elastichost.tuner.colocation import corrections as teaching
from elastichost.tuner.colocation import ledger as ledgers
from elastichost.tuner.colocation.facts import CPU, PlacedJob, Start
from elastichost.tuner.colocation.feedback import Action, FeedbackState, Pressure, Window, advance, speed_samples
from elastichost.tuner.colocation.policies import dispatch, predicted
from elastichost.tuner.colocation.settings import ColocationSettings

__all__ = ["BatchOutcome", "ProgressRecorder", "simulate_batch"]

HALVINGS = 40  # bisection steps to find the time at which memory is full
LEAST_STEP_S = 1e-9
MOST_TIMES_SEQUENTIAL = 20.0  # times the jobs' total time; then the batch ends, and unfinished jobs fail
# receives the computing jobs, the seconds they computed, and their samples/s
ProgressRecorder = Callable[[Sequence[ComputingJob], float, Sequence[float]], None]


class BatchOutcome(msgspec.Struct, frozen=True):
    """The outcome of a batch. makespan_s: from the submission of all jobs to the end of the last. decisions: number of
    starts. actions: number of feedback actions by kind. oom: number of kills by place ("host", "gpu")."""

    jobs: tuple[ColocatedJobOutcome, ...]
    makespan_s: float
    decisions: int
    events: int
    actions: dict[str, int]
    oom: dict[str, int]

    @property
    def is_complete(self) -> bool:
        return all(job.outcome == "done" for job in self.jobs)


def simulate_batch(
    batch: JobBatch, settings: ColocationSettings, recorder: ProgressRecorder | None = None, *, doubt: float = 1.0
) -> BatchOutcome:
    """Simulates a batch until every job has ended. recorder: is called with every piece of progress. doubt: factor on
    the errors of the dispatcher's estimates of speeds and shares; 0: no errors."""
    return _Simulation(batch, settings, recorder, doubt).run()


class _Simulation:
    def __init__(
        self, batch: JobBatch, settings: ColocationSettings, recorder: ProgressRecorder | None, doubt: float = 1.0
    ) -> None:
        self._settings, self._room, self._recorder = settings, batch.site.room, recorder
        self._truth = InterferenceModel(batch.site, draw_pair_costs(batch.seed))
        self._beliefs = DispatcherBeliefs(batch, self._truth, doubt)
        self._runs = {spec.job: ColocatedJobRun.of(spec, self._truth, batch.seed) for spec in batch.jobs}
        self._ledger = ledgers.HostLedger(self._room)
        self._feedback, self._speed_samples = FeedbackState(), teaching.SpeedSamples()
        self._corrections = teaching.Corrections()
        self._now_s, self._next_window_s = 0.0, calibration.WINDOW_S
        self._decisions = self._events = self._windows = 0
        self._actions, self._oom = Counter[str](), Counter[str]()
        self._state: list[tuple[str, JobMode, int, bool]] = []  # the jobs for which the present rates were found
        self._most_s = MOST_TIMES_SEQUENTIAL * sum(spec.lasts_s for spec in batch.jobs)

    def run(self) -> BatchOutcome:
        self._dispatch()
        while self._now_s < self._most_s and any(not run.is_over for run in self._runs.values()):
            self._step()
        for run in self._runs.values():
            if not run.is_over:
                run.phase, run.ended_s = "failed", self._now_s
        jobs = tuple(run.outcome() for run in self._runs.values())
        return BatchOutcome(
            jobs=jobs,
            makespan_s=max((job.ended_s for job in jobs), default=0.0),
            decisions=self._decisions,
            events=self._events,
            actions=dict(sorted(self._actions.items())),
            oom=dict(sorted(self._oom.items())),
        )

    # --- time ---------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Advances to the next event, and applies it."""
        self._events += 1
        until_s = self._next_window_s
        for run in self._held():
            if run.phase in ("starting", "saving"):
                until_s = min(until_s, run.busy_until_s)
            elif run.rate > 0:
                until_s = min(until_s, self._now_s + run.ends_after_s())
        seconds = self._until_full(max(0.0, until_s - self._now_s))
        self._advance(seconds)
        self._settle()
        if self._now_s >= self._next_window_s - LEAST_STEP_S:
            self._window()
        self._dispatch()

    def _advance(self, seconds: float) -> None:
        computing = [run for run in self._held() if run.rate > 0]
        if self._recorder is not None and seconds > 0:
            self._recorder([run.truly() for run in computing], seconds, [run.rate for run in computing])
        for run in computing:
            run.advance(seconds)
        self._now_s += seconds

    def _held(self) -> list[ColocatedJobRun]:
        """The jobs that have processes, in the order of the queue."""
        return [run for run in self._runs.values() if run.placed is not None]

    def _settle(self) -> None:
        """Kills at most one job if memory is full, and ends the phases that are over."""
        victim = self._victim()
        if victim is not None:
            self._killed(*victim)
        for run in self._held():
            if run.phase == "running" and run.trained >= run.work:
                self._ended(run)
            elif run.phase in ("starting", "saving") and self._now_s >= run.busy_until_s - LEAST_STEP_S:
                if run.phase == "saving":
                    self._evicted(run)
                else:
                    run.phase, run.steady_s, run.checkpoint_s = "running", self._now_s, self._now_s
        self._refresh()

    def _refresh(self) -> None:
        """Finds the rates of all jobs again if a job, a size, a device or a weight has changed."""
        computing = [(run, run.truly()) for run in self._held() if run.phase == "running"]
        state = [(run.job, one.size, one.device, one.is_lowered) for run, one in computing]
        if state == self._state:
            return
        self._state = state
        for run in self._runs.values():
            run.rate = 0.0
        for (run, _), rate in zip(computing, self._truth.rates([one for _, one in computing]).tolist(), strict=True):
            run.rate = rate

    # --- memory -------------------------------------------------------------------------------------------------------

    def _excess(self, seconds: float) -> tuple[float, list[float]]:
        """Bytes by which use exceeds the memory of the host and of each GPU in `seconds` seconds; negative if memory is
        free."""
        host, gpus = -float(self._room.memory_bytes), [-float(gpu.memory_bytes) for gpu in self._room.gpus]
        for run in self._held():
            own, own_gpu = run.memory_after(seconds)
            host += own
            if run.device != CPU:
                gpus[run.device] += own_gpu
        return host, gpus

    def _is_over(self, seconds: float) -> bool:
        host, gpus = self._excess(seconds)
        return host > 0 or max(gpus, default=0.0) > 0

    def _until_full(self, seconds: float) -> float:
        """Returns `seconds`, or the time until memory is full if that is shorter. Use only grows between events."""
        if not self._is_over(seconds):
            return seconds
        low, high = 0.0, seconds
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._is_over(middle) else (middle, high)
        return high

    def _victim(self) -> tuple[ColocatedJobRun, str] | None:
        """The job that is killed because memory is full, and the place; None if memory suffices."""
        host, gpus = self._excess(0.0)
        held = self._held()
        if host > 0:
            return max(held, key=lambda run: run.memory_after(0.0)[0]), "host"
        for device, excess in enumerate(gpus):
            if excess > 0:
                asking = [run for run in held if run.device == device]
                return max(asking, key=self._asks), "gpu"
        return None

    def _asks(self, run: ColocatedJobRun) -> tuple[bool, float]:
        """The sort key of jobs on a full GPU: the largest is killed. Jobs that start now come first, of these the last
        in the queue; otherwise the job that grows fastest."""
        assert run.placed is not None
        if run.phase == "starting" and run.placed.since_s >= self._now_s - LEAST_STEP_S:
            return True, float(run.spec.index)
        return False, run.memory_after(1.0)[1] - run.memory_after(0.0)[1]

    def _killed(self, run: ColocatedJobRun, where: str) -> None:
        placed = run.placed
        assert placed is not None
        run.oom_kills += 1
        self._oom[where] += 1
        run.lost += run.trained - run.saved
        run.trained = run.saved
        peak = run.peak_gpu_bytes if where == "gpu" else run.peak_bytes
        raised = ledgers.after_oom(
            placed.demand, placed.placement.mode, round(peak), self._room, "gpu" if where == "gpu" else "host"
        )
        self._left(run, is_complete=False)
        if isinstance(raised, ledgers.AdmissionRefusal) or run.starts >= calibration.MOST_STARTS:
            run.phase, run.ended_s = "failed", self._now_s
            return
        run.raise_to(placed.mode, raised.modes[placed.placement.mode])
        run.exclusive = True

    # --- starts and ends of jobs --------------------------------------------------------------------------------------

    def _left(self, run: ColocatedJobRun, is_complete: bool) -> None:
        """Releases what the job holds; it has no process any more."""
        self._look(run)
        self._ledger = ledgers.release(self._ledger, run.job, is_complete)
        run.placed, run.phase, run.is_lowered = None, "waiting", False

    def _ended(self, run: ColocatedJobRun) -> None:
        self._left(run, is_complete=True)
        run.phase, run.ended_s = "done", self._now_s

    def _evicted(self, run: ColocatedJobRun) -> None:
        placed = run.placed
        assert placed is not None
        waiting = ledgers.after_eviction(
            placed.demand,
            placed.placement.mode,
            round(run.peak_bytes),
            round(run.peak_gpu_bytes),
            self._room,
            self._now_s + calibration.REST_S,
        )
        run.saved = run.trained
        self._left(run, is_complete=False)
        run.raise_to(placed.mode, waiting.modes[placed.placement.mode])
        run.not_before_s = waiting.not_before_s
        if run.starts >= calibration.MOST_STARTS:
            run.phase, run.ended_s = "failed", self._now_s

    def _dispatch(self) -> None:
        held = self._held()
        waiting = [run.demand(self._beliefs) for run in self._runs.values() if run.phase == "waiting"]
        # the policy `exclusive` starts nothing while a job runs
        if waiting and not (held and self._settings.policy == "exclusive"):
            starts = dispatch(
                waiting,
                [run.placed for run in held if run.placed is not None],
                self._room,
                self._settings,
                self._corrections,
                self._now_s,
                margins=self._ledger.margins,
                decisions=self._decisions,
            )
            for start in starts:
                self._started(start)
            if not held and not starts:
                # no job runs, and none can start: these jobs never will
                for one in waiting:
                    self._runs[one.job].phase, self._runs[one.job].ended_s = "failed", self._now_s

    def _started(self, start: Start) -> None:
        run = self._runs[start.job]
        demand = run.demand(self._beliefs)
        run.placed = PlacedJob(demand, start.placement, start.charged_bytes, start.charged_gpu_bytes, self._now_s)
        may_overcommit = not self._settings.memory_admission or self._settings.policy == "rmixer_type"
        self._ledger = ledgers.admit(self._ledger, run.placed, may_overcommit)
        self._decisions += 1
        seconds = calibration.START_S + (calibration.START_GPU_S if run.size.is_gpu else 0.0)
        seconds += run.load_s() if run.trained > 0 else 0.0
        run.phase, run.busy_until_s, run.first_mode = "starting", self._now_s + seconds, start.placement.mode
        run.starts += 1
        run.first_started_s = self._now_s if run.first_started_s is None else run.first_started_s
        run.peak_bytes = run.peak_gpu_bytes = 0.0

    # --- windows ------------------------------------------------------------------------------------------------------

    def _window(self) -> None:
        """Observes the last window, updates the estimates, and lets feedback act."""
        self._next_window_s += calibration.WINDOW_S
        held = self._held()
        for run in held:
            self._look(run)
            if run.phase == "running":
                self._beliefs.learn(
                    run.spec.family, run.size.is_gpu, min(calibration.WINDOW_S, self._now_s - run.steady_s)
                )
                if self._now_s - run.checkpoint_s >= calibration.CHECKPOINT_EVERY_S:
                    run.saved, run.checkpoint_s = run.trained, self._now_s
        for run in held:
            self._replaced(run)
        if self._settings.policy != "exclusive" and self._settings.feedback:
            self._tend(held)
        for run in held:
            run.seen = run.trained
        self._windows += 1
        self._refresh()

    def _look(self, run: ColocatedJobRun) -> None:
        """Records the job's peaks in the ledger."""
        host, gpu = run.memory_after(0.0)
        run.peak_bytes, run.peak_gpu_bytes = max(run.peak_bytes, host), max(run.peak_gpu_bytes, gpu)
        self._ledger = ledgers.observe(self._ledger, run.job, round(run.peak_bytes), round(run.peak_gpu_bytes))

    def _replaced(self, run: ColocatedJobRun) -> None:
        """Updates the placed job with the present estimates and charges."""
        charge = self._ledger.charge(run.job)
        assert charge is not None and run.placed is not None
        run.placed = msgspec.structs.replace(
            run.placed,
            demand=run.demand(self._beliefs),
            charged_bytes=charge.charged_bytes,
            charged_gpu_bytes=charge.charged_gpu_bytes,
        )

    def _tend(self, held: Sequence[ColocatedJobRun]) -> None:
        placed = [run.placed for run in held if run.placed is not None]
        alone = predicted(placed, self._room)
        windows = [self._window_of(run, alone.get(run.job, 1.0)) for run in held]
        seen = speed_samples(self._feedback, windows, self._now_s)
        self._speed_samples = teaching.learnt(self._speed_samples, seen)
        self._corrections = teaching.fitted(self._speed_samples, self._now_s)
        host, gpus = self._excess(0.0)
        shares = [1 + excess / gpu.memory_bytes for excess, gpu in zip(gpus, self._room.gpus, strict=True)]
        pressure = Pressure(1 + host / self._room.memory_bytes, tuple(shares))
        self._feedback, actions = advance(self._feedback, windows, pressure, self._now_s)
        for action in actions:
            self._actions[action.kind] += 1
            self._act(self._runs[action.job], action)

    def _window_of(self, run: ColocatedJobRun, alone: float) -> Window:
        placed = run.placed
        assert placed is not None
        was_steady = run.phase == "running" and self._now_s - run.steady_s >= calibration.WINDOW_S - LEAST_STEP_S
        speed = None
        if was_steady and self._now_s - placed.since_s >= calibration.WARM_UP_S and placed.demand.is_measured:
            measured = (run.trained - run.seen) / calibration.WINDOW_S * run.noise[self._windows % len(run.noise)]
            speed = min(1.0, measured / placed.mode.samples_per_s)
        host, gpu = run.memory_after(0.0)
        return Window(
            job=run.job,
            kind=placed.demand.kind,
            speed=speed,
            predicted=alone,
            since_s=placed.since_s,
            device=run.device,
            can_shrink=not run.size.is_gpu and placed.placement.mode > 0,
            over_bytes=max(0, round(host) - placed.charged_bytes),
            over_gpu_bytes=max(0, round(gpu) - placed.charged_gpu_bytes),
        )

    def _act(self, run: ColocatedJobRun, action: Action) -> None:
        placed = run.placed
        assert placed is not None
        match action.kind:
            case "shrink" | "grow":
                least, most = (0, run.first_mode)
                to = min(most, max(least, placed.placement.mode + (1 if action.kind == "grow" else -1)))
                placement = msgspec.structs.replace(placed.placement, mode=to)
                run.placed = msgspec.structs.replace(placed, placement=placement)
            case "lower" | "raise":
                run.is_lowered = action.kind == "lower"
            case "pause" | "resume" if run.phase in ("running", "paused"):
                is_paused = action.kind == "pause"
                run.pauses += is_paused
                run.phase, run.steady_s = ("paused" if is_paused else "running"), self._now_s
                run.is_lowered = run.is_lowered and is_paused
                run.placed = msgspec.structs.replace(placed, is_paused=is_paused)
            case "evict":
                run.evictions += 1
                run.phase, run.busy_until_s = "saving", self._now_s + run.load_s()
            case _:
                pass
