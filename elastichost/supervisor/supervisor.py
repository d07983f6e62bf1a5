"""One run from its first process to its last: the phases, and the result."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from elastichost.errors import ElastichostError, ExitCode, HostLostError, ModelLostError, NonFiniteError
from elastichost.host.stop_signals import StopSignals
from elastichost.runs import events
from elastichost.runs.result import RunOutcome, RunResult
from elastichost.supervisor.command_handler import refuse_all
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan import PlanController
from elastichost.supervisor.core.agenda import Finish
from elastichost.supervisor.event_loop import EventLoop, KilledError
from elastichost.supervisor.message_router import Described
from elastichost.supervisor.phases.arena_watch import ArenaWatch
from elastichost.supervisor.phases.description import DescriptionPhase
from elastichost.supervisor.phases.stop_request import StopRequest
from elastichost.supervisor.phases.training import TrainingPhase
from elastichost.supervisor.run_result import conclude, result_of
from elastichost.supervisor.run_start import RunStart, start_run
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.resume_source import ResumeSource
from elastichost.supervisor.status import Reporter
from elastichost.tuner.records import FirstPlanMade

__all__ = ["Supervisor"]


class Supervisor:
    """One run: the model is described, then the job trains. After a roll-back it trains again from a checkpoint."""

    def __init__(self, run: RunContext, prepared: Preparation, source: ResumeSource, signals: StopSignals) -> None:
        self._run, self._prepared, self._source, self._signals = run, prepared, source, signals
        gpus = prepared.initial_plan.request.gpus
        self._plans = PlanController(run, prepared.cores, gpus, is_asked=prepared.initial_plan.first.is_asked)
        self._reporter = Reporter(run, gpus)
        self._loop = EventLoop(run, signals, self._reporter)
        self._arenas = ArenaWatch(run)
        self._stop = StopRequest(run, signals, self._arenas)
        self._training: TrainingPhase | None = None  # the present one; None: the model is not described yet

    @property
    def components(self) -> Components | None:
        """The components of the run; None before training."""
        return self._training.components if self._training is not None else None

    def run(self) -> RunResult:
        """Trains until the job is done or asked to stop. Raises the error that the job fails with."""
        try:
            described = self._describe_model()
            if described is None:
                return self._result("killed", self._signals.exit_code)
            training, finish = self._train(described)
        except KilledError:
            return self._result("killed", self._signals.exit_code)
        except Exception as error:
            if self._training is not None:
                self._training.remember(has_failed=True)
            if self._arenas.is_gone():
                raise self._arenas.error(self._newest(), str(error)) from error
            raise
        training.end_processes(finish.reason, self._signals)
        if self._arenas.is_gone():
            raise self._arenas.error(self._newest())
        return self._conclude(training, finish)

    def _describe_model(self) -> Described | None:
        return DescriptionPhase(self._run, self._plans, self._loop, self._reporter).run(self._signals)

    def _train(self, described: Described) -> tuple[TrainingPhase, Finish]:
        message, initial = described
        run, prepared = self._run, self._prepared
        run.recorder.write(FirstPlanMade(prepared.initial_plan.request, prepared.initial_plan.first.plan))
        self._plans.begin(prepared.plan)
        for warning in message.warnings:
            run.note(events.Warned(warning))
        source, has_gone_back = self._source, False
        while True:
            start = start_run(run, prepared, self._plans, message.model, initial, source)
            if has_gone_back:
                self._reporter.went_back(start.dense.version() - 1)
            training = self._begin_training(start)
            try:
                return training, training.run()
            except (NonFiniteError, HostLostError, ModelLostError) as error:
                source = training.roll_back(error, source)
                self._arenas.watch(())
                self._training, has_gone_back = None, True

    def _begin_training(self, start: RunStart) -> TrainingPhase:
        run = self._run
        training = TrainingPhase(run, self._prepared, self._plans, start, self._stop, self._loop, self._reporter)
        here = [path for host, path in run.other_arenas.items() if host not in run.elsewhere]
        self._arenas.watch((run.arena, *here))
        self._training = training
        return training

    # --- the end ------------------------------------------------------------------------------------------------------

    def _conclude(self, training: TrainingPhase, finish: Finish) -> RunResult:
        components = training.components
        lookups, most = components.lookups.total(), self._run.job.resources.most_without_row
        end = conclude(components.leases.ledger, lookups, most, is_stopped=finish.status == "stopped")
        training.remember(ended_well=end.status in ("done", "quarantined"))
        result = self._result(end.status, end.code)
        if not end.message:
            return result
        self._run.note(events.LookupsWithoutRow(lookups.total, lookups.without_row, end.message))
        return msgspec.structs.replace(result, message=end.message)

    def _newest(self) -> Path | None:
        return self.components.checkpoints.newest if self.components is not None else None

    def _result(self, status: RunOutcome, code: ExitCode) -> RunResult:
        return result_of(self._run, self._prepared, self.components, self._reporter, status, code)

    def failed(self, error: ElastichostError) -> RunResult:
        """The result of a run that failed with this error."""
        return msgspec.structs.replace(self._result("failed", error.exit_code), message=str(error))

    def close(self, state: str) -> None:
        """Reports the final status, refuses commands that still wait, and closes the files."""
        with contextlib.suppress(OSError):
            self._reporter.report(state, self.components, self._run.now_s())
        self._reporter.close()
        refuse_all(self._run.commands, f"the run has ended: {state}")
        if self._training is not None:
            self._training.close()
