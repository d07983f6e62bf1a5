"""The sample ledger: who may train which samples, and what became of every one. Pure.

An epoch's positions are, at any time, in exactly one of these places:

    untouched units -> a worker's claim (the rest of its unit) -> a lease -> trained, skipped or quarantined
                                  ^-- returned ranges <-- what a dead or drained worker left of its leases

A worker goes on with the unit it has (its reader decodes a unit once) in small consecutive leases. When no unit is
left untouched, an idle worker takes the tail half of the largest claim, and leases shrink, so that no straggler
keeps an epoch waiting. A batch that several incarnations died on is quarantined: counted, listed, not tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from elastichost.batches import batch_stop, batches_of
from elastichost.errors import CheckpointError, IllegalTransitionError, ProtocolError, SampleRange
from elastichost.plan import ProcessId
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.state import (
    LedgerSettings,
    LedgerState,
    Settlement,
    Span,
    epoch_order,
    unit_shuffle_seed,
    without_barred,
)
from elastichost.wire.facts import AppliedBatch, Lease

__all__ = ["Ledger", "LedgerSettings", "LedgerState", "Settlement", "Span"]

FIRST_LEASE_BATCHES = 4  # while a worker's rate is not known


@dataclass(slots=True)
class _HeldLease:
    lease: Lease
    worker: ProcessId
    failures: int
    applied_stop: int
    samples: int = 0
    skipped: int = 0

    @property
    def rest(self) -> Span:
        failures = self.failures if self.applied_stop == self.lease.start else 0
        return Span(self.lease.unit, self.applied_stop, self.lease.stop, failures)


class Ledger:
    """The accounts of a run. Raises ProtocolError for progress that cannot be, and IllegalTransitionError for an
    epoch begun too early."""

    def __init__(self, settings: LedgerSettings) -> None:
        self.settings = settings
        self.trained = 0
        self.skipped = 0
        self.quarantined: tuple[Quarantined, ...] = ()
        self._start_order(epoch=0, next_unit=0)
        self._returned: deque[Span] = deque()
        self._claims: dict[ProcessId, Span] = {}
        self._leases: dict[int, _HeldLease] = {}
        self._trained_by: dict[ProcessId, int] = {}
        self._next_lease_id = 1
        self._dropped = 0
        self._closed = False
        self._barred: tuple[SampleRange, ...] = ()
        self._newly_barred: tuple[Quarantined, ...] = ()

    # --- what is known --------------------------------------------------------------------------------------

    @property
    def is_epoch_done(self) -> bool:
        return not (self._leases or self._returned or self._claims or self._next_unit < len(self._order))

    @property
    def is_finished(self) -> bool:
        return self.is_epoch_done and (self._closed or self.epoch + 1 >= self.settings.epochs)

    @property
    def samples_planned(self) -> int:
        """Positions of all epochs, less those that an early stop dropped."""
        return self.settings.samples * self.settings.epochs - self._dropped

    @property
    def samples_quarantined(self) -> int:
        return sum(entry.stop - entry.start for entry in self.quarantined)

    @property
    def samples_accounted(self) -> int:
        return self.trained + self.skipped + self.samples_quarantined

    @property
    def next_lease_id(self) -> int:
        return self._next_lease_id

    @property
    def has_outstanding(self) -> bool:
        return bool(self._leases)

    def leases_of(self, worker: ProcessId) -> tuple[Lease, ...]:
        """In the order they were granted, which is the order the worker trains them in."""
        return tuple(held.lease for _, held in sorted(self._leases.items()) if held.worker == worker)

    def workers(self) -> frozenset[ProcessId]:
        """Incarnations that hold a lease or a claim."""
        return frozenset(self._claims) | frozenset(held.worker for held in self._leases.values())

    def shuffle_seed(self, lease: Lease) -> int:
        """Seed of the order of samples inside the lease's unit; -1: file order."""
        if self.settings.order != "shuffle":
            return -1
        return unit_shuffle_seed(self.settings, lease.epoch, lease.unit)

    # --- granting -------------------------------------------------------------------------------------------

    def request(self, worker: ProcessId, samples_per_s: float) -> Lease | None:
        """The next range for this worker, or None while it holds enough or nothing is left to give."""
        if len(self.leases_of(worker)) >= self.settings.leases_per_worker:
            return None
        span = self._take(worker, self._wanted_positions(worker, samples_per_s))
        if span is None:
            return None
        lease = Lease(self._next_lease_id, self.epoch, span.unit, span.start, span.stop)
        self._next_lease_id += 1
        self._leases[lease.lease_id] = _HeldLease(lease, worker, span.failures, lease.start)
        return lease

    def _wanted_positions(self, worker: ProcessId, samples_per_s: float) -> int:
        batch = self.settings.batch_size
        batches = int(samples_per_s * self.settings.lease_target_s) // batch if samples_per_s > 0 else 0
        batches = max(1, batches) if samples_per_s > 0 else FIRST_LEASE_BATCHES
        remaining = self._untouched_positions + sum(span.samples for span in (*self._returned, *self._claims.values()))
        sharers = len(self.workers() | {worker})
        return min(batches, max(1, remaining // (2 * sharers * batch))) * batch

    def _take(self, worker: ProcessId, positions: int) -> Span | None:
        if self._returned and not self.settings.in_order:
            return self._take_returned(worker, positions)
        if worker not in self._claims:
            claim = self._returned.popleft() if self._returned else self._untouched() or self._steal()
            if claim is None:
                return None
            self._claims[worker] = claim
        return self._lease_from_claim(worker, positions)

    def _take_returned(self, worker: ProcessId, positions: int) -> Span:
        span = self._returned.popleft()
        middle = batch_stop(span.start, span.stop, positions)
        if span.failures or middle == span.stop:
            return span
        if self._claims.setdefault(worker, span) is span:
            return self._lease_from_claim(worker, positions)
        self._returned.appendleft(Span(span.unit, middle, span.stop))
        return Span(span.unit, span.start, middle)

    def _lease_from_claim(self, worker: ProcessId, positions: int) -> Span:
        claim = self._claims.pop(worker)
        middle = batch_stop(claim.start, claim.stop, positions)
        if middle < claim.stop:
            self._claims[worker] = Span(claim.unit, middle, claim.stop)
        return Span(claim.unit, claim.start, middle)

    def _untouched(self) -> Span | None:
        while self._next_unit < len(self._order):
            unit = self._order[self._next_unit]
            self._next_unit += 1
            self._untouched_positions -= self.settings.units[unit]
            rests = self._without_barred(Span(unit, 0, self.settings.units[unit]))
            if rests:
                self._returned.extend(rests[1:])
                return rests[0]
        return None

    def _steal(self) -> Span | None:
        """The tail half of the largest claim; all of it when it is a batch or less. Its owner trains its leases."""
        if not self._claims:
            return None
        owner = max(sorted(self._claims), key=lambda worker: self._claims[worker].samples)
        claim = self._claims.pop(owner)
        batches = batches_of(claim.samples, self.settings.batch_size)
        middle = claim.start + (batches // 2) * self.settings.batch_size
        if middle > claim.start:
            self._claims[owner] = Span(claim.unit, claim.start, middle)
        return Span(claim.unit, middle, claim.stop)

    # --- accounting -----------------------------------------------------------------------------------------

    def progress(self, worker: ProcessId, lease_id: int, stop: int, samples: int, skipped: int) -> bool:
        """Positions of the lease up to `stop` are applied: `samples` trained and `skipped` so far in this lease.

        False (and nothing counted) for what comes late or twice: a lease this incarnation does not hold any more, or
        progress already known. Raises ProtocolError when the numbers cannot be.
        """
        held = self._leases.get(lease_id)
        if held is None or held.worker != worker or stop <= held.applied_stop:
            return False
        lease = held.lease
        if stop > lease.stop or samples + skipped != stop - lease.start:
            raise ProtocolError(
                f"{worker} reports {samples} samples and {skipped} skipped up to position {stop} of lease {lease_id}, "
                f"which is [{lease.start}, {lease.stop}) of unit {lease.unit}"
            )
        if samples < held.samples or skipped < held.skipped:
            raise ProtocolError(f"{worker}: progress of lease {lease_id} went back")
        self._count(worker, samples - held.samples, skipped - held.skipped)
        held.applied_stop, held.samples, held.skipped = stop, samples, skipped
        if stop == lease.stop:
            del self._leases[lease_id]
        return True

    def recall(self, worker: ProcessId, samples: int) -> None:
        """So many samples of this incarnation were trained, and counted, under an earlier supervisor."""
        self._trained_by[worker] = samples

    def _count(self, worker: ProcessId, samples: int, skipped: int) -> None:
        self.trained += samples
        self.skipped += skipped
        self._trained_by[worker] = self._trained_by.get(worker, 0) + samples

    def give_back(self, worker: ProcessId, applied: AppliedBatch | None = None, *, failed: bool = False) -> Settlement:
        """Settles an incarnation that has ended or was drained; what it has not trained goes to the front of the queue.

        applied: what the dense owner has applied of this incarnation when it was fenced. The worker trains its leases
        in the order they were granted and its last reports may be lost with it, so this record decides: leases
        granted before `applied.lease_id` are done, that one up to `applied.stop`.
        failed: the incarnation died in its work; its next batch is tried alone, and quarantined after several such
        deaths. Raises ProtocolError when the PS' record and the reports contradict each other.
        """
        held = [entry for _, entry in sorted(self._leases.items()) if entry.worker == worker]
        newly_trained, newly_skipped = self._settle(worker, held, applied)
        rests: list[Span] = []
        quarantined: list[Quarantined] = []
        for entry in held:
            del self._leases[entry.lease.lease_id]
            if entry.applied_stop < entry.lease.stop:
                is_first = failed and not rests and not quarantined
                rests += self._after_failure(entry.rest, quarantined) if is_first else [entry.rest]
        claim = self._claims.pop(worker, None)
        self._trained_by.pop(worker, None)
        if claim is not None:
            rests.append(claim)
        self._returned.extendleft(reversed(rests))
        self.quarantined += tuple(quarantined)
        return Settlement(newly_trained, newly_skipped, sum(rest.samples for rest in rests), tuple(quarantined))

    def account(self, worker: ProcessId, applied: AppliedBatch) -> bool:
        """Counts what the PS' record of a living holder says; its finished leases are closed. False: nothing new.
        Raises ProtocolError when the record cannot be."""
        before = self.samples_accounted
        held = [entry for _, entry in sorted(self._leases.items()) if entry.worker == worker]
        self._settle(worker, held, applied)
        for entry in held:
            if entry.applied_stop == entry.lease.stop:
                del self._leases[entry.lease.lease_id]
        return self.samples_accounted != before

    def leave_out(self, entry: Quarantined) -> None:
        """Sync mode: positions that were counted as skipped were left out because workers died on them."""
        self.quarantined += (entry,)
        self.skipped -= entry.stop - entry.start

    def _settle(self, worker: ProcessId, held: Iterable[_HeldLease], applied: AppliedBatch | None) -> tuple[int, int]:
        """Moves leases on to what was applied. Returns (samples, skipped) that no report had counted."""
        if applied is None or not applied.sequence:
            return 0, 0
        positions = 0
        for entry in held:
            if entry.lease.lease_id > applied.lease_id:
                break
            is_last = entry.lease.lease_id == applied.lease_id
            stop = max(entry.applied_stop, applied.stop) if is_last else entry.lease.stop
            if stop > entry.lease.stop:
                raise ProtocolError(f"the PS applied {worker} up to {stop} of a lease that ends at {entry.lease.stop}")
            positions += stop - entry.applied_stop
            entry.applied_stop = stop
        samples = applied.samples - self._trained_by.get(worker, 0)
        if not 0 <= samples <= positions:
            raise ProtocolError(
                f"the PS applied {applied.samples} samples of {worker}, which had reported "
                f"{applied.samples - samples}; its leases leave room for {positions} more"
            )
        self._count(worker, samples, positions - samples)
        return samples, positions - samples

    def _after_failure(self, rest: Span, quarantined: list[Quarantined]) -> list[Span]:
        """The first batch of what is left is the suspect: it goes back alone, or into quarantine."""
        middle = batch_stop(rest.start, rest.stop, self.settings.batch_size)
        failures = (rest.failures if rest.stop == middle else 0) + 1
        tail = [Span(rest.unit, middle, rest.stop)] if middle < rest.stop else []
        if failures >= self.settings.failures_to_quarantine:
            quarantined.append(Quarantined(self.epoch, rest.unit, rest.start, middle, failures))
            return tail
        return [Span(rest.unit, rest.start, middle, failures), *tail]

    # --- barred ranges ---------------------------------------------------------------------------------------

    def bar(self, ranges: Iterable[SampleRange]) -> None:
        """These positions are not trained: quarantined at once where they are pending, else when their turn comes; what
        is accounted for stays so. Raises IllegalTransitionError when something is granted already."""
        if self.workers():
            raise IllegalTransitionError("ledger", "leases are out", "bar positions")
        self._barred += tuple(ranges)
        self._returned = deque(rest for span in tuple(self._returned) for rest in self._without_barred(span))

    def newly_barred(self) -> tuple[Quarantined, ...]:
        """What was quarantined because it is barred, since the last call."""
        found, self._newly_barred = self._newly_barred, ()
        return found

    def _without_barred(self, span: Span) -> list[Span]:
        """What is left of a span of the epoch in progress, in order; the rest of it is quarantined."""
        rests, given_up = without_barred(self.epoch, span, self._barred)
        self.quarantined += given_up
        self._newly_barred += given_up
        return rests

    # --- epochs ---------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Raises IllegalTransitionError before the epoch is done, and after the last one."""
        if not self.is_epoch_done or self.is_finished:
            raise IllegalTransitionError("ledger", f"epoch {self.epoch}", "begin the next epoch")
        self._start_order(epoch=self.epoch + 1, next_unit=0)

    def _start_order(self, epoch: int, next_unit: int) -> None:
        self.epoch, self._next_unit = epoch, next_unit
        self._order = epoch_order(self.settings, epoch)
        self._untouched_positions = sum(self.settings.units[unit] for unit in self._order[next_unit:])

    def stop_early(self) -> int:
        """Grants nothing that is not leased already; the run is finished once those leases are. Returns the
        positions dropped, which are not planned any more: 0 when it was stopped before."""
        if self._closed:
            return 0
        spans = [*self._returned, *self._claims.values()]
        dropped = sum(span.samples for span in spans) + self._untouched_positions
        dropped += self.settings.samples * (self.settings.epochs - self.epoch - 1)
        self._returned.clear()
        self._claims.clear()
        self._next_unit, self._untouched_positions = len(self._order), 0
        self._dropped += dropped
        self._closed = True
        return dropped

    # --- checkpoints ----------------------------------------------------------------------------------------

    def state(self) -> LedgerState:
        """The accounts at this moment. Of outstanding leases, what is reported counts and the rest is pending: exact
        while every worker stands at a batch boundary with its progress reported."""
        rests = [held.rest for _, held in sorted(self._leases.items())]
        claims = [self._claims[worker] for worker in sorted(self._claims)]
        return LedgerState(
            samples=self.settings.samples,
            units=len(self.settings.units),
            epoch=self.epoch,
            next_unit=self._next_unit,
            next_lease_id=self._next_lease_id,
            pending=(*self._returned, *rests, *claims),
            dropped=self._dropped,
            trained=self.trained,
            skipped=self.skipped,
            quarantined=self.quarantined,
        )

    def to_json(self) -> bytes:
        return msgspec.json.encode(self.state())

    @classmethod
    def from_json(cls, settings: LedgerSettings, text: bytes) -> Ledger:
        """Raises CheckpointError when the text is no ledger, or of other data."""
        try:
            state = msgspec.json.decode(text, type=LedgerState)
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"the checkpoint's sample ledger cannot be read: {error}") from error
        return cls.from_state(settings, state)

    @classmethod
    def from_state(cls, settings: LedgerSettings, state: LedgerState) -> Ledger:
        """Raises CheckpointError when the accounts are of other data."""
        if state.data != settings.data:
            raise CheckpointError(
                f"the checkpoint is of data with {state.data}; the data now has {settings.data}",
                hint="resume with the files (and data.limit_rows) the run began with",
            )
        ledger = cls(settings)
        ledger._start_order(state.epoch, state.next_unit)
        ledger._next_lease_id = state.next_lease_id
        ledger._returned.extend(state.pending)
        ledger.trained, ledger.skipped, ledger.quarantined = state.trained, state.skipped, state.quarantined
        if state.dropped:
            ledger._dropped, ledger._closed = state.dropped, True
        return ledger
