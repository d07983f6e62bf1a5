"""The state of all jobs of one host: methods fold events into it, and return the effects to perform. Pure.

    submit -> examine -> waiting -> (policy) -> starting -> running -> done | failed
                            ^                                  |
                            +---- evicted, out of memory ------+

The loop calls `tick` after all events of a turn; there the policy (`tuner.colocation`) decides which jobs start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from elastichost.dispatcher.core.allocation_drift import Answer, as_it_differs, rest_s, taken, undone
from elastichost.dispatcher.core.demands import Examined, HostPower, Known, prior
from elastichost.dispatcher.core.effects import (
    Effect,
    ExamineJob,
    KillJob,
    LimitJob,
    NoteEvent,
    ResizeJob,
)
from elastichost.dispatcher.core.endings import (
    REST_S,
    SIGKILLED,
    Ended,
    asked_to_stop,
    broken_off,
    contained,
    ended_before,
    failed,
    not_examined,
)
from elastichost.dispatcher.core.entries import JobEntry, begun, first_to_start
from elastichost.dispatcher.core.examinations import Examinations
from elastichost.dispatcher.core.input_capacity import InputCapacity
from elastichost.dispatcher.core.interference_control import InterferenceState, shared, tended
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent
from elastichost.dispatcher.core.oom_containment import Containment, offenders, relieved
from elastichost.dispatcher.facts import HostStatus, JobFailure, JobObservation, JobRequest, JobState, JobStatus
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.metrics import FINISHED_STATES
from elastichost.resources import HostInventory
from elastichost.runs.events import JobCancelled, JobDone, JobExamined, JobSubmitted, JobWarned
from elastichost.runs.result import RunResult
from elastichost.tuner.colocation import ledger as ledgers
from elastichost.tuner.colocation.facts import CPU, GpuCapacity, HostCapacity, JobDemand, PlacedJob, Start
from elastichost.tuner.colocation.policies import ColocationSettings, dispatch, predicted, why_waiting

__all__ = ["Core"]

DISPATCH_EVERY_S = 1.0  # between two calls of the policy when only time and measured speeds have changed
SAY_EVERY_S = 2.0  # between two computations of why jobs wait


class Core:
    """inventory: the cores and GPUs that jobs may use. memory_bytes: that all jobs together may use."""

    def __init__(
        self, settings: ColocationSettings, inventory: HostInventory, power: HostPower, memory_bytes: int
    ) -> None:
        self._settings, self._inventory, self._power = settings, inventory, power
        gpus = tuple(GpuCapacity(gpu.index, gpu.memory_bytes) for gpu in inventory.gpus)
        self._room = HostCapacity(len(inventory.cores), memory_bytes, gpus)
        self._ledger = ledgers.HostLedger(self._room)
        self._jobs: dict[str, JobEntry] = {}
        self._left_out: dict[str, int] = {}  # state -> number of jobs that were forgotten in it
        self._twins: dict[str, Known] = {}
        self._inputs = InputCapacity()
        self._examinations = Examinations()
        self._decisions, self._is_stopping = 0, False
        self._said_s = self._next_dispatch_s = 0.0
        self._has_changed = True  # a job came, ended or trains, or is known better: `tick` asks the policy at once
        self._containment, self._tending = Containment(), InterferenceState()
        self.last_decision = ""

    # --- asked by the loop ----------------------------------------------------------------------------------

    def request(self, job: str) -> JobRequest:
        return self._jobs[job].request

    def folder(self, job: str) -> Path:
        return Path(self._jobs[job].request.folder)

    def state(self, job: str) -> JobState:
        return self._jobs[job].state

    def run_dir(self, job: str) -> Path:
        return Path(self._jobs[job].request.run_dir)

    @property
    def is_empty(self) -> bool:
        """Whether every job has ended."""
        return all(entry.has_ended for entry in self._jobs.values())

    def unfinished(self) -> Iterator[tuple[JobRequest, bool]]:
        """(request, has_run) of each job that the next dispatcher must continue, and none that was cancelled and still
        saves. has_run: it has a run to resume."""
        for entry in self._jobs.values():
            if not entry.is_over and entry.stop_cause != "cancel":
                yield entry.request, entry.has_run

    def forget_ended(self, most: int, busy: Collection[str]) -> tuple[str, ...]:
        """Forgets jobs that have ended for good, without the `most` newest and `busy` ones. Returns their names."""
        gone = ended_before(self._jobs.values(), most, busy)
        for job in gone:
            state = self._jobs.pop(job).state
            self._left_out[state] = self._left_out.get(state, 0) + 1
            self._tending.resized_s.pop(job, None)
        return gone

    # --- events ---------------------------------------------------------------------------------------------

    def arenas_may_use(self, arena_bytes: int) -> None:
        """Takes the bytes that the arenas of all jobs together may occupy in their file system. Jobs start within
        them."""
        self._room = msgspec.structs.replace(self._room, arena_bytes=arena_bytes)

    def submit(
        self, request: JobRequest, now_s: float, *, has_run: bool = False, holds_arena: bool = False
    ) -> tuple[Effect, ...]:
        """Adds a job to the queue. has_run: it was started under an earlier dispatcher. holds_arena: the arena that it
        had there still occupies memory."""
        why = "waits for its examination"
        self._jobs[request.job] = JobEntry(request, now_s, why=why, has_run=has_run, holds_arena=holds_arena)
        self._examinations.submit(request.job, request.shape)
        return NoteEvent(JobSubmitted(request.job)), *self._examine_next()

    def _examine_next(self) -> tuple[Effect, ...]:
        """Starts further examinations; one that could not be forked before starts after REST_S."""
        jobs = self._examinations.next(self._room.cores)
        return tuple(ExamineJob(job, REST_S if self._jobs[job].not_started else 0.0) for job in jobs)

    def examined(self, found: Examined, now_s: float) -> tuple[Effect, ...]:
        """Takes the result of an examination, which holds for all waiting jobs of the same shape."""
        effects: list[Effect] = []
        for job in self._examinations.found(found.job):
            effects += self._known(msgspec.structs.replace(found, job=job))
        return (*effects, *self._examine_next())

    def _known(self, found: Examined) -> tuple[Effect, ...]:
        entry = self._jobs[found.job]
        if entry.state != "waiting":
            return ()  # it was cancelled during the examination
        entry.examined, entry.why, self._has_changed = found, "waits", True
        entry.known = self._twins.get(found.twin) or prior(found)
        entry.estimated_bytes = found.memory[0].host_bytes
        effects = [NoteEvent(JobWarned(found.job, warning)) for warning in found.warnings]
        kind, breakdown = entry.demand(self._power).kind, dict(found.breakdown)
        told = JobExamined(found.job, kind, entry.estimated_bytes, found.samples_planned, breakdown)
        return (*effects, NoteEvent(told))

    def seen(self, seen: JobObservation, now_s: float) -> tuple[Effect, ...]:
        """Takes an observation of a job's run."""
        entry = self._jobs[seen.job]
        if entry.placed is None:
            return ()
        entry.seen, status = seen, seen.status
        if status is not None and (status.supervisor_pid in seen.pids):
            entry.trained, entry.auc = status.samples_trained, status.test_auc
            if entry.state == "starting" and (status.samples_trained > 0 or status.state in FINISHED_STATES):
                entry.has_run = self._has_changed = True
                entry.apply(JobLifecycleEvent.TRAINS, entry.why)
        entry.takes(seen.used_bytes, now_s)
        self._ledger = ledgers.observe(self._ledger, entry.job, entry.peak_bytes)
        charge = self._ledger.charge(entry.job)
        assert charge is not None
        entry.placed = msgspec.structs.replace(entry.placed, charged_bytes=charge.charged_bytes)
        if seen.look is not None and entry.known is not None and entry.examined is not None:
            others = {one.job for one in self._jobs.values() if one is not entry and one.may_read}
            self._twins[entry.examined.twin] = entry.learns(seen.look, self._inputs, self._room.cores, now_s, others)
            if self._settings.input_tracking:
                self._power = msgspec.structs.replace(self._power, input_bytes_per_s=self._inputs.bytes_per_s())
        return tuple(as_it_differs(entry, self._power, now_s))

    def answered(self, answer: Answer, now_s: float) -> tuple[Effect, ...]:
        """Takes the answer of a run to what it was lent. After a refusal, the entry takes over what the run has."""
        entry, lent = self._jobs[answer.resize.job], answer.resize
        if entry.placed is None:
            return ()
        if not answer.problem:
            taken(entry, lent)
            return ()
        effects = tuple(undone(entry, lent, self._inventory.cores, self._power))
        self._tending.resized_s[entry.job], self._has_changed = now_s + rest_s(entry), True
        if lent.memory_bytes is not None:
            self._containment.not_loosened(entry.job, now_s)
        return effects

    def ended(
        self, ended: Ended, failure: JobFailure | None, now_s: float, result: RunResult | None = None
    ) -> tuple[Effect, ...]:
        """A job's supervisor has ended, or its examination failed. failure: what it wrote; None: nothing."""
        job, code, entry = ended.job, ended.code, self._jobs[ended.job]
        self._examinations.forget(job)
        if entry.has_ended:
            return self._examine_next()
        entry.exit_code, self._has_changed = code, True
        entry.cpu_s += ended.cpu_s
        if result is not None:
            entry.trained = result.samples.trained
            entry.takes(result.peak_bytes, now_s, result.peak_workers)
            entry.auc = result.test.auc if result.test is not None else entry.auc
        if entry.placed is not None:
            self._ledger = ledgers.observe(self._ledger, job, entry.peak_bytes)
            self._ledger = ledgers.release(self._ledger, job, is_complete=code == 0)
        placed, entry.placed = entry.placed, None
        entry.last_placed = placed or entry.last_placed
        entry.ended_s = now_s
        if code == 0 and placed is not None:
            entry.apply(JobLifecycleEvent.DONE, "done")
            return (NoteEvent(JobDone(job, now_s - entry.placed_s)),)
        if placed is None:
            # killed from outside, as by a kernel that is short of memory: the job may be examined when there is some
            is_lost = code is None or (code == SIGKILLED and failure is None)
            effects = not_examined(entry, ended) if is_lost else failed(entry, failure, ended.cause)
            if entry.state == "waiting":
                self._examinations.submit(job, entry.request.shape)
            return (*effects, *self._examine_next())
        return broken_off(entry, placed, ended, failure, self._room, now_s)

    def cancel(self, job: str, now_s: float) -> tuple[Effect, ...]:
        """Cancels a job. Raises ConfigError for a job that does not exist or has ended."""
        entry = self._jobs.get(job)
        if entry is None:
            raise ConfigError(f"there is no job {job!r}{did_you_mean(job, self._jobs)}", hint="`queue` lists the jobs")
        if entry.has_ended:
            raise ConfigError(f"{job} is already {entry.state}")
        if entry.state == "waiting":
            entry.apply(JobLifecycleEvent.CANCEL, "cancelled")
            entry.ended_s = now_s
            self._examinations.forget(job)
            # kills the process that examines the job, if there is one
            return KillJob(job), NoteEvent(JobCancelled(job)), *self._examine_next()
        return asked_to_stop(entry, "cancel", "it is cancelled")

    def stop(self, now_s: float) -> tuple[Effect, ...]:
        """The dispatcher stops: running jobs save and exit, and waiting jobs are left to the next dispatcher."""
        self._is_stopping = True
        self._examinations = Examinations()
        effects: list[Effect] = []
        for entry in self._jobs.values():
            if entry.state == "waiting":
                entry.apply(JobLifecycleEvent.KEEP, "the dispatcher stopped")
                effects.append(KillJob(entry.job))
            elif entry.is_live:
                effects += asked_to_stop(entry, "host", "the dispatcher stops")
        return tuple(effects)

    # --- every turn -----------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> tuple[Effect, ...]:
        """Acts on excess memory, applies feedback, divides cores, and starts jobs. Call it every turn."""
        if self._is_stopping:
            return ()
        effects = list(self._contain(now_s))
        for entry in self._jobs.values():
            entry.replaced(self._power)
        effects += self._tend(now_s)
        if not effects and not self._has_changed and now_s < self._next_dispatch_s:
            return ()
        self._has_changed, self._next_dispatch_s = False, now_s + DISPATCH_EVERY_S
        facts = self._running(), self._room, self._settings, self._tending.corrections, now_s
        starts = dispatch(self._waiting(), *facts, margins=self._ledger.margins, decisions=self._decisions)
        for start in starts:
            effects += self._started(start, now_s)
        if starts or now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            self._foretell()
            effects += self._say_why(now_s)
        return tuple(effects)

    def _tend(self, now_s: float) -> tuple[Effect, ...]:
        """Feedback, and the division of cores among running jobs. Nothing if the policy runs one job at a time."""
        if self._settings.policy == "exclusive":
            return ()
        placed = self._placed_entries()
        if not self._settings.feedback:
            return self._share(placed, now_s)
        effects, evicted = tended(self._tending, placed, self._room, sum(self._use().values()), now_s)
        effects = self._charged(effects)
        for job in evicted:
            if self._jobs[job].state != "stopping":
                effects += asked_to_stop(self._jobs[job], "evict", "it makes room for others")
        return (*effects, *self._share(placed, now_s))

    def _share(self, placed: list[JobEntry], now_s: float) -> tuple[Effect, ...]:
        """Divides workers and cores among the running jobs."""
        return self._charged(shared(self._tending, placed, self._inventory.cores, self._ledger, self._power, now_s))

    def _charged(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """The effects, with the limits that belong to new sizes before them. Jobs that get more workers are charged for
        them."""
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, ResizeJob) and effect.size and (entry := self._jobs[effect.job]).placed is not None:
                found.append(self._limited(entry, entry.placed))
            found.append(effect)
        return tuple(found)

    def _limited(self, entry: JobEntry, placed: PlacedJob) -> LimitJob:
        needed, _ = ledgers.charge_of(self._ledger.margins, placed.demand.kind, placed.mode)
        self._ledger = ledgers.grown(self._ledger, entry.job, needed, placed.mode.memory_bytes)
        charged = max(placed.charged_bytes, needed)
        entry.placed = msgspec.structs.replace(placed, charged_bytes=charged)
        entry.admitted_bytes = max(entry.admitted_bytes, needed)
        return LimitJob(entry.job, charged, placed.mode.cores + placed.mode.servers)

    def _placed_entries(self) -> list[JobEntry]:
        return [entry for entry in self._jobs.values() if entry.placed is not None]

    def _waiting(self) -> list[JobDemand]:
        """The demands of the jobs that may start, with what their twins have taught since their examination."""
        demands = []
        for entry in first_to_start(self._jobs.values()):
            if entry.examined is not None:
                entry.known = self._twins.get(entry.examined.twin, entry.known)
                demands.append(entry.demand(self._power))
        return demands

    def _running(self) -> list[PlacedJob]:
        return [entry.placed for entry in self._jobs.values() if entry.placed is not None]

    def _started(self, start: Start, now_s: float) -> tuple[Effect, ...]:
        entry = self._jobs[start.job]
        demand = entry.demand(self._power)
        placed = PlacedJob(demand, start.placement, start.charged_bytes, start.charged_gpu_bytes, now_s)
        may_overcommit = not self._settings.memory_admission or self._settings.policy == "rmixer_type"
        self._ledger = ledgers.admit(self._ledger, placed, may_overcommit)
        self._decisions += 1
        self.last_decision = f"{start.job}: {start.reason}"
        return begun(entry, start, placed, self._inventory.cores, self._room, now_s)

    def _foretell(self) -> None:
        for job, share in predicted(self._running(), self._room, self._tending.corrections).items():
            self._jobs[job].predicted = share

    def _say_why(self, now_s: float) -> tuple[Effect, ...]:
        """Updates why jobs wait. A job that can never run on this host fails."""
        waiting = self._waiting()
        if not waiting:
            return ()
        facts = self._running(), self._room, self._settings, self._tending.corrections, now_s
        reasons = why_waiting(waiting, *facts, margins=self._ledger.margins, decisions=self._decisions)
        effects: list[Effect] = []
        for job, why in reasons.items():
            entry = self._jobs[job]
            entry.why = why.text
            if why.for_ever:
                entry.ended_s = now_s
                effects += failed(entry, None, why.text)
        return tuple(effects)

    # --- memory ---------------------------------------------------------------------------------------------

    def _contain(self, now_s: float) -> tuple[Effect, ...]:
        """The effects of `oom_containment`: steps against jobs that exceed memory, and their reversal."""
        facts = self._containment, self._running(), self._use(), self._room.memory_bytes, now_s
        acts = (*offenders(*facts), *relieved(*facts))
        return tuple(effect for act in acts for effect in contained(self._jobs[act.job], act))

    def _use(self) -> dict[str, int]:
        return {entry.job: entry.seen.used_bytes for entry in self._jobs.values() if entry.seen and entry.placed}

    # --- status ---------------------------------------------------------------------------------------------

    def status(self, common: HostStatus) -> HostStatus:
        """The status of the host and all its jobs. common: the fields that the loop fills in."""
        jobs = self.statuses()
        return msgspec.structs.replace(
            common,
            cores=self._room.cores,
            memory_bytes=self._room.memory_bytes,
            charged_bytes=self._ledger.charged_bytes,
            used_bytes=sum(job.memory_bytes for job in jobs),
            cpu_cores=sum(job.cpu_cores for job in jobs),
            gpus=len(self._room.gpus),
            jobs=jobs,
            left_out=dict(self._left_out),
            last_decision=self.last_decision,
        )

    def statuses(self) -> tuple[JobStatus, ...]:
        return tuple(entry.status(self._gpu_of(entry)) for entry in self._jobs.values())

    def _gpu_of(self, entry: JobEntry) -> int | None:
        device = entry.placed.placement.device if entry.placed is not None else CPU
        return self._room.gpus[device].index if device != CPU else None
