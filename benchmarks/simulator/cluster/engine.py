"""The cluster in virtual time: a queue of events, jobs with constant rates between events, and a policy that decides.

Pure except for the policy: the same jobs, settings, seed and policy give the same result, bit for bit. Random events
(arrivals, failures, noise) do not depend on the policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.blocks.job_table import JobTable
from benchmarks.simulator.cluster.crowding import Crowding
from benchmarks.simulator.cluster.grant_executor import BEGIN, CANCEL, KEEP, GrantExecutor
from benchmarks.simulator.cluster.hosts import Cluster
from benchmarks.simulator.cluster.job_run import JobRun, RateRecorder
from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.outcome import JobOutcome, SimulationResult, outcome_of
from benchmarks.simulator.cluster.progress.columns import JobColumns
from benchmarks.simulator.cluster.progress.event_queue import EventQueue
from benchmarks.simulator.cluster.random_streams import Incident, generator
from benchmarks.simulator.cluster.settings import ClusterSettings
from benchmarks.simulator.cluster.views import ClusterView, EndedJob, Grant, InformedPolicy, JobFaults, Policy, Trigger

__all__ = ["ClusterSimulation", "simulate_jobs"]

# kinds of events; the payload is a job, a host, or unused
ARRIVAL, TICK, BLOCK, END, RESUME, INCIDENT, CALM, HOST_DOWN, HOST_UP = range(9)
LONG_S = 1.0  # a measurement continues through shorter pauses


def simulate_jobs(
    jobs: Sequence[SimulatedJob],
    policy: Policy,
    settings: ClusterSettings | None = None,
    seed: int = 0,
    recorder: RateRecorder | None = None,
) -> SimulationResult:
    """Simulates until every job has ended. seed: for failures of hosts; jobs have their own seeds. recorder: is called
    for every interval of every job with constant rate."""
    return ClusterSimulation(jobs, policy, settings or ClusterSettings(), seed, recorder).run()


class ClusterSimulation:
    """One simulation; `run` may be called only once."""

    def __init__(
        self,
        jobs: Sequence[SimulatedJob],
        policy: Policy,
        settings: ClusterSettings,
        seed: int,
        recorder: RateRecorder | None = None,
    ) -> None:
        self._specs = {spec.job: spec for spec in jobs}
        self._policy, self._settings, self._seed, self._recorder = policy, settings, seed, recorder
        self._cluster = Cluster(settings.hosts)
        most = settings.limits.most
        self._columns = JobColumns(most.workers + most.servers)
        self._queue = EventQueue(self._columns, END)
        crowding = Crowding(self._cluster, self._columns, settings, self._queue, self._push_resume)
        self._crowding = crowding
        self._granting = GrantExecutor(self._cluster, crowding, settings, self._reschedule)
        self._runs: dict[int, JobRun] = {}  # jobs that have not ended, in order of arrival
        self._table = JobTable(settings.block_s, self._columns)
        self._changed: dict[int, JobRun] = {}  # jobs whose views must be made anew
        self._ailing: set[int] = set()  # jobs that may have faults
        self._over: list[JobOutcome] = []
        self._ended: list[EndedJob] = []  # since the last decision
        self._events = self._decisions = 0
        self._now_s = 0.0
        self._is_ticking = False
        self._incidents: dict[int, Incident] = {}  # job -> its next incident
        self._hosts = [generator(seed, "host", index) for index in range(len(settings.hosts))]
        self._last_arrival_s = max((spec.arrived_s for spec in jobs), default=0.0)
        self._first_arrival_s = min((spec.arrived_s for spec in jobs), default=0.0)
        self._allocated_core_s = 0.0
        self._trigger: Trigger | None = None
        self._informed = policy if isinstance(policy, InformedPolicy) else None

    def run(self) -> SimulationResult:
        for spec in self._specs.values():
            self._queue.push(spec.arrived_s, ARRIVAL, spec.job)
        for host in range(len(self._hosts)):
            self._push_host_failure(host)
        handlers: tuple[Callable[[int, int], None], ...] = (
            self._arrive,
            self._tick,
            self._end_block,
            self._end,
            self._resume,
            self._strike,
            self._calm,
            self._fail_host,
            self._repair_host,
        )
        queue = self._queue
        most_s, left = self._last_arrival_s + self._settings.drain_s, len(self._specs)
        event = queue.peek()
        while event is not None and len(self._over) < left:
            at_s, _, kind, payload, version = event
            if at_s > most_s:
                break
            queue.take(event)
            if at_s > self._now_s:
                self._advance(at_s)
            self._events += 1
            handlers[kind](payload, version)
            event = queue.peek()
            # one decision covers all events of the same time
            if self._trigger is not None and (event is None or event[0] > at_s):
                self._decide(self._trigger)
                event = queue.peek()
        return self._result()

    # --- clockwork ----------------------------------------------------------------------------------------------------

    def _advance(self, at_s: float) -> None:
        until_s = min(at_s, self._last_arrival_s)
        if until_s > self._now_s:
            self._allocated_core_s += self._granting.allocated_cores * (until_s - self._now_s)
        self._now_s = at_s

    def _reschedule(self, run: JobRun, now_s: float, block: int = KEEP) -> None:
        """Schedules the next events of a job after a change of it; events that were scheduled before become void."""
        job = run.spec.job
        if block != KEEP:
            run.block_version += 1
            run.is_block_void = block == CANCEL
            if block == BEGIN:
                run.begin_block(now_s)
            else:
                run.void_block()
            self._table.begin(job, run.blocks.count, run.block_ends_s)
            if self._settings.varies and block == BEGIN:
                self._queue.push(run.block_ends_s, BLOCK, job, run.block_version)
        run.refresh(now_s)
        if run.is_dirty:
            self._changed[job] = run
        run.event_version += 1
        self._queue.set_end(run.index, now_s + run.ends_after())
        over_s = run.resumes_s(now_s)
        if over_s < math.inf:
            self._queue.push(over_s, RESUME, job, run.event_version)

    def _push_resume(self, run: JobRun, order: int) -> None:
        """Schedules the end of a change or a pause again, with an order that was counted before."""
        self._queue.push_at(run.resumes_s(self._now_s), order, RESUME, run.spec.job, run.event_version)

    def _decide(self, trigger: Trigger) -> None:
        self._trigger = None
        now_s = self._now_s
        self._table.renew(now_s)
        for run in self._changed.values():
            self._table.put(run.as_seen(now_s))
        self._changed.clear()
        view = ClusterView(
            now_s=now_s,
            trigger=trigger,
            jobs=self._table.views(),
            ended=tuple(self._ended),
            hosts=self._cluster.views(),
            limits=self._settings.limits,
            known=self._cluster.totals(),
        )
        self._ended.clear()
        self._decisions += 1
        if self._informed is not None:
            self._informed.hear(self._faults())
        grants: Mapping[int, Grant | None] = self._policy.decide(view, now_s)
        self._granting.carry_out(grants, self._runs, now_s)

    def _faults(self) -> dict[int, JobFaults]:
        """The faults of all jobs that have any."""
        found = {}
        for job in sorted(self._ailing):
            run = self._runs.get(job)
            faults = run.ailment() if run is not None else None
            if faults is None:
                self._ailing.discard(job)
            else:
                found[job] = faults
        return found

    # --- events -------------------------------------------------------------------------------------------------------

    def _arrive(self, job: int, _: int) -> None:
        run = JobRun(self._specs[job], self._settings, self._recorder)
        if not self._columns.has_room:
            self._columns.grow()
            for one in self._runs.values():
                one.row = self._columns.rows[one.index]
        run.join(self._columns)
        self._runs[job] = run
        self._table.add(run.index, run.as_seen(self._now_s), run.blocks)
        self._next_incident(run)
        self._trigger = "arrival"
        if not self._is_ticking:
            self._push_tick()

    def _push_tick(self) -> None:
        tick_s = self._settings.tick_s
        self._queue.push((math.floor(self._now_s / tick_s) + 1) * tick_s, TICK, 0)
        self._is_ticking = True

    def _tick(self, _: int, __: int) -> None:
        self._is_ticking = bool(self._runs)
        if self._is_ticking:
            self._trigger = self._trigger or "tick"
            self._push_tick()

    def _end_block(self, job: int, version: int) -> None:
        """The true speed varies from block to block."""
        run = self._runs.get(job)
        if run is None or run.block_version != version:
            return
        run.settle(self._now_s)
        run.vary_speed()
        self._queue.push(run.block_ends_s, BLOCK, job, version)
        self._reschedule(run, self._now_s)

    def _end(self, job: int, _: int) -> None:
        """The job has trained all samples, or has used up its memory."""
        run = self._runs[job]
        run.settle(self._now_s)
        if run.ends_for_memory():
            self._kill_for_memory(run)
            return
        run.trained = float(run.spec.samples)  # removes the rounding error of the last interval
        run.episodes.trained(run.trained, run.trained, self._now_s, 1.0)
        self._finish(run, "completed")

    def _kill_for_memory(self, run: JobRun) -> None:
        run.ooms, run.killed_bytes = run.ooms + 1, run.granted_bytes
        if run.ooms > self._settings.most_oom_kills:
            self._finish(run, "died")
            return
        run.roll_back()
        self._pause(run, run.reload_s(), 0.0)
        self._trigger = "loss"

    def _finish(self, run: JobRun, outcome: str) -> None:
        run.outcome = "completed" if outcome == "completed" else "died"
        run.ended_s, run.final = self._now_s, run.configuration
        run.is_dirty = True
        self._ended.append(EndedJob(run.as_seen(self._now_s), run.outcome, self._now_s, run.first))
        self._granting.release(run, self._runs, self._now_s)
        run.episodes.close(self._now_s)
        job = run.spec.job
        del self._runs[job]
        self._table.remove(job)
        self._changed.pop(job, None)
        self._incidents.pop(job, None)
        self._over.append(outcome_of(run, self._now_s))
        run.leave(self._columns)
        self._events += run.blocks.count
        self._trigger = "end"

    def _pause(self, run: JobRun, seconds: float, share: float) -> None:
        """The job trains at a share of its rate for some seconds. A second pause does not end the first one earlier."""
        now_s = self._now_s
        if now_s < run.paused_until_s:
            share = min(share, run.pause_share)
            seconds = max(seconds, run.paused_until_s - now_s)
        run.pause_share, run.paused_until_s, run.is_dirty = share, now_s + seconds, True
        self._reschedule(run, now_s, CANCEL if seconds >= LONG_S else KEEP)

    def _resume(self, job: int, version: int) -> None:
        """A change or a pause has ended."""
        run = self._runs.get(job)
        if run is None or run.event_version != version:
            return
        run.settle(self._now_s)
        run.is_dirty = True
        self._reschedule(run, self._now_s, BEGIN if self._granting.conclude(run, self._now_s) else KEEP)

    def _next_incident(self, run: JobRun) -> None:
        incident = run.incidents.next()
        if incident is not None:
            self._incidents[run.spec.job] = incident
            self._queue.push(run.spec.arrived_s + incident.after_s, INCIDENT, run.spec.job)

    def _strike(self, job: int, _: int) -> None:
        run = self._runs.get(job)
        if run is None:
            return
        incident = self._incidents.pop(job)
        self._next_incident(run)
        configuration = run.configuration
        if configuration is None:
            return
        run.settle(self._now_s)
        self._ailing.add(job)
        if incident.kind == "failure":
            self._fail_process(run, incident.slot)
        elif incident.kind == "hot" and not run.hot:
            run.heat(incident.size, self._now_s)
            if self._now_s >= run.changing_until_s:
                run.look_up()
            self._reschedule(run, self._now_s)
        elif incident.kind == "straggler" and incident.slot < configuration.workers:
            until_s = run.spec.arrived_s + incident.after_s + incident.size
            run.straggle(incident.slot, until_s, self._now_s)
            self._queue.push(until_s, CALM, job)
            self._reschedule(run, self._now_s)

    def _calm(self, job: int, _: int) -> None:
        run = self._runs.get(job)
        if run is None:
            return
        over = [slot for slot, until_s in run.stragglers.items() if until_s <= self._now_s]
        if over:
            run.settle(self._now_s)
            for slot in over:
                run.recover(slot, self._now_s, "passed")
            self._reschedule(run, self._now_s)

    def _fail_process(self, run: JobRun, slot: int) -> None:
        """A process fails. Slots below the largest number of workers are workers, the others are PS; slots that the job
        does not use are ignored."""
        configuration, most = run.configuration, self._settings.limits.most
        assert configuration is not None
        is_worker = slot < most.workers
        if (slot if is_worker else slot - most.workers) >= (
            configuration.workers if is_worker else configuration.servers
        ):
            return
        if self._settings.style.stops:
            run.roll_back()
            self._pause(run, run.reload_s(), 0.0)
        elif is_worker and run.workload.mode != "sync":
            self._pause(run, calibration.WORKER_BACK_S, 1.0 - 1.0 / configuration.workers)
        else:
            self._pause(run, calibration.WORKER_BACK_S if is_worker else calibration.SERVER_BACK_S, 0.0)

    # --- hosts --------------------------------------------------------------------------------------------------------

    def _push_host_failure(self, host: int) -> None:
        rate = self._settings.rates.host_failures / 3600.0
        if rate > 0:
            self._queue.push(self._now_s + self._hosts[host].exponential(1.0 / rate), HOST_DOWN, host)

    def _fail_host(self, host: int, _: int) -> None:
        self._queue.push(self._now_s + self._hosts[host].exponential(calibration.HOST_REPAIR_S), HOST_UP, host)
        lost = [self._runs[job] for job in self._cluster.fail(host)]
        for run in lost:
            self._crowding.place(run)
        for run in lost:
            run.settle(self._now_s)
            _, servers = run.placement.pop(host)
            if servers or self._settings.style.stops:
                run.roll_back()
            if self._granting.settle_elsewhere(run, self._runs, self._now_s):
                stops = servers > 0 or self._settings.style.stops
                self._pause(run, run.reload_s() if stops else calibration.JOIN_S, 0.0)
            self._trigger = "loss"

    def _repair_host(self, host: int, _: int) -> None:
        self._cluster.repair(host)
        self._push_host_failure(host)
        self._trigger = self._trigger or "tick"

    def _result(self) -> SimulationResult:
        for run in self._runs.values():
            run.settle(self._now_s)
            run.episodes.close(self._now_s)
            run.final = run.configuration
            self._events += run.blocks.count
        rest = (outcome_of(run, self._now_s) for run in self._runs.values())
        done = sorted([*self._over, *rest], key=lambda one: one.job)
        cores = sum(host.cores for host in self._settings.hosts)
        busy_s = self._last_arrival_s - self._first_arrival_s
        return SimulationResult(
            policy=self._policy.name,
            jobs=tuple(done),
            events=self._events,
            decisions=self._decisions,
            refused=self._granting.refused,
            ended_s=self._now_s,
            busy_share=self._allocated_core_s / (cores * busy_s) if busy_s > 0 else 0.0,
        )
