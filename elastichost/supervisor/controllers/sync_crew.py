"""Sync mode: grants ranges of steps to the crew, assigns micro-batches to its members, and counts committed steps.

No worker holds a lease; the crew as a whole does. So a worker that joins, leaves or dies only changes which member
computes which micro-batch of the steps that are not committed. The dense vector's own record shows what is trained.

A kill: the micro-batches of a dead member are computed again by others, with the same bits. A micro-batch on which
`failures_to_quarantine` workers died is left out of its step, and its positions are quarantined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ProtocolError
from elastichost.micro_batches import (
    CREW,
    CREW_INCARNATION,
    assign,
    key_of,
    micro_range,
    step_of,
    steps_of,
    with_usual,
)
from elastichost.plan import ProcessId
from elastichost.runs.events import MicroBatchesAssigned, PositionsLeftOut
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.leases import LeaseController, miscount
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.wire.applied import micros_left_out, read_applied_record
from elastichost.wire.control import CrewMsg, FencedMsg, StepsGrantMsg

__all__ = ["CrewLeaseController"]

CREW_ID = ProcessId("worker", CREW, CREW_INCARNATION)
REASSIGN_EVERY_S = 2.0
# Speeds are noisy, and a micro-batch that is reassigned is read twice: only a clear gain pays for this.
WORTH_IT = 0.85


class CrewLeaseController(LeaseController):
    """Leases of the crew. may_tell: False while a checkpoint holds the workers: a new member must not get the ranges
    under way. dense: has the number of committed steps. watermarks: show what a dead worker was computing."""

    def __init__(
        self,
        run: RunContext,
        ledger: Ledger,
        may_grant: Callable[[], bool],
        may_tell: Callable[[], bool],
        dense: DenseStore,
        watermarks: Watermarks,
    ) -> None:
        super().__init__(run, ledger, may_grant, watermarks.begun)
        self._may_tell = may_tell
        self._dense, self._watermarks = dense, watermarks
        self._next_step = dense.version()
        self._grants: dict[int, StepsGrantMsg] = {}
        self._crew = CrewMsg(epoch=0, workers=())
        self._members: dict[int, ProcessId] = {}
        self._late: set[ProcessId] = set()  # members that were not sent the ranges under way yet
        # (step, micro-batch) that the crew was told to leave out; the record of the step will confirm it
        self._giving_up: dict[tuple[int, int], Quarantined] = {}
        self._failures: dict[tuple[int, int], int] = {}  # (step, micro-batch) -> workers that died on it
        self._reassign_at_s = run.now_s() + REASSIGN_EVERY_S

    def recall(self, committed: Mapping[tuple[int, int], int], staged: Mapping[tuple[int, int], Iterable[int]]) -> None:
        """Continues the one incarnation of the crew. Staged micro-batches need no settling: their step is committed, or
        is computed again."""
        self.ledger.recall(CREW_ID, self._dense.applied(CREW, CREW_INCARNATION).samples)

    # --- the crew ---------------------------------------------------------------------------------------------

    def worker_ready(self, record: ProcessRecord) -> None:
        """A worker joins the crew."""
        self._members[record.process.index] = record.process
        self._late.add(record.process)
        self._publish(f"{record.process} joins")
        self._catch_up()

    def _catch_up(self) -> None:
        """Sends new members the ranges under way, unless a checkpoint holds the workers. This is done even when nothing
        new may be granted, because the other members wait for the new ones' micro-batches."""
        if not self._may_tell():
            return
        for process in self._late:
            if (record := self._run.fleet.find(process)) is not None:
                for grant in self._grants.values():
                    self._grant(record, grant)
        self._late.clear()

    def has_work(self, process: ProcessId) -> bool:
        """Whether the worker is a member and the crew has leases. A member that is too slow for any micro-batch
        counts."""
        return self._members.get(process.index) == process and self.ledger.has_outstanding

    def drained(self, process: ProcessId) -> None:
        self._leave(process, f"{process} leaves")

    def lost(self, process: ProcessId) -> None:
        """A member has died. Others compute its micro-batches, staged ones too; the bits are the same."""
        self._fence(process)
        begun = self._watermarks.begun(process.index, process.incarnation)
        if begun:
            self._suspect(process, (step_of(begun), begun - key_of(step_of(begun), 0)))
        self._leave(process, f"{process} is lost")

    def fenced(self, message: FencedMsg) -> None:
        """The dense owner's answer to Fence: what the dead member completed is committed now. Until then no checkpoint
        may be cut: a PS may already have applied a step that the dense vector's record does not show."""
        if self._fences.pop((message.worker, message.incarnation), None) is not None:
            self.serve()

    def _leave(self, process: ProcessId, reason: str) -> None:
        if self._members.get(process.index) == process:
            del self._members[process.index]
            self._late.discard(process)
            self._publish(reason)

    def _suspect(self, process: ProcessId, task: tuple[int, int]) -> None:
        """Counts a death on a micro-batch (step, number), and leaves it out after several: it is counted and listed,
        but not trained."""
        self._account()
        if task[0] < self._dense.version():
            return  # its step was committed, so the worker died of something else
        failures = self._failures[task] = self._failures.get(task, 0) + 1
        if failures >= self.ledger.settings.failures_to_quarantine and task not in self._crew.left_out:
            self._leave_out(process, task, failures)

    def _leave_out(self, process: ProcessId, task: tuple[int, int], failures: int) -> None:
        """Tells the crew to leave a micro-batch out. Its step may still be committed with it, before this arrives."""
        step, micro = task
        for grant in self._grants.values():
            lease, batch = grant.lease, self.ledger.settings.batch_size
            if not grant.first_step <= step < grant.first_step + steps_of(lease.start, lease.stop, batch):
                continue
            start, stop = micro_range(lease.start, lease.stop, batch, self._micros, step - grant.first_step, micro)
            self._giving_up[task] = Quarantined(lease.epoch, lease.unit, start, stop, failures)
            self._run.note(PositionsLeftOut(process, lease.unit, start, stop, failures))
            self._crew = CrewMsg(self._crew.epoch, self._crew.workers, (*self._crew.left_out, task))

    def _publish(self, reason: str) -> None:
        workers = assign({index: self._speed(process) for index, process in self._members.items()}, self._micros)
        self._crew = CrewMsg(self._crew.epoch + 1, workers, self._crew.left_out)
        shares = {index: workers.count(index) for index in sorted(self._members)}
        self._run.note(MicroBatchesAssigned(shares, reason))
        self._run.send_all(tuple(self._members.values()), self._crew)

    @property
    def _micros(self) -> int:
        return self._run.job.train.micro_batches

    def _speed(self, process: ProcessId) -> float:
        """Samples per second of compute time; 0: not measured."""
        record = self._run.fleet.find(process)
        samples = sum(sample.samples for _, sample in record.window) if record is not None else 0
        seconds = sum(sample.compute_s + sample.push_s for _, sample in record.window) if record is not None else 0.0
        return samples / seconds if seconds > 0 else 0.0

    def _balance(self, now_s: float) -> None:
        """Gives slow members fewer micro-batches."""
        if now_s < self._reassign_at_s:
            return
        self._reassign_at_s = now_s + REASSIGN_EVERY_S
        speeds = {index: self._speed(process) for index, process in self._members.items()}
        if len(speeds) < 2 or not all(speeds.get(index) for index in self._crew.workers):
            return
        speeds = with_usual(speeds)  # members without a share are not measured
        better = assign(speeds, self._micros)
        present_s, better_s = (
            max(workers.count(index) / speed for index, speed in speeds.items())
            for workers in (self._crew.workers, better)
        )
        if better_s < WORTH_IT * present_s:
            self._publish(f"the new shares shorten a step to {better_s / present_s:.0%} of its time")

    # --- ranges -----------------------------------------------------------------------------------------------

    def requested(self, record: ProcessRecord, samples_per_s: float, leases_ahead: int = 1) -> None:
        """Refuses the request: the crew's leases are sent without one."""
        raise ProtocolError(f"{record.process} requested a lease; in sync mode leases are sent without a request")

    def serve(self) -> None:
        """Counts committed steps, and grants the next ranges."""
        self._account()
        self._balance(self._run.now_s())
        self._note_barred()
        self._catch_up()
        if not self._members or not self._may_grant():
            return
        records = [self._run.fleet.find(process) for process in self._members.values()]
        rate = sum(record.samples_per_s for record in records if record is not None)
        while (lease := self.ledger.request(CREW_ID, rate)) is not None:
            grant = StepsGrantMsg(lease, self.ledger.shuffle_seed(lease), self._next_step)
            self._next_step += steps_of(lease.start, lease.stop, self.ledger.settings.batch_size)
            self._grants[lease.lease_id] = grant
            self._note_lease(lease, CREW_ID)
            for record in records:
                if record is not None:
                    self._grant(record, grant)

    def _grant(self, record: ProcessRecord, grant: StepsGrantMsg) -> None:
        if record.can_work:
            self._run.fleet.apply(record, LifecycleEvent.WORK, self._run.now_s())
        self._run.send(record.process, grant)

    def _account(self) -> None:
        try:
            self.ledger.account(CREW_ID, self._dense.applied(CREW, CREW_INCARNATION))
        except ProtocolError as error:
            raise miscount(error) from error
        held = {lease.lease_id for lease in self.ledger.leases_of(CREW_ID)}
        self._grants = {lease_id: grant for lease_id, grant in self._grants.items() if lease_id in held}
        self._confirm()

    def _confirm(self) -> None:
        """Quarantines the micro-batches that were left out of a committed step, according to its record. They were
        counted as skipped."""
        version = self._dense.version()
        for task in [task for task in self._giving_up if task[0] < version]:
            entry = self._giving_up.pop(task)
            if task[1] in micros_left_out(read_applied_record(self._run.directory.path, task[0])):
                self.ledger.leave_out(entry)
                self._note_quarantine(CREW_ID, entry)

    def committed_step(self) -> int:
        """The last committed step, after the ledger has counted it."""
        self._account()
        return self._dense.version() - 1
