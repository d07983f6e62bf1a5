"""The tuner in a live run: samples it twice a second, lets `tuner.policy` decide, and applies its plans."""

from __future__ import annotations

import threading

from elastichost.arena.dense.store import DenseStore
from elastichost.history.features import Estimates, JobFeatures, JobRecord
from elastichost.plan import Plan
from elastichost.runs.events import TunerDecided, TunerFailed, TunerOff, TunerOnlyWatches
from elastichost.runs.events.text import text_of
from elastichost.runs.journal import utc_now
from elastichost.supervisor.autoscale.counters import Counter
from elastichost.supervisor.autoscale.history_writer import is_worth_recording, record_of, remember, remember_so_far
from elastichost.supervisor.autoscale.input_tuner import InputTuner
from elastichost.supervisor.autoscale.plan_trial import Change, begun, failed_newcomer, without, without_room
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext, exit_cause
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.core.backoff import Retries, failed, may_try, succeeded, waits_s
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.tuner_settings import Links, configuration_of, tuner_settings
from elastichost.tuner.cluster.proposals import next_proposal
from elastichost.tuner.facts import Configuration
from elastichost.tuner.memory.prior import widened
from elastichost.tuner.policy.frontier import warm_up_nsga2
from elastichost.tuner.policy.job_frontier import age_of, job_frontier
from elastichost.tuner.policy.policy import Decision, TunerSettings, TunerState, advance
from elastichost.tuner.policy.profile import ProfileSample
from elastichost.tuner.policy.search_space import may_use_nsga2
from elastichost.tuner.records import TunerLooked, TunerOpened
from elastichost.wire.commands import ScaleMsg

__all__ = ["AutoTuner", "open_tuner"]

EVERY_S = 0.5
FAILED_FOR_S = 600.0  # how long more workers are not tried after a new worker has failed
STOOD_STILL_S = 2.0  # after a longer pause (Ctrl-Z, a machine that swaps) a sample does not count as steady training


class AutoTuner:
    """The tuner of one run. Its models need libraries whose import takes 0.3 s, NSGA-II a little more. A thread imports
    them, and `look` does nothing until it has ended."""

    def __init__(
        self,
        run: RunContext,
        components: Components,
        changes: PlanChangeController,
        settings: TunerSettings,
        features: JobFeatures,
        of_input: InputTuner | None = None,
    ) -> None:
        self._run, self._components, self._changes = run, components, changes
        self._input = of_input  # None: nothing tunes the input
        self.settings, self.state = settings, TunerState()
        self._features = features
        self._dense = DenseStore(components.arena)
        micro_batches = run.job.train.micro_batches if run.job.train.mode == "sync" else 0
        is_served, is_tuned = run.plan.access != "direct", of_input is not None and of_input.tunes_connections
        self._counter = Counter(run.fleet, micro_batches, is_served, run.cpu_elsewhere_s, counts_source=not is_tuned)
        self._plan = run.plan  # the newest one with workers
        self._next_s = self._looked_s = 0.0
        self._has_failed = False
        self._change: Change | None = None  # a change by this tuner that is under way
        self._failed_beyond: tuple[int, float] | None = None  # number of workers when more of them failed, and time
        self._retries = Retries()  # of numbers of PS that failed
        self._only_watches = run.job.tuner.mode == "watch"
        self._proposes = run.job.tuner.mode == "propose"
        self._measured: Configuration | None = None  # of the last complete block
        run.proposal, run.is_measured = None, True
        self._importing = threading.Thread(target=_import_solvers, args=(settings,), name="tuner", daemon=True)
        self._importing.start()
        run.recorder.write(TunerOpened(settings))

    def look(self, now_s: float) -> None:
        """Samples the run and performs a decision, twice a second. Call it every turn."""
        if now_s < self._next_s or self._has_failed or self._importing.is_alive():
            return
        has_stood_still = now_s - self._looked_s > STOOD_STILL_S
        self._next_s, self._looked_s = now_s + EVERY_S, now_s
        if self._changes.plans.is_asked and not self._only_watches:
            self._only_watches = True
            self._run.note(TunerOnlyWatches())
        ledger = self._components.leases.ledger
        look = ProfileSample(
            at_s=now_s,
            configuration=self._configuration(),
            is_steady=not has_stood_still and self._is_steady(),
            samples=self._dense.samples_applied(),
            totals=self._counter.totals(),
            hot_share=self._components.rebalancer.hot_share,
            moving_s=self._changes.take_moved_s(),
            most_workers=self._most_workers(now_s),
        )
        samples_left = ledger.samples_planned - ledger.samples_accounted
        try:
            age, before = age_of(self.state), self.state
            self.state, decision = advance(before, look, samples_left, self.settings)
            if self.state.observations is not before.observations:
                self._measured = before.profile.configuration
            if self._run.shares_host and age_of(self.state) != age:
                self._run.frontier = job_frontier(self.state, self.settings)
        except Exception as error:  # noqa: BLE001 - a bug of the tuner must not end a run that trains
            self._run.recorder.write(TunerLooked(look, samples_left))
            self._give_up(error)
            return
        self._run.recorder.write(TunerLooked(look, samples_left, decision))
        if is_worth_recording(decision):
            self._remember_so_far()
        if decision is None:
            self._propose(None)
        else:
            self._follow(decision, now_s)

    def _propose(self, decision: Decision | None) -> None:
        """Tells the dispatcher, in the next status, what the tuner proposes, and whether the plan was measured."""
        run, is_open, running = self._run, self._proposes and not self._only_watches, self._configuration()
        run.proposal = next_proposal(run.proposal, decision, running) if is_open else None
        run.is_measured = not is_open or (running is not None and running == self._measured)

    def granted(self, before: Plan, after: Plan, now_s: float) -> None:
        """The dispatcher has granted what the tuner proposed, and the plan has just changed. The tuner takes the change
        back if it fails, as one of its own."""
        self._change = begun(before, after, self._run.fleet, now_s)

    def take_back(self, now_s: float) -> None:
        """Takes a change of the tuner back if it has failed. Call it every turn, before the reconciler starts processes
        that have ended again."""
        change = self._change
        if change is None:
            return
        if self._run.plan is not change.after or self._changes.is_settled:
            if self._run.plan is change.after:
                self._retries = succeeded(self._retries, _servers(len(change.after.servers)))
            self._change = None  # it is done, or another part of the supervisor has changed the plan
            return
        gone = failed_newcomer(change, self._run.fleet)
        if gone is not None:
            if gone.process.role == "worker":
                self._failed_beyond = len(change.before.workers), now_s
            else:
                self._retries, _ = failed(self._retries, _servers(len(change.after.servers)), now_s)
            self._change = None
            with self._run.caused_by(exit_cause(gone.process)):
                self._changes.apply(without(change, gone), now_s)
        elif change.more_servers and self._components.sharding.full_s > change.began_s:
            many = _servers(len(change.after.servers))
            self._retries, _ = failed(self._retries, many, now_s)
            self._change = None
            self._changes.apply(without_room(change, waits_s(self._retries, many, now_s)), now_s)

    def _may_try(self, wanted: Configuration, present: Configuration | None, now_s: float) -> bool:
        """Whether no number of PS up to the wanted one waits after a failure. Fewer PS than now may always be tried."""
        if present is None:
            return True
        more = range(present.servers + 1, wanted.servers + 1)
        return all(may_try(self._retries, _servers(servers), now_s) for servers in more)

    def _most_workers(self, now_s: float) -> int | None:
        """The largest number of workers for which there is memory and input and that could be started; None: no known
        limit."""
        limits = [self._components.memory.most_workers]
        if self._input is not None:
            limits.append(self._input.most_workers(len(self._run.fleet.working("worker"))))
        if self._failed_beyond is not None:
            had, at_s = self._failed_beyond
            limits.append(had if now_s - at_s < FAILED_FOR_S else None)
        return min((limit for limit in limits if limit is not None), default=None)

    def remember(self, *, ended_well: bool = False, has_failed: bool = False) -> None:
        """Adds the record of this run, which ends, to the history."""
        remember(self._run, self.record(ended_well=ended_well, has_failed=has_failed))

    def _remember_so_far(self) -> None:
        """Adds the speeds that this run has measured to the history. The growth of memory is known at its end."""
        try:
            record = self._record_of(self.state, Estimates(), ended_well=True)
        except Exception as error:  # noqa: BLE001 - as in `look`
            self._give_up(error)
            return
        remember_so_far(record)

    def _record_of(self, state: TunerState, memory: Estimates, *, ended_well: bool) -> JobRecord | None:
        final, run = configuration_of(self._plan), self._run.directory.identity.run_id
        return record_of(self._features, state, self.settings, final, utc_now(), memory, ended_well=ended_well, run=run)

    def record(self, *, ended_well: bool, has_failed: bool = False) -> JobRecord | None:
        """The record of this run for the history; None: nothing was measured. ended_well: all samples were trained or
        quarantined. has_failed: the run has failed; the record then contains no speeds, but the growth of memory."""
        ledger = self._components.leases.ledger
        state = TunerState() if has_failed or self._has_failed else self.state
        try:
            memory = self._components.memory.learnt(is_whole=ended_well)
            if not ended_well:
                memory = widened(memory, ledger.samples_accounted / max(1, ledger.samples_planned))
            return self._record_of(state, memory, ended_well=ended_well)
        except Exception as error:  # noqa: BLE001 - a bug of the tuner must not end a run that has trained
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self._has_failed = True
        self._run.proposal, self._run.is_measured = None, True
        self._run.note(TunerFailed(type(error).__name__, str(error)))

    def _configuration(self) -> Configuration | None:
        """The running configuration; None while the processes do not match the plan."""
        plan = self._run.plan
        if plan.workers:
            self._plan = plan
        return configuration_of(plan) if plan.workers and self._changes.is_settled else None

    def _is_steady(self) -> bool:
        components = self._components
        if components.checkpoints.is_open or components.evaluations.is_open:
            return False
        if self._input is not None and self._input.is_tuning:
            return False
        return all(components.leases.has_work(record.process) for record in self._run.fleet.working("worker"))

    def _follow(self, decision: Decision, now_s: float) -> None:
        if not self._may_try(decision.configuration, self._configuration(), now_s):
            self._run.proposal = None
            return  # the failure is in the journal already
        self._propose(decision)
        with self._run.caused_by(self._run.new_cause("tuner")):
            self._carry_out(decision, now_s)

    def _carry_out(self, decision: Decision, now_s: float) -> None:
        is_proposal = self._run.proposal is not None and decision.configuration == self._run.proposal.wanted
        decided = TunerDecided(decision, only_watches=self._only_watches, is_proposal=is_proposal)
        self._run.note(decided)
        if self._only_watches:
            return
        wanted = decision.configuration
        present = self._configuration()
        if self._proposes or present is None or wanted == present:
            self._run.last_decision = text_of(decided)
            return
        command = ScaleMsg(workers=wanted.workers, servers=wanted.servers, worker_cores=wanted.worker_cores)
        try:
            # the warning of more threads than cores is dropped, because the model takes this into account
            plan, _ = self._changes.plans.resized(command, f"the tuner has chosen {wanted}")
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
            return
        before = self._run.plan
        self._changes.apply(plan, now_s, "trial" if decision.kind == "try" else "")
        self._change = begun(before, plan, self._run.fleet, now_s)
        self._run.last_decision = text_of(decided)


def _import_solvers(settings: TunerSettings) -> None:
    import scipy.optimize
    import scipy.special  # noqa: F401

    if may_use_nsga2(settings.bounds, settings.search):
        warm_up_nsga2()


def _servers(count: int) -> str:
    return f"{count} PS"


def open_tuner(
    run: RunContext,
    prepared: Preparation,
    components: Components,
    changes: PlanChangeController,
    of_input: InputTuner | None = None,
) -> AutoTuner | None:
    """Makes the tuner for the hosts that the run has now. Returns None, with the reason in the journal, if the tuner is
    off or has nothing to choose."""
    cores = len(prepared.cores)
    all_cores = run.all_cores(cores)
    prior, links = prepared.initial_plan.first.prior, Links(run.bandwidth_bytes_per_s, run.capacity(cores))
    settings = tuner_settings(run.job, components.arena.model, run.plan, all_cores, prior, links)
    if isinstance(settings, str):
        run.note(TunerOff(settings))
        return None
    return AutoTuner(run, components, changes, settings, prepared.initial_plan.features, of_input)
