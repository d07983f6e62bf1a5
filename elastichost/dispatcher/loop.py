"""The dispatcher's loop: waits for commands, exits of processes, signals and timers, passes them to the core, and
performs the effects that the core returns."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from elastichost.arena.host import create_directory, hold_left, reclaim, room_of_arenas, socket_directory
from elastichost.arena.owner import owner_of
from elastichost.atomic_write import is_out_of_space, space_words
from elastichost.clock import Clock, MonotonicClock
from elastichost.config.job import JobSpec, to_toml
from elastichost.dispatcher.admission_probe import EXAMINED_FILE
from elastichost.dispatcher.core.core import Core
from elastichost.dispatcher.core.demands import Examined
from elastichost.dispatcher.core.effects import Effect, KillJob, NoteEvent, StartJob
from elastichost.dispatcher.core.endings import Ended, at_memory_limit
from elastichost.dispatcher.core.refusals import CommandRefusals
from elastichost.dispatcher.core.shapes import shape_of
from elastichost.dispatcher.directory import HostDirectory, Kept, over_jobs, write_asked
from elastichost.dispatcher.facts import FAILURE_FILE, HostStatus, JobFailure, JobRequest, JobStatus
from elastichost.dispatcher.isolation.power import power_of
from elastichost.dispatcher.isolation.tiers import probe
from elastichost.dispatcher.job_observer import JobObserver
from elastichost.dispatcher.options import HostOptions, JobFeed
from elastichost.dispatcher.performer import Performer
from elastichost.dispatcher.processes import CHECK, JobProcesses
from elastichost.dispatcher.resource_leases import Lender
from elastichost.dispatcher.timeline import Timeline
from elastichost.errors import ArenaError, ConfigError, ProtocolError
from elastichost.host.nvml.use import GpuMeter
from elastichost.host.stop_signals import StopSignals
from elastichost.resources import HostInventory
from elastichost.runs.directory import new_run_path
from elastichost.runs.events import AnyEvent, HostPrepared, HostStopping, HostWarned, JobFailed, JournalLine
from elastichost.runs.events.run import MeasurementsSetAside
from elastichost.runs.journal import Journal, utc_now
from elastichost.runs.result import read_json, read_result
from elastichost.supervisor.core.disk_space import DiskSpace
from elastichost.wire.commands import CancelMsg, CommandServer, ReachedMsg, RefusedMsg, SubmitMsg, verb_of

__all__ = ["HostLoop"]

TICK_S = 0.2
STATUS_EVERY_S = 1.0
# Greatest share of a core that observing the processes may take (the whole dispatcher of 24 jobs takes 0.04), and the
# longest time between two observations. With a longer time, excess memory of a job is seen later.
LOOKING_SHARE, LONGEST_LOOK_S = 0.02, 1.0
COMMANDS_PER_TURN = 16
PREPARE_TIMEOUT_S = 300.0
# Of a dispatcher that runs for ever: ended jobs in its status, which is written every second and has 1 KB for each job;
# rows of its timeline, about 100 bytes each: 12 days of two jobs at a time.
MOST_ENDED, MOST_MOMENTS = 500, 2_000_000


class HostLoop:
    """The dispatcher of one host. Use it as a context manager. on_status: called once a second with the status.
    on_event: called with every line of the journal. Raises PreflightError as `run_host` does."""

    def __init__(
        self,
        options: HostOptions,
        inventory: HostInventory,
        on_status: Callable[[HostStatus], None],
        on_event: Callable[[JournalLine], None],
        clock: Clock | None = None,
        feed: JobFeed | None = None,
    ) -> None:
        self._options, self._inventory = options, inventory
        self._on_status, self._on_event, self._feed = on_status, on_event, feed
        self._clock = clock or MonotonicClock()
        self._closing = contextlib.ExitStack()
        try:
            self._open(options, inventory)
        except BaseException:
            self._closing.close()
            raise

    def _open(self, options: HostOptions, inventory: HostInventory) -> None:
        self._signals = self._closing.enter_context(StopSignals())
        self._directory = HostDirectory.open(options.directory)
        self._closing.callback(self._directory.close)
        self._earlier = self._directory.read_over() if options.goes_on else ()
        over = {job.job for job in self._earlier}
        queue = self._directory.read_queue() if options.keeps_queue else ()
        queue = tuple(
            kept for kept in queue if kept.request.job not in over
        )  # a kill between two writes leaves a job in both files
        if options.asked is not None:
            write_asked(self._directory.path, options.asked)
        # As early as possible, because arena reapers remove the arenas of killed supervisors after a few seconds.
        self._held = {kept.request.job: hold_left(Path(kept.request.run_dir).resolve()) for kept in queue}
        self._closing.callback(self._let_go, *self._held)
        self._isolation = probe(has_gpus=bool(inventory.gpus))
        self._closing.callback(self._isolation.close)
        self._crew = self._closing.enter_context(JobProcesses())
        self._journal = Journal(self._directory.journal)
        self._space = DiskSpace()
        self._closing.callback(self._journal.close)
        self._timeline = Timeline(self._directory.timeline, None if options.ends_when_empty else MOST_MOMENTS)
        self._closing.callback(self._timeline.close)
        if self._timeline.set_aside is not None:
            self._note(MeasurementsSetAside(self._timeline.set_aside.name))
        self._sockets = self._open_sockets()
        self._commands = CommandServer(f"ipc://{self._sockets}/commands")
        self._closing.callback(self._commands.close)
        self._lender = Lender(self._clock)
        self._closing.callback(self._lender.close)
        self._began_s = self._clock.now_s()
        gpu_meter = GpuMeter(inventory.gpus)
        self._closing.callback(gpu_meter.close)
        self._watch = JobObserver(len(inventory.cores), gpu_meter, self._isolation.traffic_bytes)
        self._core = Core(options.settings, inventory, power_of(inventory), options.memory_bytes)
        self._performer = Performer(
            self._core, self._crew, self._lender, self._isolation, inventory, options.keeps_sizes, self._clock
        )
        self._next_status_s = self._next_look_s = 0.0
        self._asked_to_stop = 0
        self._kept_last: tuple[Kept, ...] | None = None
        self._over_last: tuple[JobStatus, ...] | None = None
        self._refusals = CommandRefusals()
        self._state = "starting"
        for kept in queue:
            is_held = bool(self._held[kept.request.job])
            effects = self._core.submit(kept.request, self._elapsed_s(), has_run=kept.has_run, holds_arena=is_held)
            self._do(effects)

    def _open_sockets(self) -> Path:
        sockets = socket_directory(secrets.token_hex(8))
        self._crew.clean_when_lost(sockets)
        create_directory(sockets, owner_of(os.getpid(), self._directory.path))

        def remove() -> None:
            with contextlib.suppress(ArenaError):
                reclaim(sockets)

        self._closing.callback(remove)
        return sockets

    def __enter__(self) -> HostLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _elapsed_s(self) -> float:
        return self._clock.now_s() - self._began_s

    # --- turns ----------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, working_directory: Path, name: str = "", weight: float = 1.0) -> str:
        """Puts a job in the queue. Returns its name on this host. Raises ConfigError for an invalid name."""
        job, folder = self._directory.new_folder(name or spec.job.name, to_toml(spec))
        self._enqueue(spec, working_directory, job, folder, weight)
        return job

    def _take_feed(self) -> None:
        if self._feed is None or self._asked_to_stop:
            return
        for one in self._feed.take((*self._earlier, *self._core.statuses())):
            name = one.name or one.spec.job.name
            folder = self._directory.own_folder(name, to_toml(one.spec))
            self._enqueue(one.spec, one.working_directory, name, folder, one.weight)

    def _enqueue(self, spec: JobSpec, working_directory: Path, job: str, folder: Path, weight: float) -> None:
        run_dir = new_run_path(self._options.runs_under, job, secrets.token_hex(8))
        request = JobRequest(
            job, str(folder), str(working_directory), str(run_dir), utc_now(), weight, shape_of(spec, working_directory)
        )
        self._do(self._core.submit(request, self._elapsed_s()))
        self._keep_queue()

    def run(self) -> HostStatus:
        """Runs until all jobs have ended (a batch), or until it is asked to stop. Returns the last status."""
        while not self._is_over():
            self._turn()
        self._state = "ended"
        return self._report()

    def _is_over(self) -> bool:
        if self._asked_to_stop:
            return not self._crew.jobs()
        return self._options.ends_when_empty and self._core.is_empty and (self._feed is None or self._feed.is_over)

    def _turn(self) -> None:
        self._commands.wait(TICK_S, (*self._crew.descriptors(), self._signals.descriptor))
        self._signals.clear()
        now_s = self._elapsed_s()
        self._look_at_signals(now_s)
        self._take_commands(now_s)
        for ended in self._crew.events():
            self._ended(ended, now_s)
        for problem in self._crew.problems():
            self._note(HostWarned(problem))
        self._take_feed()
        if self._crew.is_prepared and self._state == "starting":
            self._state = "running"
            self._note(HostPrepared(self._crew.wait_prepared(PREPARE_TIMEOUT_S)))
        if now_s >= self._next_look_s:
            began_s = time.thread_time()
            self._observe(now_s)
            took_s = time.thread_time() - began_s
            self._next_look_s = now_s + min(LONGEST_LOOK_S, took_s / LOOKING_SHARE)
        for answer in self._lender.answers():
            self._do(self._core.answered(answer, now_s))
        self._do(self._core.tick(now_s))
        self._performer.turn()
        for problem in self._lender.turn():
            self._note(HostWarned(problem))
        self._journal.sync(now_s)
        if now_s >= self._next_status_s:
            self._next_status_s = now_s + STATUS_EVERY_S
            self._report()

    def _look_at_signals(self, now_s: float) -> None:
        if self._signals.count <= self._asked_to_stop:
            return
        was_asked, self._asked_to_stop = self._asked_to_stop, self._signals.count
        self._state = "stopping"
        if not was_asked:
            self._note(HostStopping(self._signals.name))
            self._do(self._core.stop(now_s))
        if self._asked_to_stop > 1:
            for job in self._crew.jobs():
                self._crew.signal(job, signal.SIGKILL)

    def _observe(self, now_s: float) -> None:
        self._core.arenas_may_use(room_of_arenas())
        run_dirs = {job: self._core.run_dir(job) for job in self._crew.pids}
        for seen in self._watch.look(self._crew.pids, run_dirs, self._clock.now_s()):
            self._performer.seen[seen.job] = seen
            self._do(self._core.seen(seen, now_s))

    def _ended(self, ended: Ended, now_s: float) -> None:
        folder = self._core.folder(ended.job)
        if ended.role == CHECK:
            self._do(self._examined(ended, folder, now_s))
        else:
            self._crew.adopt(self._performer.pids(ended.job))
            oom_kills = self._performer.ended(ended.job)
            failure = read_json(folder / FAILURE_FILE, JobFailure) if ended.code else None
            failure = at_memory_limit(ended.code, failure, oom_kills)
            result = read_result(self._core.run_dir(ended.job))
            self._do(self._core.ended(ended, failure, now_s, result))
        self._keep_queue()

    def _examined(self, ended: Ended, folder: Path, now_s: float) -> tuple[Effect, ...]:
        examined = read_json(folder / EXAMINED_FILE, Examined) if ended.code == 0 else None
        if examined is not None:
            return self._core.examined(examined, now_s)
        failure = read_json(folder / FAILURE_FILE, JobFailure)
        return self._core.ended(ended, failure, now_s)

    # --- commands -------------------------------------------------------------------------------------------

    def _take_commands(self, now_s: float) -> None:
        for _ in range(COMMANDS_PER_TURN):
            try:
                received = self._commands.receive()
            except ProtocolError as error:
                self._refusals.add(str(error))
                continue
            if received is None:
                break
            peer, command = received
            match command:
                case SubmitMsg():
                    reply = self._submitted(command)
                case CancelMsg():
                    reply = self._cancelled(command, now_s)
                case _:
                    reply = RefusedMsg(
                        f"a dispatcher does not take the command {verb_of(command)}",
                        "send it to a run: `queue --json` names the run directories",
                        True,
                    )
            self._commands.reply(peer, reply)
        if (refused := self._refusals.note(now_s)) is not None:
            self._note(refused)

    def _submitted(self, command: SubmitMsg) -> ReachedMsg | RefusedMsg:
        if self._asked_to_stop:
            return RefusedMsg("the dispatcher is stopping")
        try:
            spec = self._directory.spec_of(command.toml)
            job = self.submit(spec, Path(command.working_directory), command.name, command.weight)
        except ConfigError as error:
            return RefusedMsg(str(error), is_usage=True)
        except OSError as error:
            reason = error.strerror or str(error)
            return RefusedMsg(f"the job could not be written to {self._directory.path}: {reason}", "free some space")
        return ReachedMsg(f"{job} is in the queue", {"job": job})

    def _cancelled(self, command: CancelMsg, now_s: float) -> ReachedMsg | RefusedMsg:
        for job in self._earlier:
            if job.job == command.job:
                return RefusedMsg(f"{job.job} is already {job.state}", "`queue` lists the jobs", True)
        try:
            effects = self._core.cancel(command.job, now_s)
        except ConfigError as error:
            return RefusedMsg(error.message, error.hint, True)
        self._do(effects)
        self._keep_queue()
        if self._core.state(command.job) == "cancelled":
            return ReachedMsg(f"{command.job} is cancelled")
        return ReachedMsg(f"{command.job} is being cancelled: it saves its progress and exits; see `queue`")

    def _let_go(self, *jobs: str) -> None:
        """Releases the arenas of killed supervisors of these jobs, so that their new supervisors can take them over."""
        for held in itertools.chain.from_iterable(self._held.pop(job, ()) for job in jobs):
            held.release()

    def _do(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, NoteEvent):
                self._note(effect.event)
                if isinstance(effect.event, JobFailed):
                    self._let_go(effect.event.job)
            else:
                if isinstance(effect, StartJob | KillJob):
                    self._let_go(effect.job)
                for problem in self._performer.perform(effect):
                    self._note(HostWarned(problem))

    # --- status and journal ---------------------------------------------------------------------------------

    def _note(self, event: AnyEvent) -> None:
        self._on_event(self._journal.write(event))

    def _write(self, status: HostStatus) -> None:
        """Writes the status files. If the disk is full the jobs continue, and the next write is tried in a second."""
        problem = ""
        try:
            self._write_queue()
            self._directory.write_status(status)
            self._timeline.add(status)
        except (OSError, sqlite3.OperationalError) as error:
            if not is_out_of_space(error):
                raise
            problem = str(error)
        now_s = status.elapsed_s
        self._space.look("files of the dispatcher", problem or self._journal.problem, now_s)
        where = space_words(self._directory.path) if self._space.files else ""
        if (told := self._space.note(where, now_s)) is not None:
            self._note(told)

    def _keep_queue(self) -> None:
        """Writes the queue. If the disk is full the jobs continue, and `_write` tries again in a second."""
        try:
            self._write_queue()
        except OSError as error:
            if not is_out_of_space(error):
                raise

    def _write_queue(self) -> None:
        """Writes over.json before queue.json, so that an ended job is in one of them if the dispatcher is killed."""
        if self._options.ends_when_empty and (over := self._over()) != self._over_last:
            self._directory.write_over(over)
            self._over_last = over
        if self._options.keeps_queue and (kept := self._kept()) != self._kept_last:
            self._directory.write_queue(kept)
            self._kept_last = kept

    def _kept(self) -> tuple[Kept, ...]:
        return tuple(Kept(*one) for one in self._core.unfinished())

    def _over(self) -> tuple[JobStatus, ...]:
        return (*self._earlier, *over_jobs(self._core.statuses(), self._kept()))

    def _report(self) -> HostStatus:
        if not self._options.ends_when_empty:  # a batch keeps its ended jobs, for its report and for its resume
            self._crew.forget(self._core.forget_ended(MOST_ENDED, self._crew.busy()))
        status = self._core.status(
            HostStatus(
                directory=str(self._directory.path),
                pid=os.getpid(),
                commands=self._commands.address,
                policy=self._options.settings.policy,
                state=self._state,
                elapsed_s=self._elapsed_s(),
                isolation=self._isolation.sentences,
            )
        )
        status = msgspec.structs.replace(status, jobs=(*self._earlier, *status.jobs))
        self._write(status)
        self._on_status(status)
        return status
