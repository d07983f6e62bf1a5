"""Leases out, progress in, and the settling of workers that died: the ledger's side of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from elastichost.arena.watermarks import Watermarks
from elastichost.errors import JobFailedError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.runs.events import BatchTorn, LeaseGranted, LeasesSettled, SamplesQuarantined
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.context import Run, exit_cause
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
    """How far workers have changed rows in place, on all hosts of a run. A machine may join, or be lost."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._known: dict[Path, Watermarks] = {}

    def begun(self, worker: int, incarnation: int) -> int:
        """The batch for which that incarnation changed rows last, 0 for none. It was on one host, and no other
        incarnation of the run bears its number."""
        run = self._run
        others = (path for host, path in run.other_arenas.items() if run.uses(host))
        for directory in (run.arena, *others):
            if directory not in self._known:
                self._known[directory] = Watermarks(directory)
        return max(marks.begun(worker, incarnation) for marks in self._known.values())


class LeaseController:
    """`may_grant` is False while an answer would cross a Pause, the journal has no space, or the run is stopping.
    begun: the batch for which an incarnation (worker, incarnation) changed rows in place last, 0 for none."""

    def __init__(
        self, run: Run, ledger: Ledger, may_grant: Callable[[], bool], begun: Callable[[int, int], int]
    ) -> None:
        self._run = run
        self.ledger = ledger
        self._may_grant, self._begun = may_grant, begun
        self._waiting: dict[ProcessId, float] = {}  # worker -> samples per second; in the order they asked
        self._fences: dict[tuple[int, int], ProcessId] = {}
        self._ended: dict[tuple[int, int], int] = {}  # (worker, incarnation) -> sequence of its last committed batch
        self._settling: dict[tuple[int, int], set[int]] = {}  # -> PS that may still have rows of it staged
        self.trained_before = ledger.trained
        self.training_s = 0.0
        self._measured_s: float | None = None

    def recall(self, committed: Mapping[tuple[int, int], int], staged: Mapping[tuple[int, int], Iterable[int]]) -> None:
        """After a supervisor that died: the last committed batch of every (worker, incarnation) of its run, and PS
        where rows of such an incarnation may wait for word of it."""
        self._ended.update(committed)
        for incarnation, servers in staged.items():
            self._ended.setdefault(incarnation, 0)
            self._settling[incarnation] = set(servers)

    # --- leases ---------------------------------------------------------------------------------------------

    def requested(self, record: ProcessRecord, samples_per_s: float) -> None:
        self._waiting[record.process] = samples_per_s
        self.serve()

    def serve(self) -> None:
        """Answers waiting workers as far as there is something to give."""
        if not self._may_grant():
            return
        for worker, samples_per_s in list(self._waiting.items()):
            record = self._run.fleet.find(worker)
            if record is None or not record.can_work:
                del self._waiting[worker]
                continue
            if self._is_open(worker):
                continue
            lease = self.ledger.request(worker, samples_per_s)
            if lease is None:
                continue
            del self._waiting[worker]
            self._note_lease(lease, worker)
            self._run.fleet.apply(record, LifecycleEvent.WORK, self._run.now_s())
            self._run.send(worker, LeaseGrantMsg(lease, self.ledger.shuffle_seed(lease)))
        self._note_barred()

    def _is_open(self, worker: ProcessId) -> bool:
        """The incarnation before is not settled. A batch of this one would overwrite the dense owner's record of that
        one, from which it is settled."""
        return any(index == worker.index for index, _ in self._fences)

    def _note_lease(self, lease: Lease, worker: ProcessId) -> None:
        self._run.note(
            LeaseGranted(
                worker, lease=lease.lease_id, epoch=lease.epoch, unit=lease.unit, start=lease.start, stop=lease.stop
            ),
            cause="",
        )

    def progressed(self, process: ProcessId, message: LeaseProgressMsg) -> None:
        """Also of an incarnation that has ended meanwhile: the ledger ignores what it does not hold any more. Raises
        ProtocolError when the numbers cannot be."""
        if self.ledger.progress(process, message.lease_id, message.stop, message.samples, message.skipped):
            self.serve()

    def drained(self, process: ProcessId) -> None:
        """It reported all it did, and holds nothing any more."""
        self._waiting.pop(process, None)
        self._settled(process, self.ledger.give_back(process))

    def measure(self, now_s: float, *, stands_still: bool = False) -> None:
        """Counts the time in which leases were out as training time, but for that in which nobody could train."""
        if self._measured_s is not None and self.ledger.has_outstanding and not stands_still:
            self.training_s += now_s - self._measured_s
        self._measured_s = now_s

    @property
    def samples_per_s(self) -> float:
        trained = self.ledger.trained - self.trained_before
        return trained / self.training_s if self.training_s > 0 else 0.0

    def has_work(self, process: ProcessId) -> bool:
        """Somebody waits for what it computes."""
        return bool(self.ledger.leases_of(process))

    def worker_ready(self, record: ProcessRecord) -> None:
        """It can take work; it will ask for it."""

    def committed_step(self) -> int:
        """Sync mode: the last committed step, which the ledger has counted. 0 in the other modes."""
        return 0

    # --- lost workers ---------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        """Workers lost and not settled yet, and those about to be: what they did last is known only afterwards."""
        return len(self._fences) + len(self._settling) + self._run.fleet.ending("worker")

    def lost(self, process: ProcessId) -> None:
        """An incarnation ended in its work: every PS refuses what may still arrive of it, the dense owner says what
        counts."""
        self._waiting.pop(process, None)
        self._fences[process.index, process.incarnation] = process
        self._run.send_all(
            (record.process for record in self._run.fleet.working("server")),
            FenceMsg(process.index, process.incarnation),
        )

    def server_ready(self, server: ProcessId) -> None:
        """A new PS incarnation knows nothing of fences that are still open, nor of incarnations that are to be
        settled."""
        for index, incarnation in self._fences:
            self._run.send(server, FenceMsg(index, incarnation))
        for (index, incarnation), servers in self._settling.items():
            if server.index in servers:
                self._run.send(server, SettleMsg(index, incarnation, self._ended[index, incarnation]))

    def fenced(self, message: FencedMsg) -> None:
        process = self._fences.pop((message.worker, message.incarnation), None)
        if process is None:
            return  # answered by the incarnation before as well
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
        """Batches of a dead incarnation of which rows may hold a part, but that were never committed."""
        if batches <= 0:
            return
        self._run.torn_batches += batches
        self._run.note(BatchTorn(process, batches), exit_cause(process))

    def _settle_rows(self, process: ProcessId) -> None:
        """Every PS applies what the incarnation has committed and drops what it has not."""
        incarnation = (process.index, process.incarnation)
        servers = [record.process for record in self._run.fleet.live("server")]
        self._settling[incarnation] = {server.index for server in servers}
        self._run.send_all(servers, SettleMsg(*incarnation, self._ended[incarnation]))

    def rows_settled(self, server: ProcessId, message: SettledMsg) -> None:
        """A PS has nothing of this incarnation any more."""
        incarnation = (message.worker, message.incarnation)
        waiting = self._settling.get(incarnation, set())
        waiting.discard(server.index)
        if not waiting:
            self._settling.pop(incarnation, None)

    def rows_unsettled(self, server: ProcessId, message: UnsettledMsg) -> None:
        """A PS found rows of an incarnation it does not know. One whose end is not settled yet is settled with
        everybody."""
        committed = self._ended.get((message.worker, message.incarnation))
        if committed is not None:
            self._run.send(server, SettleMsg(message.worker, message.incarnation, committed))

    def server_gone(self, server: ProcessId) -> None:
        """It was asked to go: it had settled all before it gave its buckets up."""
        for message in [SettledMsg(worker, incarnation) for worker, incarnation in self._settling]:
            self.rows_settled(server, message)

    def _settled(self, process: ProcessId, settlement: Settlement) -> None:
        self._run.note(
            LeasesSettled(process, settlement.trained, settlement.skipped, settlement.returned), exit_cause(process)
        )
        for entry in settlement.quarantined:
            self._note_quarantine(process, entry)
        self.serve()

    def _note_barred(self) -> None:
        """What a roll back has barred is given up when its turn comes."""
        for entry in self.ledger.newly_barred():
            self._run.note(SamplesQuarantined(entry, "roll_back"))

    def _note_quarantine(self, process: ProcessId, entry: Quarantined) -> None:
        self._run.note(SamplesQuarantined(entry, "deaths", process.name), exit_cause(process))


def miscount(error: ProtocolError) -> JobFailedError:
    """A PS' record of what it applied decides: where that cannot be, better an end than a wrong count."""
    return JobFailedError(error.message, hint="this is a fault of elastichost; the journal holds every lease")
