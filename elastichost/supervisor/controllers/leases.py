"""Grants leases, takes progress, and settles workers that died (`ledger.ledger`).

How a dead worker is settled: every PS is sent Fence, and refuses messages of this incarnation from then on. The dense
owner answers with its last committed batch. The ledger counts what is committed and returns the rest. Where workers
push rows to PS, every PS is then sent Settle: it applies the staged rows of committed batches and drops the others. The
next incarnation of this worker gets no lease before the fence is answered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError, JobFailedError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.runs.events import BatchTorn, LeaseGranted, LeasesSettled, SamplesQuarantined
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.context import RunContext, exit_cause
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import Settlement
from elastichost.wire.control import (
    FencedMsg,
    FenceMsg,
    LeaseGrantMsg,
    LeaseProgressMsg,
    SettledMsg,
    SettleMsg,
    UnsettledMsg,
)
from elastichost.wire.facts import Lease

__all__ = ["HostWatermarks", "LeaseController", "miscount"]


class HostWatermarks:
    """The in-place watermarks of all hosts of a run. Hosts may join and be lost meanwhile. They are mapped at once:
    a user or the system may remove the arena's files, and the supervisor still counts by them while it saves the run.
    Raises ArenaError when those of host 0 cannot be mapped."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._known = {run.arena: Watermarks(run.arena)}
        self.all()

    def begun(self, worker: int, incarnation: int) -> int:
        """The batch for which this incarnation changed rows in place last; 0: none, or its host's file is gone. The
        incarnation ran on one host only, so the other hosts have no entry for it."""
        return max(marks.begun(worker, incarnation) for marks in self.all())

    def all(self) -> tuple[Watermarks, ...]:
        """Those of all hosts, also of lost ones, after those of hosts that are new are mapped."""
        run = self._run
        for directory in (path for host, path in run.other_arenas.items() if run.uses(host)):
            if directory not in self._known:
                with contextlib.suppress(ArenaError):  # torn batches and lookups are counted by it, and nothing else
                    self._known[directory] = Watermarks(directory)
        return tuple(self._known.values())


class LeaseController:
    """Leases in all modes but sync mode. may_grant: the work gate. begun: returns the batch for which (worker,
    incarnation) changed rows in place last; 0: none."""

    def __init__(
        self, run: RunContext, ledger: Ledger, may_grant: Callable[[], bool], begun: Callable[[int, int], int]
    ) -> None:
        self._run = run
        self.ledger = ledger
        self._may_grant, self._begun = may_grant, begun
        self._waiting: dict[
            ProcessId, tuple[float, int]
        ] = {}  # worker -> (samples/s, leases ahead), in order of requests
        self._fences: dict[tuple[int, int], ProcessId] = {}  # (worker, incarnation): fences without an answer
        self._ended: dict[tuple[int, int], int] = {}  # (worker, incarnation) -> sequence of its last committed batch
        self._settling: dict[tuple[int, int], set[int]] = {}  # (worker, incarnation) -> PS that may have rows staged
        self.trained_before = ledger.trained
        self.training_s = 0.0
        self._measured_s: float | None = None

    def recall(self, committed: Mapping[tuple[int, int], int], staged: Mapping[tuple[int, int], Iterable[int]]) -> None:
        """Continues after a supervisor that died. committed: (worker, incarnation) -> its last committed batch. staged:
        (worker, incarnation) -> PS that may have staged rows of it."""
        self._ended.update(committed)
        for incarnation, servers in staged.items():
            self._ended.setdefault(incarnation, 0)
            self._settling[incarnation] = set(servers)

    # --- leases ---------------------------------------------------------------------------------------------

    def requested(self, record: ProcessRecord, samples_per_s: float, leases_ahead: int = 1) -> None:
        """A worker requests a lease; it is answered now or when one can be granted."""
        self._waiting[record.process] = samples_per_s, leases_ahead
        self.serve()

    def serve(self) -> None:
        """Grants leases to waiting workers, as far as positions are pending."""
        if not self._may_grant():
            return
        for worker, (samples_per_s, leases_ahead) in list(self._waiting.items()):
            if not self.ledger.has_pending:
                break  # at the end of an epoch most workers wait, and each message leads here
            record = self._run.fleet.find(worker)
            if record is None or not record.can_work:
                del self._waiting[worker]
                continue
            if self._is_open(worker):
                continue
            lease = self.ledger.request(worker, samples_per_s, leases_ahead)
            if lease is None:
                continue
            del self._waiting[worker]
            self._note_lease(lease, worker)
            self._run.fleet.apply(record, LifecycleEvent.WORK, self._run.now_s())
            self._run.send(worker, LeaseGrantMsg(lease, self.ledger.shuffle_seed(lease)))
        self._note_barred()

    def _is_open(self, worker: ProcessId) -> bool:
        """Whether an earlier incarnation of this worker is not settled yet. A batch of the new one would overwrite the
        dense owner's record from which the earlier one is settled."""
        return any(index == worker.index for index, _ in self._fences)

    def _note_lease(self, lease: Lease, worker: ProcessId) -> None:
        self._run.note(
            LeaseGranted(
                worker, lease=lease.lease_id, epoch=lease.epoch, unit=lease.unit, start=lease.start, stop=lease.stop
            ),
            cause="",
        )

    def progressed(self, process: ProcessId, message: LeaseProgressMsg) -> None:
        """Counts reported progress. The report of an incarnation that has ended has no effect, unless it still holds
        the lease. Raises ProtocolError when the numbers do not fit the lease."""
        if self.ledger.progress(process, message.lease_id, message.stop, message.samples, message.skipped):
            self.serve()

    def drained(self, process: ProcessId) -> None:
        """A worker has drained: it has reported all its progress, and the rest of its leases returns."""
        self._waiting.pop(process, None)
        self._settled(process, self.ledger.give_back(process))

    def measure(self, now_s: float, *, stands_still: bool = False) -> None:
        """Counts the time since the last call as training time if leases are outstanding. stands_still: no worker could
        train in this time, so it is not counted."""
        if self._measured_s is not None and self.ledger.has_outstanding and not stands_still:
            self.training_s += now_s - self._measured_s
        self._measured_s = now_s

    @property
    def samples_per_s(self) -> float:
        trained = self.ledger.trained - self.trained_before
        return trained / self.training_s if self.training_s > 0 else 0.0

    def has_work(self, process: ProcessId) -> bool:
        """Whether this worker has samples to train."""
        return self.ledger.lease_count(process) > 0

    def worker_ready(self, record: ProcessRecord) -> None:
        """A worker is ready. Nothing is sent: it requests a lease itself."""

    def committed_step(self) -> int:
        """Sync mode: the last committed step, after the ledger has counted it. 0 in other modes."""
        return 0

    # --- lost workers ---------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        """Number of lost workers that are not settled, and of workers that are about to end."""
        return len(self._fences) + len(self._settling) + self._run.fleet.ending("worker")

    def lost(self, process: ProcessId) -> None:
        """A worker incarnation ended at work: every PS is sent Fence, and the dense owner's answer settles it."""
        self._waiting.pop(process, None)
        self._fence(process)

    def _fence(self, process: ProcessId) -> None:
        """Every PS is to refuse messages of this incarnation. It counts as not settled until the dense owner answers,
        because that one may be committing its last batch."""
        self._fences[process.index, process.incarnation] = process
        self._run.send_all(
            (record.process for record in self._run.fleet.working("server")),
            FenceMsg(process.index, process.incarnation),
        )

    def server_ready(self, server: ProcessId) -> None:
        """Sends a new PS incarnation the fences and settlements that its predecessor may not have answered."""
        for index, incarnation in self._fences:
            self._run.send(server, FenceMsg(index, incarnation))
        for (index, incarnation), servers in self._settling.items():
            if server.index in servers:
                self._run.send(server, SettleMsg(index, incarnation, self._ended[index, incarnation]))

    def fenced(self, message: FencedMsg) -> None:
        """The dense owner's answer to Fence. Raises JobFailedError when it contradicts the worker's reports."""
        process = self._fences.pop((message.worker, message.incarnation), None)
        if process is None:
            return  # an earlier incarnation of the dense owner has answered already
        self._ended[process.index, process.incarnation] = message.applied.sequence
        if self._run.plan.access != "direct":
            self._settle_rows(process)
        self._count_torn(process, self._begun(process.index, process.incarnation) - message.applied.sequence)
        try:
            settlement = self.ledger.give_back(process, message.applied, failed=True)
        except ProtocolError as error:
            raise miscount(error) from error
        self._settled(process, settlement)

    def _count_torn(self, process: ProcessId, batches: int) -> None:
        """Counts torn batches: rows may hold a part of them, but they were never committed."""
        if batches <= 0:
            return
        self._run.torn_batches += batches
        self._run.note(BatchTorn(process, batches), exit_cause(process))

    def _settle_rows(self, process: ProcessId) -> None:
        """Asks every PS to apply staged rows of this incarnation that are committed, and to drop the others."""
        incarnation = (process.index, process.incarnation)
        servers = [record.process for record in self._run.fleet.live("server")]
        self._settling[incarnation] = {server.index for server in servers}
        self._run.send_all(servers, SettleMsg(*incarnation, self._ended[incarnation]))

    def rows_settled(self, server: ProcessId, message: SettledMsg) -> None:
        """A PS has no staged rows of this incarnation any more."""
        incarnation = (message.worker, message.incarnation)
        waiting = self._settling.get(incarnation, set())
        waiting.discard(server.index)
        if not waiting:
            self._settling.pop(incarnation, None)

    def rows_unsettled(self, server: ProcessId, message: UnsettledMsg) -> None:
        """A PS has staged rows of an incarnation that is no member. It is sent the last committed batch; if the end of
        the incarnation is not settled yet, the answer follows with that of all PS."""
        committed = self._ended.get((message.worker, message.incarnation))
        if committed is not None:
            self._run.send(server, SettleMsg(message.worker, message.incarnation, committed))

    def server_gone(self, server: ProcessId) -> None:
        """A PS has no staged rows any more: it has stopped as asked, and settled all of them before it gave its buckets
        up; or it owned no bucket, because its start failed or its host is lost."""
        for message in [SettledMsg(worker, incarnation) for worker, incarnation in self._settling]:
            self.rows_settled(server, message)

    def host_lost(self, host: int) -> None:
        """A machine is lost, with what its PS had staged. One of them may have ended before it, while it owned buckets:
        no further event tells of its end."""
        for record in self._run.fleet:
            if record.process.role == "server" and record.spec.host == host:
                self.server_gone(record.process)

    def _settled(self, process: ProcessId, settlement: Settlement) -> None:
        self._run.note(
            LeasesSettled(process, settlement.trained, settlement.skipped, settlement.returned), exit_cause(process)
        )
        for entry in settlement.quarantined:
            self._note_quarantine(process, entry)
        self.serve()

    def _note_barred(self) -> None:
        """Journals ranges that a roll-back leaves out, when the ledger reaches them."""
        for entry in self.ledger.newly_barred():
            self._run.note(SamplesQuarantined(entry, "roll_back"))

    def _note_quarantine(self, process: ProcessId, entry: Quarantined) -> None:
        self._run.note(SamplesQuarantined(entry, "deaths", process.name), exit_cause(process))


def miscount(error: ProtocolError) -> JobFailedError:
    """The error of a run whose PS' record contradicts the reports of a worker. The record is what decides, so the run
    ends rather than continue with a wrong count."""
    return JobFailedError(
        error.message,
        hint="this is a bug in elastichost; please report it with the run directory, whose journal has every lease",
    )
