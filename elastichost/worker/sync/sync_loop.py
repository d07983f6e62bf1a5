"""The loop of a worker in sync mode: it has no leases, but computes micro-batches of steps with the whole crew."""

from __future__ import annotations

from collections import deque

from elastichost.config.job import JobSpec
from elastichost.datasets.sources.control import InputControl
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import ControlMessage, CrewMsg, EvaluationGrantMsg, RepinMsg, StepsGrantMsg
from elastichost.wire.facts import StageSample
from elastichost.worker.commit.sync_commit import SyncCommit
from elastichost.worker.evaluation import score_range
from elastichost.worker.lifecycle import WorkerLifecycle
from elastichost.worker.model.device import gpu_memory_bytes, move_training
from elastichost.worker.setup import SyncParts, build_sync_parts
from elastichost.worker.sync.step_queue import StepQueue
from elastichost.worker.sync.sync_worker import CrewMember

__all__ = ["SyncWorkerLoop"]


class SyncWorkerLoop(WorkerLifecycle[SyncCommit]):
    """One worker incarnation in sync mode: reads samples, trains the user's model, scores test data."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        super().__init__(arguments, job)
        self._made: SyncParts | None = None
        self._opened: CrewMember | None = None
        self._evaluations: deque[EvaluationGrantMsg] = deque()
        self._steps = StepQueue(self._process.index, job.train.batch_size, job.train.micro_batches)

    @property
    def _parts(self) -> SyncParts:
        assert self._made is not None
        return self._made

    @property
    def _crew(self) -> CrewMember:
        assert self._opened is not None
        return self._opened

    def _build(self) -> SyncCommit:
        self._made = build_sync_parts(self._arguments, self._job, self._holder, self._pump, self._waiting)
        return self._made.strategy

    def _open(self, strategy: SyncCommit) -> None:
        parts = self._parts
        parts.runner.train(True)
        self._opened = CrewMember(
            self._process, self._job, parts, self._holder, self._steps, self._pump, lambda: self._meter
        )

    def _close_parts(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _work(self, strategy: SyncCommit) -> None:
        if self._evaluations:
            self._evaluate(strategy, self._evaluations.popleft())
            return
        self._crew.turn()
        self._state = self._crew.state

    def _come_to_rest(self, strategy: SyncCommit) -> None:
        """Does nothing: between two turns no work is unfinished. Every computed micro-batch has been pushed."""

    def _discard(self) -> None:
        self._crew.discard()

    def _takes(self, message: ControlMessage) -> bool:
        match message:
            case StepsGrantMsg():
                self._steps.grant(message)
            case CrewMsg():
                self._steps.crew(message)
            case EvaluationGrantMsg():
                self._evaluations.append(message)
            case _:
                return super()._takes(message)
        return True

    def _move(self, asked: RepinMsg) -> None:
        move_training(asked)

    def _take_read_s(self) -> float:
        return self._opened.take_read_s() if self._opened is not None else 0.0

    def _take_stages(self) -> tuple[StageSample, ...]:
        return self._opened.take_stages() if self._opened is not None else ()

    @property
    def _input(self) -> InputControl | None:
        return self._made.input if self._made is not None else None

    def _take_traffic(self) -> tuple[int, int, int]:
        if self._made is None:
            return 0, 0, 0
        return *self._made.take_traffic(), gpu_memory_bytes(self._made.device)

    def _evaluate(self, strategy: SyncCommit, grant: EvaluationGrantMsg) -> None:
        self._state = "evaluating"
        self._parts.test_rows.channel.step = self._crew.present_step()
        strategy.fetch()
        message, frames = score_range(self._parts, grant, self._pump_or_stop)
        self.control.send(message, frames)
