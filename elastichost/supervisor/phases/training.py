"""The phase in which the job trains: from the first process that trains to the end of the last one.

All components exist from the beginning of this phase to its end. A run that is rolled back to a checkpoint leaves this
phase and begins another one.
"""

from __future__ import annotations

import contextlib

from elastichost.errors import HostLostError, ModelLostError, NonFiniteError
from elastichost.host.stop_signals import StopSignals
from elastichost.plan import Plan
from elastichost.runs import events
from elastichost.supervisor.assembly import assemble
from elastichost.supervisor.autoscale.input_tuner import InputTuner
from elastichost.supervisor.autoscale.stragglers import StragglerWatch
from elastichost.supervisor.autoscale.tuner_loop import AutoTuner, open_tuner
from elastichost.supervisor.command_handler import CommandHandler
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan import PlanController
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.controllers.processes import ProcessController
from elastichost.supervisor.core.agenda import (
    BeginCheckpoint,
    BeginEpoch,
    BeginEvaluation,
    Finish,
    Policy,
    Wait,
    next_step,
)
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.supervisor.elastic_hosts.join import keep_hosts
from elastichost.supervisor.event_loop import TICK_S, EventLoop, KilledError
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.message_router import TrainingRouter
from elastichost.supervisor.phases.agenda_input import situation_of, word_of
from elastichost.supervisor.phases.description import host_lost_error
from elastichost.supervisor.phases.disk_watch import look_at_space
from elastichost.supervisor.phases.stop_request import StopRequest
from elastichost.supervisor.rollback import roll_back
from elastichost.supervisor.run_start import RunStart
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.resume_source import ResumeSource
from elastichost.supervisor.startup.worker_kinds import check_after_loss
from elastichost.supervisor.status import Reporter
from elastichost.wire.commands import CommandServer
from elastichost.wire.control import StopMsg

__all__ = ["TrainingPhase"]

CHANGING_TICK_S = 0.005  # while the plan changes: the first batch of a new worker is visible in the arena only
STOP_GRACE_S = 3.0


class TrainingPhase:
    """Trains the job. stopping_since_s: when the run was asked to stop; None: it was not."""

    def __init__(
        self,
        run: RunContext,
        prepared: Preparation,
        plans: PlanController,
        start: RunStart,
        stop: StopRequest,
        loop: EventLoop,
        reporter: Reporter,
    ) -> None:
        self._run, self._prepared, self._plans = run, prepared, plans
        self._stop, self._loop, self._reporter = stop, loop, reporter
        self.components = assemble(run, prepared, start, stop.is_wanted)
        components = self.components
        self.changes = PlanChangeController(run, plans, components.arena, components.sharding)
        self.processes = ProcessController(
            run, components.ended, lambda: components.sharding.holdings, self._host_lost, plans.gpus
        )
        self.router = TrainingRouter(run, self.processes, components)
        self._commands = CommandHandler(run, components, self.changes)
        self._stragglers = StragglerWatch(run)
        self._input = InputTuner(run, prepared, components, self.changes)
        self._tuner: AutoTuner | None = open_tuner(run, prepared, components, self.changes, self._input)
        self._policy = _policy_of(run, prepared)
        self.state = "starting"
        self.stopping_since_s: float | None = None
        self._is_saved = False  # all that was trained is in a checkpoint

    # --- the phase ----------------------------------------------------------------------------------------------------

    def run(self) -> Finish:
        """Trains until the job is done or asked to stop. Raises the error that the job fails with."""
        while True:
            self._loop.turn(self)
            self._stop_when_asked()
            finish = self._advance()
            if finish is not None:
                self._run.note(events.RunFinishing(finish.reason))
                return finish

    def end_processes(self, reason: str, signals: StopSignals) -> None:
        """Tells every process to stop, and waits up to STOP_GRACE_S for their exits. The caller kills the others. Then
        waits for a copy to the mirror, unless another stop signal comes."""
        run, components, now_s = self._run, self.components, self._run.now_s()
        self.state, self._is_saved = "stopping", True
        self._reporter.report(self.state, components, now_s, thoroughly=True)
        self._plans.end(reason)
        components.sharding.retire()
        self._close_commands(f"the run ends: {reason}")
        for record in run.fleet:
            if record.is_live and record.pid:
                run.fleet.apply(record, LifecycleEvent.STOP, now_s)
                run.send(record.process, StopMsg())
        with contextlib.suppress(KilledError):
            while run.launcher.processes() and run.now_s() - now_s < STOP_GRACE_S:
                self._loop.turn(self)
            asked = signals.count
            while components.checkpoints.is_mirroring and signals.count == asked:
                self._loop.turn(self)

    def roll_back(self, error: NonFiniteError | HostLostError | ModelLostError, source: ResumeSource) -> ResumeSource:
        """Rolls the run back, and returns what its next phase begins from. source: what this phase began from. Raises
        `error` when the job's settings or the number of roll-backs do not allow it."""
        run = self._run
        if isinstance(error, NonFiniteError) and run.job.train.non_finite != "roll_back":
            raise error
        source = roll_back(run, self.components, error, source)
        self._close_commands("the run is rolled back")
        self._plans.begin_again(self._wanted_again(), is_host_lost=isinstance(error, HostLostError))
        keep_hosts(run)  # further hosts may have been lost meanwhile
        self._loop.forget_exits()
        return source

    def _wanted_again(self) -> Plan:
        plan = self._run.plan
        return plan if plan.workers and self.stopping_since_s is None else self._prepared.plan

    def remember(self, *, ended_well: bool = False, has_failed: bool = False) -> None:
        """Saves the tuner's measurements for later jobs of this kind."""
        if self._tuner is not None:
            self._tuner.remember(ended_well=ended_well, has_failed=has_failed)

    def close(self) -> None:
        """Call it when every process has ended."""
        self.components.checkpoints.close()
        self.components.evaluations.close()
        self.components.memory.close()
        self.components.arena.close()

    # --- a turn of the event loop -------------------------------------------------------------------------------------

    def tick_s(self, now_s: float) -> float:
        """Short while the plan changes."""
        return CHANGING_TICK_S if self.changes.wants_short_turns(now_s) else TICK_S

    def commands(self) -> CommandServer | None:
        """Commands are taken once the PS of the first plan serve."""
        return self._run.commands if self.components.sharding.was_published else None

    def before_reconcile(self, now_s: float) -> None:
        """Handles commands and lost GPUs, and withdraws plans of the tuner that cannot be reached."""
        if self._reporter.lost_gpus:
            self._give_up_gpus(self._reporter.lost_gpus)
        if self.components.sharding.was_published:
            self.changes.sample(now_s)
            have_joined = self._commands.turn(now_s)
            if (granted := self._commands.take_granted()) is not None and self._tuner is not None:
                self._tuner.granted(*granted, now_s)
            if (reached := self.changes.observe(now_s)) is not None:
                self._commands.reached(reached)
            if have_joined:
                self._open_tuner_anew()
        if self._tuner is not None:
            self._tuner.take_back(now_s)

    def after_reconcile(self, now_s: float) -> None:
        """Moves buckets, advances checkpoints, checks for slow workers, runs the tuner, checks memory; then answers
        workers that wait for work, and checks for full disks."""
        run, components = self._run, self.components
        if not components.checkpoints.is_open:
            components.sharding.follow_plan()
            components.rebalancer.look(now_s)
        components.checkpoints.tick(now_s)
        components.finish_evaluation()
        stands_still = run.space.holds_training
        components.leases.measure(now_s, stands_still=stands_still)
        is_busy = components.checkpoints.holds_workers or components.evaluations.is_open
        if not is_busy and not stands_still:
            self._stragglers.look(components.leases, self.processes, now_s)
        is_tuned = self.stopping_since_s is None and not stands_still and components.sharding.was_published
        if is_tuned:
            self._input.look(self._reporter.private_bytes, now_s, is_steady=not is_busy and self._has_work())
            if self._tuner is not None:
                self._tuner.look(now_s)
        components.memory.look(components.leases.ledger, self.changes, self._reporter.private_bytes, now_s)
        components.serve()
        self._look_at_space()

    def _look_at_space(self) -> None:
        """A run that is to stop and cannot save its training fails; one that has saved it only ends its processes."""
        waits_since_s = None if self._is_saved else self.stopping_since_s
        look_at_space(self._run, self._reporter.problems, waits_since_s, self.components.checkpoints.newest)

    def _has_work(self) -> bool:
        workers = self._run.fleet.working("worker")
        return all(self.components.leases.has_work(record.process) for record in workers)

    # --- events -------------------------------------------------------------------------------------------------------

    def _stop_when_asked(self) -> None:
        reason = self._stop.reason()
        if not reason or self.stopping_since_s is not None:
            return
        self.stopping_since_s = self._run.now_s()
        # The present PS stay, so no bucket has to change its owner before the final checkpoint.
        self.components.sharding.stay()
        self._plans.drain(self.components.sharding.servers, reason)
        self._close_commands("the run was asked to stop")

    def _host_lost(self, event: AgentLost) -> None:
        """A host is lost; the exits of its processes follow. Its processes leave the plan, and its buckets are rebuilt.
        Raises HostLostError in sync mode, which rolls the run back."""
        run = self._run
        if not run.plan.processes:
            return  # everything is trained and saved
        keep_hosts(run)
        reason = f"host {event.name} is lost"
        if self._policy.is_sync:
            self._plans.give_up_hosts(reason)
            raise host_lost_error(event)
        plan = self._plans.without_lost_hosts(reason)
        if self.stopping_since_s is not None:
            self._plans.apply(plan)
        else:
            self.changes.apply(plan, run.now_s())
        self.components.losses.lose(event)
        self.components.leases.host_lost(event.host)
        self._open_tuner_anew()

    def _give_up_gpus(self, fallen: frozenset[int]) -> None:
        """GPUs have fallen off the bus: their workers leave the plan. Raises GpuLostError if no worker with a GPU is
        left and the job may not train on the CPU. fallen: all of them, also those that are given up already."""
        used = {*(gpu.index for gpu in self._plans.gpus), *(spec.gpu for spec in self._run.plan.workers)}
        lost = fallen & used
        if not lost:
            return
        reason = f"GPU {', '.join(map(str, sorted(lost)))} is lost"
        plan = self._plans.without_gpus(lost, reason)
        if not self._run.plan.workers:  # everything is trained, or the run stops
            if self.stopping_since_s is not None:
                self.processes.give_up_gpus(lost, reason)
            return
        check_after_loss(self._run.job, plan, reason)
        with self._run.caused_by(self._run.new_cause("gpu-lost")):
            self.changes.apply(plan, self._run.now_s())
            self.processes.give_up_gpus(lost, reason)
        self._open_tuner_anew()

    def _open_tuner_anew(self) -> None:
        """Replaces the tuner by one for the hosts and GPUs that the run has now."""
        self._tuner = open_tuner(self._run, self._prepared, self.components, self.changes, self._input)

    def _close_commands(self, why: str) -> None:
        self.changes.close(why)
        self._commands.close(why)

    def _advance(self) -> Finish | None:
        components, is_stopping = self.components, self.stopping_since_s is not None
        step = next_step(situation_of(self._run, components, is_stopping=is_stopping), self._policy, self._run.now_s())
        match step:
            case Wait():
                pass
            case BeginEpoch(reason=reason):
                components.leases.ledger.begin_epoch()
                self._run.note(events.EpochStarted(components.leases.ledger.epoch, reason))
                components.leases.serve()
            case BeginEvaluation(reason=reason):
                components.evaluations.begin(components.leases.ledger.samples_accounted, reason)
            case BeginCheckpoint(reason=reason, is_final=is_final):
                components.checkpoints.begin(reason, is_final=is_final)
            case Finish():
                return step
        self.state = word_of(components, self.state, is_stopping=is_stopping)
        return None


def _policy_of(run: RunContext, prepared: Preparation) -> Policy:
    job = run.job
    return Policy(
        has_test=prepared.test is not None and prepared.test.samples > 0,
        evaluate_every_samples=job.evaluate.every_samples,
        early_stop_patience=job.evaluate.early_stop.patience,
        checkpoint_every_s=job.checkpoint.every_s,
        is_sync=job.train.mode == "sync",
        keeps_best=bool(job.checkpoint.keep_best),
    )
