"""Applies a plan change while the run trains, watches it until it is done, and journals what it cost.

Commands, the tuner and the memory monitor call `PlanChangeController.apply`. This module sends no replies: `observe`
returns a change that is done, and `number` shows whether a newer change has replaced it.
"""

from __future__ import annotations

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.micro_batches import step_of
from elastichost.plan import Plan
from elastichost.runs.events import Counts, PlanOrigin, PlanReached
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan import PlanController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core.plan_change import Dip, Pace, PlanChangeWatch

__all__ = ["PlanChangeController"]

SAMPLE_S = 0.02  # interval between measurements of the throughput while the plan does not change
SHORT_TURNS_S = 10.0  # for this long after a change begins, turns are short and measure each time


class PlanChangeController:
    """Plan changes of a run that trains. arena: of host 0. number: counts the changes. why_closed: why the plan may not
    change any more; "": it may."""

    def __init__(self, run: RunContext, plans: PlanController, arena: Arena, sharding: ShardMapController) -> None:
        self._run, self._sharding, self.plans = run, sharding, plans
        self._dense, self._watermarks = DenseStore(arena), Watermarks(arena.directory)
        self._pace = Pace()
        self._sampled_s = 0.0
        self._watch: PlanChangeWatch | None = None
        self._moved_s: float | None = None  # seconds of training that the last change lost
        self.number = 0
        self.why_closed = ""

    # --- facts --------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the plan may change: PS serve, and the run does not stop."""
        return self._sharding.was_published and not self.why_closed

    @property
    def is_under_way(self) -> bool:
        return self._watch is not None

    @property
    def is_settled(self) -> bool:
        """No change is under way, and the processes match the plan."""
        return self._watch is None and not self.why_closed and self._is_reached()

    def wants_short_turns(self, now_s: float) -> bool:
        """Whether turns must be short, so that the times of a change are measured exactly."""
        return self._watch is not None and now_s - self._watch.dip.began_s < SHORT_TURNS_S

    def take_moved_s(self) -> float | None:
        """Seconds of training that the last change lost; None: no change has ended since the last call."""
        moved_s, self._moved_s = self._moved_s, None
        return moved_s

    # --- a change -----------------------------------------------------------------------------------------------------

    def apply(self, plan: Plan, now_s: float, origin: PlanOrigin = "") -> None:
        """Applies a plan and begins to watch its change. The plan has workers and PS, and is pinned to cores. A change
        that is under way is not watched any more."""
        before = self._run.plan
        self.plans.apply(plan, origin)
        known = {spec.index for spec in before.workers}
        newcomers = {spec.index: self._last_incarnation(spec.index) for spec in plan.workers if spec.index not in known}
        dip = Dip(now_s, self._dense.samples_applied(), self._pace.before())
        self._watch = PlanChangeWatch(Counts.of(before), Counts.of(plan), newcomers, dip, self._run.plan_cause)
        self.number += 1

    def close(self, why: str) -> None:
        """The plan may not change any more. The change under way is not watched to its end."""
        self._watch, self.why_closed = None, why

    # --- every turn ---------------------------------------------------------------------------------------------------

    def sample(self, now_s: float) -> None:
        """Measures the throughput, and takes the hand-overs since the last call."""
        if self._watch is not None or now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            self._pace.add(now_s, self._dense.samples_applied())
        moves = self._sharding.take_moves()
        if self._watch is not None:
            self._watch.hand_overs += moves

    def observe(self, now_s: float) -> PlanReached | None:
        """Journals and returns a change that is done; None: none is done now."""
        watch = self._watch
        if watch is None:
            return None
        trained = [index for index in watch.awaited if self._has_trained(index, watch.newcomers[index])]
        watch.observe(now_s, self._dense.samples_applied(), trained, is_reached=self._is_reached())
        if not watch.is_over(now_s):
            return None
        reached = watch.figures()
        self._run.note(reached, watch.cause)
        self._moved_s, self._watch = reached.lost_s, None
        return reached

    def _last_incarnation(self, worker: int) -> int:
        record = self._run.fleet.named("worker", worker)
        return record.process.incarnation if record is not None else 0

    def _has_trained(self, worker: int, last_incarnation: int) -> bool:
        incarnation = self._last_incarnation(worker)
        if incarnation <= last_incarnation:
            return False
        if self._run.job.train.mode == "sync":  # the crew commits as one: a step that it began is committed
            begun = self._watermarks.begun(worker, incarnation)
            return begun > 0 and step_of(begun) < self._dense.version()
        return self._dense.applied(worker, incarnation).sequence > 0

    def _is_reached(self) -> bool:
        """The live processes are those of the plan, on its cores, and the PS of the plan own all buckets. Readers
        follow their workers."""
        plan, fleet = self._run.plan, self._run.fleet
        for spec in plan.processes:
            record = fleet.named(spec.role, spec.index)
            if record is None or not record.can_work or record.asked is not None:
                return False
            if (record.spec.cores, record.spec.threads) != (spec.cores, spec.threads):
                return False
        wanted = {(spec.role, spec.index) for spec in plan.processes}
        live = {(one.process.role, one.process.index) for one in fleet if one.is_live and one.process.role != "reader"}
        return live <= wanted and self._sharding.holdings.is_handed_over
