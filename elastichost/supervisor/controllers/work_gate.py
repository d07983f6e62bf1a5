"""Whether workers may be given work now: the one place that checks all conditions."""

from __future__ import annotations

from collections.abc import Callable

from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.checkpoints import CheckpointState
from elastichost.supervisor.controllers.evaluations import EvaluationState
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.ledger.ledger import Ledger

__all__ = ["WorkGate"]


class WorkGate:
    """The work gate. It reads `checkpoint` and `evaluation`, which their controllers write. is_stopping: whether the
    run was asked to stop. has_test: there is a test set, so evaluations become due."""

    def __init__(
        self,
        run: RunContext,
        ledger: Ledger,
        sharding: ShardMapController,
        checkpoint: CheckpointState,
        evaluation: EvaluationState,
        is_stopping: Callable[[], bool],
        *,
        has_test: bool,
    ) -> None:
        self._run, self._ledger, self._sharding, self._is_stopping = run, ledger, sharding, is_stopping
        self._checkpoint, self._evaluation = checkpoint, evaluation
        job = run.job
        every_samples = job.evaluate.every_samples if has_test else 0
        # A crew is evaluated between two steps, so it must first finish its leases and get no new ones.
        # Where the best checkpoint is kept, no weight may change from an evaluation to its checkpoint.
        self._waits_for_evaluation = has_test and (job.train.mode == "sync" or bool(job.checkpoint.keep_best))
        self._evaluate_every_samples = every_samples

    def may_evaluate(self) -> bool:
        """Whether test ranges may be granted. False while a checkpoint holds the workers, before the first shard map is
        published, and after the run was asked to stop."""
        return not self._checkpoint.holds_workers and not self._is_stopping() and self._sharding.was_published

    def may_train(self) -> bool:
        """Whether leases may be granted. Like `may_evaluate`; also False while the journal cannot be written, because a
        resumed run needs the record of every lease."""
        if self._run.journal.problem:
            return False
        return self.may_evaluate() and not (self._waits_for_evaluation and self._is_evaluation_due())

    def _is_evaluation_due(self) -> bool:
        since = self._ledger.samples_accounted - (self._evaluation.evaluated_at or 0)
        return (
            self._evaluation.is_open
            or self._evaluation.candidate is not None
            or 0 < self._evaluate_every_samples <= since
        )
