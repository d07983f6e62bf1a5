"""The supervisor's loop: waits for a message, an exit, a signal or a timer, and calls whom it concerns."""

from __future__ import annotations

import contextlib

import msgspec

from elastichost.errors import (
    ElastichostError,
    ExitCode,
    HostLostError,
    NonFiniteError,
    PreflightError,
)
from elastichost.host.kernel_cache import kernel_cache
from elastichost.plan import Plan, ProcessSpec
from elastichost.runs import events
from elastichost.runs.result import RunOutcome, RunResult
from elastichost.supervisor.agenda_input import situation_of, word_of
from elastichost.supervisor.assembly import assemble
from elastichost.supervisor.autoscale.stragglers import StragglerWatch
from elastichost.supervisor.autoscale.tuner_loop import AutoTuner, open_tuner
from elastichost.supervisor.command_handler import CommandHandler, refuse_all
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.arena_watch import ArenaWatch
from elastichost.supervisor.controllers.processes import Holdings, ProcessController
from elastichost.supervisor.core.agenda import (
    BeginCheckpoint,
    BeginEpoch,
    BeginEvaluation,
    Finish,
    Policy,
    Wait,
    next_step,
)
from elastichost.supervisor.core.core_assignment import pin
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.supervisor.core.work_budget import WorkBudget
from elastichost.supervisor.disk_watch import look_at_space
from elastichost.supervisor.elastic_hosts.join import keep_hosts
from elastichost.supervisor.elastic_hosts.loss import plan_without
from elastichost.supervisor.launch.events import AgentLost, Exited
from elastichost.supervisor.launch.messages import PreparedMsg
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.supervisor.message_router import Described, MessageRouter
from elastichost.supervisor.rollback import roll_back
from elastichost.supervisor.run_result import conclude, reckon
from elastichost.supervisor.signals import StopSignals
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.resume_source import ResumeSource
from elastichost.supervisor.status import Reporter
from elastichost.tuner.records import FirstPlanMade
from elastichost.wire.control import StopMsg

__all__ = ["Supervisor"]

TICK_S = 0.1
WATCHING_TICK_S = 0.005  # while the plan changes: when a newcomer trains first is seen in the arena only
LAST_WORDS_S = 0.1  # a process that exits may have said why: its words may come after its exit is seen
STOP_GRACE_S = 3.0
STALL_S = 2.0  # a turn that takes longer was no turn: Ctrl-Z, a debugger, a machine that swaps


class _KilledError(Exception):
    """Asked to stop twice: end everything now."""


class Supervisor:
    """One run, from the first process to the last."""

    def __init__(self, run: Run, prepared: Preparation, heritage: ResumeSource, signals: StopSignals) -> None:
        self._run, self._prepared, self._heritage, self._signals = run, prepared, heritage, signals
        self._recovery = ProcessController(run, self._ended, self._holdings, self._host_lost)
        self._dispatcher = MessageRouter(run, self._recovery, lambda: self._parts)
        self._reporter = Reporter(run)
        self._stragglers = StragglerWatch(run)
        self._parts: Components | None = None
        self._commander: CommandHandler | None = None
        self._was_asked = prepared.beginning.first.is_asked  # for a size, before a resume or a roll back
        self._tuner: AutoTuner | None = None
        self._exits: list[tuple[float, Exited]] = []
        self._state = "starting"
        self._arenas = ArenaWatch(run, (), lambda: None)
        self._stopping_s: float | None = None  # since when it is to stop
        self._said_prepared: PreparedMsg | None = None
        self._turned_s = self._rested_s = run.now_s()
        self._pacing, self._worked_s = WorkBudget(), 0.0
        self._policy = Policy(
            has_test=prepared.test is not None and prepared.test.samples > 0,
            evaluate_every_samples=run.job.evaluate.every_samples,
            early_stop_patience=run.job.evaluate.early_stop.patience,
            checkpoint_every_s=run.job.checkpoint.every_s,
            is_sync=run.job.train.mode == "sync",
        )

    def run(self) -> RunResult:
        """Trains until the job is done or asked to stop. Raises what made it fail."""
        try:
            finish = self._train()
        except _KilledError:
            return self._result("killed", self._signals.exit_code)
        except Exception as error:
            if self._tuner is not None:
                self._tuner.remember(self._prepared.beginning.features, has_failed=True)
            if self._arenas.is_gone():
                raise self._arenas.error(str(error)) from error
            raise
        if finish is None or self._parts is None:
            return self._result("killed", self._signals.exit_code)
        self._state = "stopping"
        self._reporter.report(self._state, self._parts, self._run.now_s(), thoroughly=True)
        self._stop_processes(finish.reason)
        if self._arenas.is_gone():
            raise self._arenas.error()
        lookups, most = self._parts.lookups.total(), self._run.job.resources.most_without_row
        end = conclude(self._parts.training.ledger, lookups, most, is_stopped=finish.status == "stopped")
        if self._tuner is not None:
            well = end.status in ("done", "quarantined")
            self._tuner.remember(self._prepared.beginning.features, ended_well=well)
        if not end.message:
            return self._result(end.status, end.code)
        self._run.note(events.LookupsWithoutRow(lookups.total, lookups.without_row, end.message))
        return msgspec.structs.replace(self._result(end.status, end.code), message=end.message)

    def _train(self) -> Finish | None:
        """None: asked to stop before there was anything to keep."""
        described = self._describe_model()
        if described is None:
            return None
        run, prepared = self._run, self._prepared
        run.plan = prepared.plan
        run.recorder.write(FirstPlanMade(prepared.beginning.request, prepared.beginning.first.plan))
        run.decided(prepared.plan.reason, "scale" if self._was_asked else "start", run.new_cause("start"))
        for warning in described[0].warnings:
            run.note(events.Warned(warning))
        while True:
            try:
                return self._train_from(described, self._heritage)
            except (NonFiniteError, HostLostError) as error:
                self._heritage = self._roll_back(error, described)

    def _train_from(self, described: Described, heritage: ResumeSource) -> Finish:
        message, initial = described
        self._parts = assemble(
            self._run, self._prepared, message.model, initial, heritage, lambda: bool(self._why_stop())
        )
        parts = self._parts
        here = [path for host, path in self._run.other_arenas.items() if host not in self._run.elsewhere]
        self._arenas = ArenaWatch(self._run, (self._run.arena, *here), lambda: parts.checkpointer.newest)
        self._commander = CommandHandler(self._run, self._parts, self._prepared)
        self._commander.was_asked = self._was_asked
        self._tuner = open_tuner(self._run, self._prepared, self._parts, self._commander)
        while True:
            self._turn()
            self._stop_when_asked()
            finish = self._advance(self._parts)
            if finish is not None:
                self._run.note(events.RunFinishing(finish.reason))
                return finish

    def _roll_back(self, error: NonFiniteError | HostLostError, described: Described) -> ResumeSource:
        """Everything but this object, the run directory and the fork server begins anew. Raises `error` when the job
        does not want that, or it cannot be."""
        parts, run = self._parts, self._run
        is_wanted = isinstance(error, HostLostError) or run.job.train.non_finite == "roll_back"
        if parts is None or not is_wanted:
            raise error
        heritage = roll_back(run, parts, error, self._heritage)
        if self._commander is not None:
            self._was_asked = self._commander.was_asked
            self._commander.end("the run is rolled back")
        wanted = self._prepared.plan if self._stopping_s is not None or not run.plan.workers else run.plan
        left = plan_without(wanted, run)
        run.plan = pin(left, self._prepared.cores, run.cores_elsewhere).plan if run.machines is not None else left
        keep_hosts(run)  # more than one may be lost
        if isinstance(error, HostLostError):
            run.decided(run.plan.reason)
        self._parts, self._commander, self._tuner = None, None, None
        self._stopping_s, self._state = None, "starting"
        self._exits.clear()
        self._recovery = ProcessController(run, self._ended, self._holdings, self._host_lost)
        self._dispatcher = MessageRouter(run, self._recovery, lambda: self._parts)
        self._dispatcher.described = described
        self._turned_s = run.now_s()
        return heritage

    def _describe_model(self) -> Described | None:
        """The probe builds the user's model once and says what it consists of."""
        probe = ProcessSpec(role="probe", index=0, cores=self._prepared.cores, threads=1)
        self._run.plan = Plan((probe,), self._prepared.plan.access, "the model must be known first")
        while self._dispatcher.described is None:
            self._turn()
            if self._signals.count:
                return None
        return self._dispatcher.described

    def _stop_when_asked(self) -> None:
        reason = self._why_stop()
        if not reason or self._stopping_s is not None:
            return
        self._stopping_s = self._run.now_s()
        plan = self._run.plan
        # Without workers: they are drained. With the PS there are: nothing has to change hands any more.
        if self._parts is not None:
            self._parts.roster.stay()
        servers = self._parts.roster.servers if self._parts is not None else plan.servers
        self._run.plan = Plan(servers, plan.access, reason)
        self._run.decided(f"{reason}; workers drain, then a checkpoint", cause=self._run.new_cause("stop"))
        if self._commander is not None:
            self._commander.end("the run was asked to stop")

    def _why_stop(self) -> str:
        """ "" while the run should go on."""
        if self._arenas.is_gone():
            return f"the files of {self._arenas.gone} were removed"
        return f"{self._signals.name}: the job is asked to stop" if self._signals.count else ""

    def _stop_processes(self, reason: str) -> None:
        """Tells every process to stop and waits a moment for the exits; what is left then is killed by `close`."""
        run, now_s = self._run, self._run.now_s()
        run.plan = Plan((), run.plan.access, reason)
        if self._parts is not None:
            self._parts.roster.retire()
        if self._commander is not None:
            self._commander.end(f"the run ends: {reason}")
        for record in run.fleet:
            if record.is_live and record.pid:
                run.fleet.apply(record, LifecycleEvent.STOP, now_s)
                run.send(record.process, StopMsg())
        with contextlib.suppress(_KilledError):
            while run.launcher.processes() and run.now_s() - now_s < STOP_GRACE_S:
                self._turn()
            asked = self._signals.count
            while self._parts is not None and self._parts.checkpointer.is_mirroring and self._signals.count == asked:
                self._turn()

    def _turn(self) -> None:
        run = self._run
        self._rest()
        watching = self._commander is not None and self._commander.wants_short_turns(run.now_s())
        tick_s = WATCHING_TICK_S if watching else TICK_S
        commander = self._commander if self._parts is not None and self._parts.roster.was_published else None
        heard = (run.commands.socket,) if commander is not None else ()  # a plan changes once there is one to change
        run.control.poll(tick_s, (*run.launcher.descriptors(), self._signals.descriptor), heard)
        began_s = run.now_s()
        self._signals.clear()
        self._look_at_clock()
        if self._signals.count > 1:
            raise _KilledError
        self._take_launch_events()
        self._dispatcher.take()
        now_s = run.now_s()
        self._handle_due_exits(now_s)
        if commander is not None:
            commander.turn(now_s)
            if self._parts is not None and commander.take_hosts_changed():
                self._tuner = open_tuner(run, self._prepared, self._parts, commander)
        if self._tuner is not None:
            self._tuner.take_back(now_s)
        self._recovery.reconcile(self._look_at_clock())
        if self._parts is not None:
            if not self._parts.checkpointer.is_open:
                self._parts.roster.follow_plan()
                self._parts.balancer.look(now_s)
            self._parts.checkpointer.tick(now_s)
            self._parts.training.measure(now_s, stands_still=run.space.holds_training)
            is_busy = self._parts.checkpointer.holds_workers or self._parts.judge.is_open
            if not is_busy and not run.space.holds_training:
                self._stragglers.look(self._parts.training, self._recovery, now_s)
            is_tuned = self._stopping_s is None and not run.space.holds_training
            if self._tuner is not None and is_tuned and commander is not None:
                self._tuner.look(now_s)
            self._parts.memory.look(self._parts.training.ledger, commander, self._reporter.private_bytes, now_s)
            self._parts.serve()
        run.journal.sync(now_s)
        self._reporter.tick(self._state, self._parts, now_s)
        look_at_space(run, self._reporter.problems, self._stopping_s, self._parts)
        self._worked_s = run.now_s() - began_s

    def _rest(self) -> None:
        """Lets messages gather when turns follow each other too fast."""
        now_s = self._run.now_s()
        passed_s, self._rested_s = now_s - self._rested_s, now_s
        if (rest_s := self._pacing.rest_s(self._worked_s, passed_s)) >= 0.001:
            wait_readable([self._signals.descriptor], rest_s)

    def _look_at_clock(self) -> float:
        """Extends deadlines when the supervisor itself was stopped. Returns the time by which processes are judged."""
        now_s = self._run.now_s()
        stood_s, self._turned_s = now_s - self._turned_s, now_s
        if stood_s > STALL_S:
            self._run.fleet.extend_deadlines(stood_s)
            self._run.note(events.SupervisorStalled(stood_s))
        return now_s

    def _take_launch_events(self) -> None:
        for event in self._run.launcher.events():
            if isinstance(event, Exited):
                wait_s = LAST_WORDS_S if event.code >= 0 else 0.0
                self._exits.append((self._run.now_s() + wait_s, event))
            else:
                self._recovery.launch_event(event)
        self._look_at_fork_server()

    def _look_at_fork_server(self) -> None:
        prepared = self._run.launcher.prepared
        if prepared is None or prepared is self._said_prepared:
            return
        self._said_prepared = prepared
        if prepared.error:
            raise PreflightError(
                f"the libraries of a worker cannot be imported:\n{prepared.error}", hint="run `elastichost doctor`"
            )
        self._run.note(events.ForkServerReady(prepared.seconds, compiled_kernels=kernel_cache().directory is None))
        if prepared.threads > 1:
            self._run.note(events.ForkServerThreads(prepared.threads))

    def _handle_due_exits(self, now_s: float) -> None:
        due = [event for due_s, event in self._exits if due_s <= now_s]
        self._exits = [(due_s, event) for due_s, event in self._exits if due_s > now_s]
        for event in due:
            self._recovery.launch_event(event)

    def _holdings(self) -> Holdings:
        return self._parts.roster.holdings if self._parts is not None else Holdings()

    def _ended(self, record: ProcessRecord, *, asked: bool) -> None:
        if self._parts is not None:
            self._parts.ended(record, asked=asked)

    def _host_lost(self, event: AgentLost) -> None:
        """What ran there has ended, and will be told of next. Raises HostLostError where the run cannot go on from
        what it has: before it trains, and in sync mode, which goes back to its checkpoint."""
        run, parts, commander = self._run, self._parts, self._commander
        if not run.plan.processes:
            return  # all is trained and saved
        keep_hosts(run)
        error = HostLostError(
            f"host {event.name} is lost: {event.reason}",
            hint="its rows are in the newest checkpoint: `elastichost resume` goes on from there",
        )
        if parts is None or commander is None:
            raise error
        plan = pin(plan_without(run.plan, run), self._prepared.cores, run.cores_elsewhere).plan
        plan = msgspec.structs.replace(plan, reason=f"host {event.name} is lost")
        if self._policy.is_sync:
            run.plan = plan
            raise error
        if self._stopping_s is not None:
            run.plan = plan
            run.decided(plan.reason)
        else:
            commander.follow(plan, run.now_s())
        parts.losses.lose(event)
        if self._tuner is not None:
            self._tuner = open_tuner(run, self._prepared, parts, commander)

    def _advance(self, parts: Components) -> Finish | None:
        situation = situation_of(self._run, parts, is_stopping=self._stopping_s is not None)
        step = next_step(situation, self._policy, self._run.now_s())
        accounted = parts.training.ledger.samples_accounted
        match step:
            case Wait():
                pass
            case BeginEpoch(reason=reason):
                parts.training.ledger.begin_epoch()
                self._run.note(events.EpochStarted(parts.training.ledger.epoch, reason))
                parts.training.serve()
            case BeginEvaluation(reason=reason):
                parts.judge.begin(accounted, reason)
            case BeginCheckpoint(reason=reason, is_final=is_final):
                parts.checkpointer.begin(reason, is_final=is_final)
            case Finish():
                return step
        self._state = word_of(parts, self._state, is_stopping=self._stopping_s is not None)
        return None

    # --- the end --------------------------------------------------------------------------------------------

    def _result(self, status: RunOutcome, code: ExitCode) -> RunResult:
        return reckon(self._run, self._prepared, self._parts, self._reporter, status, code)

    def failed(self, error: ElastichostError) -> RunResult:
        """What result.json says of a run that raised."""
        return msgspec.structs.replace(self._result("failed", error.exit_code), message=str(error))

    def close(self, state: str) -> None:
        """The last picture, then the files."""
        with contextlib.suppress(OSError):
            self._reporter.report(state, self._parts, self._run.now_s())
        self._reporter.close()
        refuse_all(self._run.commands, f"the run has ended: {state}")
        if self._parts is not None:
            self._parts.checkpointer.close()
            self._parts.memory.close()
            self._parts.arena.close()
