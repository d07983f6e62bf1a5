"""A change of the plan while the run trains: it takes effect, is watched until it is done, and then told.

`PlanChangeController.apply` is called by a command, by the tuner and by the memory monitor alike. Nobody is answered
here: `observe` returns a change that is done, and `number` says whether another one has taken its place.
"""

from __future__ import annotations

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.micro_batches import step_of
from elastichost.plan import Plan
from elastichost.runs.events import Counts, PlanOrigin, PlanReached
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.plan import PlanController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core.plan_change import Dip, Pace, PlanChangeWatch

__all__ = ["PlanChangeController"]

SAMPLE_S = 0.02  # the throughput is looked at so often while nothing changes
SHORT_TURNS_S = 10.0  # and as often as can be for so long when something does


class PlanChangeController:
    """Of a run that trains. arena: of host 0. number: counts the changes. why_closed: why no plan may change any more,
    "" while it may."""

    def __init__(self, run: Run, plans: PlanController, arena: Arena, sharding: ShardMapController) -> None:
        self._run, self._sharding, self.plans = run, sharding, plans
        self._dense, self._watermarks = DenseStore(arena), Watermarks(arena.directory)
        self._pace = Pace()
        self._sampled_s = 0.0
        self._watch: PlanChangeWatch | None = None
        self._moved_s: float | None = None  # training lost by the change that was over last
        self.number = 0
        self.why_closed = ""

    # --- what others may know -----------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """A plan may change: the PS of the present one serve, and the run does not stop."""
        return self._sharding.was_published and not self.why_closed

    @property
    def is_under_way(self) -> bool:
        return self._watch is not None

    @property
    def is_settled(self) -> bool:
        """No change is under way, and what the plan wants runs where it wants it."""
        return self._watch is None and not self.why_closed and self._is_reached()

    def wants_short_turns(self, now_s: float) -> bool:
        """A change is under way: its moments are to be seen as they are."""
        return self._watch is not None and now_s - self._watch.dip.began_s < SHORT_TURNS_S

    def take_moved_s(self) -> float | None:
        """Seconds of training that the last change lost; None: none was over since the last call."""
        moved_s, self._moved_s = self._moved_s, None
        return moved_s

    # --- a change -----------------------------------------------------------------------------------------------------

    def apply(self, plan: Plan, now_s: float, origin: PlanOrigin = "") -> None:
        """Makes a plan the run's, from wherever it comes, and watches what that does. It has workers and PS, and is
        pinned. A change that was under way is watched no more."""
        before = self._run.plan
        self.plans.apply(plan, origin)
        known = {spec.index for spec in before.workers}
        newcomers = {spec.index: self._last_incarnation(spec.index) for spec in plan.workers if spec.index not in known}
        dip = Dip(now_s, self._dense.samples_applied(), self._pace.before())
        self._watch = PlanChangeWatch(Counts.of(before), Counts.of(plan), newcomers, dip, self._run.plan_cause)
        self.number += 1

    def close(self, why: str) -> None:
        """The plan that was asked for will not be reached any more, and no other takes its place."""
        self._watch, self.why_closed = None, why

    # --- every turn ---------------------------------------------------------------------------------------------------

    def sample(self, now_s: float) -> None:
        """Looks at the throughput, and at buckets that have changed hands."""
        if self._watch is not None or now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            self._pace.add(now_s, self._dense.samples_applied())
        moves = self._sharding.take_moves()
        if self._watch is not None:
            self._watch.hand_overs += moves

    def observe(self, now_s: float) -> PlanReached | None:
        """The change that is done now, noted in the journal; None while it is not."""
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
        if self._run.job.train.mode == "sync":  # a crew commits together: it has begun something that is committed
            begun = self._watermarks.begun(worker, incarnation)
            return begun > 0 and step_of(begun) < self._dense.version()
        return self._dense.applied(worker, incarnation).sequence > 0

    def _is_reached(self) -> bool:
        """What runs is what the plan wants, where it wants it."""
        plan, fleet = self._run.plan, self._run.fleet
        for spec in plan.processes:
            record = fleet.named(spec.role, spec.index)
            if record is None or not record.can_work or record.asked is not None:
                return False
            if (record.spec.cores, record.spec.threads) != (spec.cores, spec.threads):
                return False
        wanted = {(spec.role, spec.index) for spec in plan.processes}
        live = {(record.process.role, record.process.index) for record in fleet if record.is_live}
        return live <= wanted and self._sharding.holdings.is_handed_over
