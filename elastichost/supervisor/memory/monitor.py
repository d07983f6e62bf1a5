"""Enforces `resources.memory`: grants PS what is left of it, forecasts when it is exceeded, and has actions taken.

Grants are in force in every job with dynamic tables. With `tuner.memory = "act"` the decisions of the package
`tuner.memory` are performed, with "watch" they are only reported, with "off" none is made. With "watch" and "off" a job
that needs more memory than its budget ends with MemoryBudgetError. With "act" new ids get no row while memory is full;
but in sync mode the job ends then too, because rows must not depend on when ids arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.errors import MemoryBudgetError
from elastichost.history.features import Estimates
from elastichost.resources import bounds_of
from elastichost.runs.events import Inaction, MemoryBudgetSet, MemoryForecastFailed, MemoryWarned
from elastichost.sharding import MAX_SERVERS
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.memory.actions import MemoryActor, acted
from elastichost.supervisor.memory.exhaustion import Shortage, budget_error
from elastichost.supervisor.memory.gauge import MemoryGauge, ages_of, row_costs
from elastichost.supervisor.memory.grants import NO_LIMIT, Granter, HostFacts
from elastichost.supervisor.memory.process_memory import PrivateMemory
from elastichost.tuner.memory.facts import Action, HostMemorySample, MemoryDecision, MemorySample
from elastichost.tuner.memory.forecast import begin, decide, predict
from elastichost.tuner.memory.growth import GrowthState, is_foreknown
from elastichost.tuner.memory.prior import learnt
from elastichost.tuner.records import MemoryLooked, MemoryOpened

__all__ = ["MemoryWatch"]

GRANT_EVERY_S, MOST_BETWEEN_GRANTS_S = 0.05, 2.0  # least and longest time between two grants
GRANT_TIME_SHARE = 0.03  # share of the supervisor's time for grants; it matters with thousands of tables
TIMED_GRANTS = 5  # the shortest of the last grants gives their duration, because the others may have been interrupted
LOOK_EVERY_S = 1.0
EVICTION_S = 2.0  # until a PS has read a new horizon and gone through its rows
BATCHES_OF_GRACE = 16  # batches of every worker until the place of an evicted row is used again
NOTICED_S = 0.3  # further time until the PS checks this
MOVED_BYTES_PER_S = 100e6  # assumed for a migration between hosts
SHARE_FOR_WORKERS = 0.5  # share of the free memory that new workers may take


class MemoryWatch:
    """Grants memory, and acts before the budget is exceeded. gauges, budgets_bytes: of every host, in order. memory:
    estimates from similar jobs."""

    def __init__(
        self,
        run: RunContext,
        gauges: Sequence[MemoryGauge],
        sharding: ShardMapController,
        budgets_bytes: Sequence[int],
        memory: Estimates = Estimates(),  # noqa: B008, frozen
    ) -> None:
        job = run.job
        arenas = tuple(gauge.arena for gauge in gauges)
        self._run, self._sharding, self._known = run, sharding, memory
        self._mode = job.tuner.memory
        model = arenas[0].model
        self._costs = row_costs(model)
        self.is_active = any(table.is_dynamic for table in model.tables) and not job.emulate.enabled
        lent = [
            size if not self.is_active or gauge.use.is_in_memory else NO_LIMIT
            for gauge, size in zip(gauges, budgets_bytes, strict=True)
        ]
        self._lost: list[MemoryGauge] = []
        self._granters = [Granter(gauge, self._costs, size) for gauge, size in zip(gauges, lent, strict=True)]
        for gauge in gauges:
            self._begin(gauge)
        self._tables = model.tables
        self._is_sync = job.train.mode == "sync"
        self._own_age = {t.index for t in model.tables if t.is_dynamic and t.evict_after_samples > 0}
        self._dense = DenseStore(arenas[0]) if self.is_active else None
        self._boards = [arena.board for arena in arenas]  # both of these keep this same list object
        self._actor = MemoryActor(run, sharding, self._boards, model.tables)
        may_leave_out = self._mode == "act" and not self._is_sync
        self._shortage = Shortage(run, self._boards, self._error, may_leave_out=may_leave_out)
        self._state = begin(memory)
        self._untouched, self._was_touched = GrowthState(), False
        self.most_workers: int | None = None  # more workers would need the memory of rows; None: not known
        self._workers_left: int | None = None  # number of workers after the last "shrink"
        self._wants_ages = self._was_recorded = self._was_told = False
        self._foreknown: tuple[float, float] | None = None  # bytes at the end by similar jobs: median, upper bound
        self._ages_from = self._dense.samples_applied() if self._dense and arenas[0].board.notes_seen else 0
        self._grant_at_s = self._look_at_s = 0.0
        self._grants_took_s: deque[float] = deque(maxlen=TIMED_GRANTS)
        self._private = PrivateMemory(run)
        self._made_offset, self._made = 0.0, 0.0
        self._own: dict[int, tuple[int, npt.NDArray[np.bool_]]] = {}  # host -> epoch of the map, its buckets
        if self.is_active:
            self._grant({})

    def close(self) -> None:
        """Unmaps the arenas of other hosts. The run unmaps that of host 0."""
        for gauge in (*self._lost, *(granter.gauge for granter in self._granters[1:])):
            gauge.arena.close()

    @property
    def arenas(self) -> tuple[Arena, ...]:
        """The arenas of all hosts, that of host 0 first."""
        return tuple(granter.gauge.arena for granter in self._granters)

    def gauge_of(self, host: int) -> MemoryGauge | None:
        """The gauge of a host; None: the run does not use the host."""
        return next((granter.gauge for granter in self._granters if granter.gauge.host == host), None)

    def gain(self, gauge: MemoryGauge, budget_bytes: int) -> None:
        """Adds a host with this budget."""
        self._begin(gauge)
        self._granters.append(Granter(gauge, self._costs, budget_bytes if self.is_active else NO_LIMIT))
        self._boards.append(gauge.arena.board)
        self._actor.begin(gauge.arena.board)

    def _begin(self, gauge: MemoryGauge) -> None:
        """Resets the grants of a host, and sends them at once: without limits there are no later grants."""
        gauge.arena.board.begin_anew(is_limited=self.is_active)
        gauge.use.tell()

    def lose(self, host: int) -> None:
        """Removes a host other than host 0."""
        lost = self.gauge_of(host)
        if lost is not None:
            self._lost.append(lost)  # its arena stays mapped, because other parts may have views of it
            self._granters = [granter for granter in self._granters if granter.gauge is not lost]
            self._boards.remove(lost.arena.board)

    def lend(self, budget_bytes: int) -> None:
        """Sets the budget of every host. If more memory is used, actions free it as after a forecast."""
        for granter in self._granters:
            granter.lend(budget_bytes)

    # --- every turn -------------------------------------------------------------------------------------------

    def look(self, ledger: Ledger, changes: PlanChangeController, private: Mapping[int, int], now_s: float) -> None:
        """Grants memory, and once a second has a decision made. Call it every turn. private: pid -> private bytes, of
        each measured process of this machine. Raises MemoryBudgetError."""
        if not self.is_active or now_s < self._grant_at_s:
            return
        facts = self._grant(private)
        self._grants_took_s.append(self._run.now_s() - now_s)
        wait_s = max(GRANT_EVERY_S, min(self._grants_took_s) / GRANT_TIME_SHARE)
        self._grant_at_s = now_s + min(wait_s, MOST_BETWEEN_GRANTS_S)
        is_busy = self._mode == "act" and (self._actor.is_busy or not self._sharding.holdings.is_handed_over)
        self._shortage.look(facts, now_s, is_measured=not self._private.unmeasured, is_busy=is_busy)
        if now_s < self._look_at_s or not self._sharding.was_published:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        self._sharding.know_room({fact.host: fact.left_bytes for fact in facts})
        if self._mode == "off":
            self._tell_budget(facts)
            return
        look = self._look(facts, ledger, changes, private)
        self.most_workers = self._room_for_workers(facts, look)
        try:
            self._state, decision = decide(self._state, look, now_s)
        except Exception as error:  # noqa: BLE001 - a bug of the tuner must not end a run that trains: grants go on
            self._mode = "off"
            self._run.note(MemoryForecastFailed(type(error).__name__, str(error)))
            return
        if not self._was_recorded:
            self._run.recorder.write(MemoryOpened(self._known))
            self._foreknown = self._forecast(look)
        self._was_recorded = True
        self._run.recorder.write(MemoryLooked(now_s, look, decision))
        self._keep_law(ledger, look)
        self._tell_budget(facts)
        self._wants_ages = decision.wants_ages
        self._follow(decision, look, changes, now_s)

    def learnt(self, *, is_whole: bool) -> Estimates:
        """Estimates from this run for similar jobs. is_whole: all samples were trained."""
        points = self._state.growth.points
        return learnt(self._untouched, points[-1][1] if points and is_whole and not self._was_touched else 0.0)

    def _keep_law(self, ledger: Ledger, look: MemorySample) -> None:
        """Keeps the fitted growth as long as the data alone determine it: evicted rows are made again, ids that wait
        for a row are not counted, and later epochs bring no new ids."""
        sightings = max([1, *(table.admit_after for table in self._tables if table.is_dynamic)])
        if look.horizon or look.admit_after > sightings or look.left_out:
            self._was_touched = True
        is_first = ledger.samples_accounted <= sightings * ledger.samples_planned // self._run.job.train.epochs
        if not self._was_touched and (is_first or self._own_age):
            self._untouched = self._state.growth

    def _tell_budget(self, facts: Sequence[HostFacts]) -> None:
        """Journals the budget and its use, once, when all processes are measured."""
        if self._was_told or self._private.unmeasured:
            return
        self._was_told = True
        for fact in facts:
            self._run.note(
                MemoryBudgetSet(
                    host=fact.host,
                    budget_bytes=fact.budget_bytes,
                    rows_bytes=fact.reading.used_bytes,
                    private_bytes=fact.private_bytes,
                    copies_bytes=fact.copies_bytes,
                    left_bytes=fact.left_bytes,
                    names_host=len(facts) > 1,
                    files_free_bytes=fact.files_free_bytes if fact.is_files else None,
                    forecast_bytes=self._foreknown,
                )
            )

    def _forecast(self, look: MemorySample) -> tuple[float, float] | None:
        """The bytes at the end of the run: (median, 95 % quantile) by similar jobs alone, because it is called at the
        first look. None: there are no estimates."""
        if not is_foreknown(self._state.growth):
            return None
        return predict(self._state, look, look.samples + look.samples_left)

    def _grant(self, private: Mapping[int, int]) -> list[HostFacts]:
        hosts, facts = self._sharding.hosts, list[HostFacts]()
        wanted = {spec.index for spec in self._run.plan.servers}
        wanted |= {record.process.index for record in self._run.fleet.live("server")}
        self._private.begin()
        for granter in self._granters:
            here = {index for index, host in hosts.items() if host == granter.gauge.host}
            granter.take_back(here - wanted)
            own_bytes = self._private.of_host(granter.gauge.host, private)
            facts.append(granter.turn(sorted(here & wanted), own_bytes, self._own_buckets(granter.gauge, hosts)))
            granter.gauge.use.tell()
        return facts

    def _own_buckets(self, gauge: MemoryGauge, hosts: Mapping[int, int]) -> npt.NDArray[np.bool_] | None:
        """With several hosts, the buckets whose rows count on this one. None: all buckets; there is only one host."""
        if len(self._granters) == 1:
            return None
        shard_map = self._sharding.shard_map
        known = self._own.get(gauge.host)
        if known is None or known[0] != shard_map.epoch:
            owners = {(t, b): owner for t, row in enumerate(shard_map.owners) for b, owner in enumerate(row)}
            known = self._own[gauge.host] = shard_map.epoch, gauge.own_buckets(owners, hosts)
        return known[1]

    # --- once a second ----------------------------------------------------------------------------------------

    def _look(
        self, facts: Sequence[HostFacts], ledger: Ledger, changes: PlanChangeController, private: Mapping[int, int]
    ) -> MemorySample:
        assert self._dense is not None
        costs, is_dynamic = self._costs.all, self._granters[0].is_dynamic
        live = sum(fact.reading.live for fact in facts) * costs * is_dynamic
        made = float(sum(((f.reading.live + f.reading.evicted) * costs)[is_dynamic].sum() for f in facts))
        # Rows that move to another host do not take the count of evicted rows along, so the sum may fall.
        self._made_offset += max(0.0, self._made - made)
        self._made = made
        samples = self._dense.samples_applied()
        rows = max(1.0, float(sum(fact.reading.live[is_dynamic].sum() for fact in facts)))
        own = sorted(self._own_age)
        workers = self._run.fleet.working("worker")
        rate = sum(record.samples_per_s for record in workers)
        batch = self._run.job.train.batch_size * max(1, len(workers))
        grace_s = NOTICED_S + (BATCHES_OF_GRACE * batch / rate if rate > 0 else 0.0)
        counted, counted_own = self._ages(samples)
        return MemorySample(
            samples=samples,
            samples_left=max(0, ledger.samples_planned - ledger.samples_accounted),
            samples_per_s=rate,
            made_bytes=made + self._made_offset,
            row_bytes=float(live.sum()) / rows if live.sum() > 0 else float(costs[is_dynamic].mean()),
            live_bytes=float(live.sum()),
            own_bytes=float(live[own].sum()),
            hosts=self._hosts(facts),
            possible=self._possible(changes),
            action_s=self._action_s(facts, grace_s),
            grace_s=grace_s,
            new_ids_until=self._new_ids_until(ledger, samples),
            ages=counted,
            own_ages=counted_own,
            ages_from=self._ages_from,
            horizon=self._actor.horizon,
            shortens_own=self._actor.shortens_own,
            least_horizon=max(8192, 2 * BATCHES_OF_GRACE * batch),
            admit_after=max([self._actor.admit_after, *(t.admit_after for t in self._tables if t.is_dynamic)]),
            left_out=self._shortage.left_out,
            workers=len(workers),
            worker_bytes=self._private.mean_of(workers, private),
            least_workers=self._bounds("workers")[0],
        )

    def _hosts(self, facts: Sequence[HostFacts]) -> tuple[HostMemorySample, ...]:
        live = np.array([(fact.reading.live * self._costs.all).sum() for fact in facts])
        shares = live / live.sum() if live.sum() > 0 else np.full(len(facts), 1.0 / len(facts))
        served = set(self._sharding.hosts.values())
        may_take = self._sharding.may_take
        may_start = self._may_resize("servers") and len(self._run.plan.servers) < self._bounds("servers")[1]
        return tuple(
            granter.look(fact, float(share), may_take=(fact.host in served or may_start) and may_take(fact.host))
            for granter, fact, share in zip(self._granters, facts, shares, strict=True)
        )

    def _room_for_workers(self, facts: Sequence[HostFacts], look: MemorySample) -> int | None:
        """The largest number of workers: new ones may take half of what is left on host 0, and workers that were taken
        away to save memory do not come back."""
        if self._private.unmeasured or not look.workers:
            return self.most_workers
        more = int(SHARE_FOR_WORKERS * max(0, facts[0].left_bytes) // max(1, look.worker_bytes))
        most = look.workers + more
        return most if self._workers_left is None else min(most, self._workers_left)

    def _possible(self, changes: PlanChangeController) -> tuple[Action, ...]:
        if self._mode != "act" or not changes.is_open:
            return ()
        drops: tuple[Action, ...] = () if self._is_sync else ("evict", "admit")
        if not changes.is_settled:
            return drops
        moves: tuple[Action, ...] = ("move",) if len(self._granters) > 1 and self._sharding.is_published else ()
        may_shrink = self._may_resize("workers") and not changes.plans.is_asked
        shrinks: tuple[Action, ...] = ("shrink",) if may_shrink else ()
        return (*moves, *drops, *shrinks)

    def _may_resize(self, what: str) -> bool:
        """Whether the tuner may change the number of "workers" or "servers", because the job file leaves it open."""
        low, high = self._bounds(what)
        return self._run.job.tuner.mode == "act" and low < high

    def _bounds(self, what: str) -> tuple[int, int]:
        setting = getattr(self._run.job.resources, what)
        return (1, MAX_SERVERS) if isinstance(setting, str) else bounds_of(setting, 1)

    def _action_s(self, facts: Sequence[HostFacts], grace_s: float) -> float:
        """Seconds of the slowest action: an eviction, or with several hosts the move of half of a host's memory."""
        moved = 0.5 * max(fact.reading.used_bytes for fact in facts) / MOVED_BYTES_PER_S if len(facts) > 1 else 0.0
        return max(EVICTION_S + grace_s, moved)

    def _new_ids_until(self, ledger: Ledger, samples: int) -> int:
        """Number of samples after which no new ids come, because ids of later epochs have rows already; 0: not known,
        because rows are evicted."""
        if self._own_age or self._actor.horizon:
            return 0
        sightings = max([self._actor.admit_after, *(t.admit_after for t in self._tables if t.is_dynamic)])
        per_epoch = ledger.samples_planned // self._run.job.train.epochs
        return samples + max(0, per_epoch * sightings - ledger.samples_accounted)

    def _ages(self, samples: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Cumulative bytes of rows by age, for tables without an own age, and for tables with one. Empty while no ages
        are wanted, and in sync mode. The first call switches the stamps of used rows on."""
        if not self._wants_ages or self._is_sync:
            return (), ()
        if not self._granters[0].board.notes_seen:
            for granter in self._granters:
                granter.board.note_seen()
            self._ages_from = samples
        dynamic = {table.index for table in self._tables if table.is_dynamic}
        costs = self._costs.all[:, None]
        found = ages_of([granter.gauge for granter in self._granters], dynamic, samples) * costs
        return _sums(found, dynamic - self._own_age), _sums(found, self._own_age)

    def used_elsewhere_bytes(self) -> int:
        """Bytes of the arenas of all hosts but host 0."""
        return sum(granter.gauge.use.used_bytes for granter in self._granters[1:])

    def _error(self, fact: HostFacts) -> MemoryBudgetError:
        is_one_of_several = len(self._granters) > 1
        return budget_error(fact, self._tables, self._costs, acts=self._mode == "act", names_host=is_one_of_several)

    @property
    def _inaction(self) -> Inaction:
        """Why no action follows a warning."""
        if self._mode == "watch":
            return "watch"
        return "sync" if self._is_sync else "none_helps"

    def _follow(
        self, decision: MemoryDecision, look: MemorySample, changes: PlanChangeController, now_s: float
    ) -> None:
        self._actor.measure(self._state, look, now_s)
        if decision.kind == "warn":
            if decision.is_news:
                self._run.note(
                    MemoryWarned(
                        host=decision.host,
                        reason=decision.reason,
                        chance=decision.chance,
                        window_s=decision.window_s,
                        exceeds_in_s=decision.exceeds_in_s,
                        inaction=self._inaction,
                    )
                )
        elif decision.kind != "stay" and changes.is_open:
            with self._run.caused_by(self._run.new_cause("memory")):
                self._run.note(acted(decision))
                if decision.kind == "shrink":
                    self._workers_left = decision.workers
                self._actor.perform(decision, look, self._state, changes, now_s)


def _sums(ages: npt.NDArray[np.float64], tables: set[int]) -> tuple[float, ...]:
    return tuple(ages[sorted(tables)].sum(axis=0).tolist())
