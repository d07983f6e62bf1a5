"""The sample ledger: which worker may train which samples, and the count of every sample. Pure. Rules:

1. Each position of an epoch is in exactly one place; at the end `samples_accounted` equals `samples_planned`:

    untouched unit -> claim (the rest of a worker's unit) -> lease -> trained, skipped or quarantined
                        ^-- returned range <-- rest of the leases of a dead or drained worker

2. A lease belongs to one worker incarnation. A report of its progress that comes late or twice has no effect.
3. When an incarnation ends, the dense owner's record of its last commit decides what it has trained, because its last
   reports may be lost. The rest of its leases and its claim return to the front of the queue.
4. The first batch that a dead incarnation left is suspected of the death and is leased alone. After
   `failures_to_quarantine` deaths it is quarantined: counted and listed, but not trained.
5. An epoch begins only when all positions of the one before are accounted for.

Theory of operation. A worker gets small consecutive leases of one unit, because its reader decodes a unit once. When no
unit is untouched, an idle worker takes the second half of the largest claim, and leases become smaller, so that an
epoch does not wait for a straggler. In sync mode (`in_order`) the only holder is the crew. A kill: `give_back` settles
a worker by rule 3; after the death of the supervisor, `replay` rebuilds the ledger from the committed batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from elastichost.batches import batch_stop, batches_of
from elastichost.errors import CheckpointError, IllegalTransitionError, ProtocolError, SampleRange
from elastichost.plan import ProcessId
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.held_leases import HeldLease, HeldLeases
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

MOST_AHEAD = 4  # leases of a worker that wait to be read
FIRST_LEASE_BATCHES = 4  # while the speed of a worker is not measured


class Ledger:
    """The sample ledger of a run; see the module's docstring."""

    def __init__(self, settings: LedgerSettings) -> None:
        self.settings = settings
        self.trained = 0
        self.skipped = 0
        self.quarantined: tuple[Quarantined, ...] = ()
        self._start_order(epoch=0, next_unit=0)
        self._returned: deque[Span] = deque()
        self._claims: dict[ProcessId, Span] = {}
        self._leases = HeldLeases()
        self._trained_by: dict[ProcessId, int] = {}
        self._next_lease_id = 1
        self._dropped, self._closed = 0, False
        self._barred, self._newly_barred = tuple[SampleRange, ...](), tuple[Quarantined, ...]()

    # --- figures --------------------------------------------------------------------------------------------

    @property
    def is_epoch_done(self) -> bool:
        return not (self._leases or self.has_pending)

    @property
    def is_finished(self) -> bool:
        return self.is_epoch_done and (self._closed or self.epoch + 1 >= self.settings.epochs)

    @property
    def samples_planned(self) -> int:
        """Positions of all epochs, without those that an early stop dropped."""
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
    def has_pending(self) -> bool:
        """Whether a worker that requests a lease, and may hold one, gets it."""
        return bool(self._returned or self._claims or self._next_unit < len(self._order))

    @property
    def has_outstanding(self) -> bool:
        return bool(self._leases)

    def leases_of(self, worker: ProcessId) -> tuple[Lease, ...]:
        """Leases of a worker in the order in which they were granted and are trained."""
        return tuple(held.lease for held in self._leases.of(worker))

    def lease_count(self, worker: ProcessId) -> int:
        """The number of leases of a worker."""
        return self._leases.count(worker)

    def workers(self) -> frozenset[ProcessId]:
        """Incarnations that hold a lease or a claim."""
        return frozenset((*self._claims, *self._leases.workers()))

    def shuffle_seed(self, lease: Lease) -> int:
        """Seed of the order of the samples in the unit of a lease; -1: file order."""
        if self.settings.order != "shuffle":
            return -1
        return unit_shuffle_seed(self.settings, lease.epoch, lease.unit)

    # --- granting -------------------------------------------------------------------------------------------

    def request(self, worker: ProcessId, samples_per_s: float, leases_ahead: int = 1) -> Lease | None:
        """The next lease for a worker. None: it holds `leases_per_worker` leases, and as many more as it wants to read
        ahead of the next one, up to MOST_AHEAD; or no position is pending."""
        if self.lease_count(worker) > self.settings.leases_per_worker + min(MOST_AHEAD, leases_ahead) - 2:
            return None
        span = self._take(worker, self._wanted_positions(worker, samples_per_s))
        if span is None:
            return None
        lease = Lease(self._next_lease_id, self.epoch, span.unit, span.start, span.stop)
        self._next_lease_id += 1
        self._leases.add(HeldLease(lease, worker, span.failures, lease.start))
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
        """Takes the second half of the largest claim, or all of it if it is a batch or less."""
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
        """A worker reports that the positions of a lease up to `stop` are applied. samples, skipped: counts so far in
        this lease. Returns False, and counts nothing, when this incarnation does not hold the lease any more or the
        progress is counted already. Raises ProtocolError when the numbers do not fit the lease."""
        held = self._leases.find(worker, lease_id)
        if held is None or stop <= held.applied_stop:
            return False
        lease = held.lease
        if stop > lease.stop or samples + skipped != stop - lease.start:
            raise ProtocolError(
                f"{worker} reports {samples} trained and {skipped} skipped samples up to position {stop} of lease "
                f"{lease_id}, which has positions {lease.start} to {lease.stop} of unit {lease.unit}"
            )
        if samples < held.samples or skipped < held.skipped:
            raise ProtocolError(f"{worker} reports fewer samples of lease {lease_id} than before")
        self._count(worker, samples - held.samples, skipped - held.skipped)
        held.applied_stop, held.samples, held.skipped = stop, samples, skipped
        if stop == lease.stop:
            self._leases.remove(held)
        return True

    def recall(self, worker: ProcessId, samples: int) -> None:
        """An earlier supervisor has counted this number of trained samples of this incarnation."""
        self._trained_by[worker] = samples

    def _count(self, worker: ProcessId, samples: int, skipped: int) -> None:
        self.trained += samples
        self.skipped += skipped
        self._trained_by[worker] = self._trained_by.get(worker, 0) + samples

    def give_back(self, worker: ProcessId, applied: AppliedBatch | None = None, *, failed: bool = False) -> Settlement:
        """Settles an incarnation that has ended or drained (rule 3). applied: the dense owner's record of its last
        batch, taken when it was fenced. A worker trains its leases in the order of their grants, so leases granted
        before `applied.lease_id` are done, and this one is done up to `applied.stop`. failed: the incarnation died at
        work, so rule 4 applies. Raises ProtocolError when the record and the worker's reports contradict each other."""
        held = self._leases.of(worker)
        newly_trained, newly_skipped = self._settle(worker, held, applied)
        rests: list[Span] = []
        quarantined: list[Quarantined] = []
        for entry in held:
            self._leases.remove(entry)
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
        """Counts the PS' record of a live holder; False: nothing is new. Raises ProtocolError when it does not fit."""
        before = self.samples_accounted
        held = self._leases.of(worker)
        self._settle(worker, held, applied)
        for entry in held:
            if entry.applied_stop == entry.lease.stop:
                self._leases.remove(entry)
        return self.samples_accounted != before

    def leave_out(self, entry: Quarantined) -> None:
        """Sync mode: counts positions as quarantined, because workers died on them. They were counted as skipped."""
        self.quarantined += (entry,)
        self.skipped -= entry.stop - entry.start

    def _settle(self, worker: ProcessId, held: Iterable[HeldLease], applied: AppliedBatch | None) -> tuple[int, int]:
        """Advances leases to the PS' record. Returns (trained, skipped) samples that no report had counted."""
        if applied is None or not applied.sequence:
            return 0, 0
        positions = 0
        for entry in held:
            if entry.lease.lease_id > applied.lease_id:
                break
            is_last = entry.lease.lease_id == applied.lease_id
            stop = max(entry.applied_stop, applied.stop) if is_last else entry.lease.stop
            if stop > entry.lease.stop:
                raise ProtocolError(f"the PS applied {worker} up to {stop}, but its lease ends at {entry.lease.stop}")
            positions += stop - entry.applied_stop
            entry.applied_stop = stop
        samples = applied.samples - self._trained_by.get(worker, 0)
        if not 0 <= samples <= positions:
            raise ProtocolError(
                f"the parameter server applied {applied.samples} samples of {worker}. The worker had reported "
                f"{applied.samples - samples}, and at most {positions} more positions of its leases can be applied"
            )
        self._count(worker, samples, positions - samples)
        return samples, positions - samples

    def _after_failure(self, rest: Span, quarantined: list[Quarantined]) -> list[Span]:
        """The first batch of the rest is suspected of the death: it returns alone, or is quarantined."""
        middle = batch_stop(rest.start, rest.stop, self.settings.batch_size)
        failures = (rest.failures if rest.stop == middle else 0) + 1
        tail = [Span(rest.unit, middle, rest.stop)] if middle < rest.stop else []
        if failures >= self.settings.failures_to_quarantine:
            quarantined.append(Quarantined(self.epoch, rest.unit, rest.start, middle, failures))
            return tail
        return [Span(rest.unit, rest.start, middle, failures), *tail]

    # --- barred ranges ---------------------------------------------------------------------------------------

    def bar(self, ranges: Iterable[SampleRange]) -> None:
        """Leaves out these positions: returned ranges at once, untouched units when they are claimed. Positions that
        are accounted for do not change. Raises IllegalTransitionError when a worker holds a lease or a claim."""
        if self.workers():
            raise IllegalTransitionError("ledger", "leases are out", "bar positions")
        self._barred += tuple(ranges)
        self._returned = deque(rest for span in tuple(self._returned) for rest in self._without_barred(span))

    def newly_barred(self) -> tuple[Quarantined, ...]:
        """Barred ranges that were quarantined since the last call."""
        found, self._newly_barred = self._newly_barred, ()
        return found

    def _without_barred(self, span: Span) -> list[Span]:
        """The parts of a span of this epoch that are not barred, in order. The barred parts are quarantined."""
        rests, given_up = without_barred(self.epoch, span, self._barred)
        self.quarantined += given_up
        self._newly_barred += given_up
        return rests

    # --- epochs ---------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Begins the next epoch. Raises IllegalTransitionError before this one is done, and after the last one."""
        if not self.is_epoch_done or self.is_finished:
            raise IllegalTransitionError("ledger", f"epoch {self.epoch}", "begin the next epoch")
        self._start_order(epoch=self.epoch + 1, next_unit=0)

    def _start_order(self, epoch: int, next_unit: int) -> None:
        self.epoch, self._next_unit = epoch, next_unit
        self._order = epoch_order(self.settings, epoch)
        self._untouched_positions = sum(self.settings.units[unit] for unit in self._order[next_unit:])

    def stop_early(self) -> int:
        """Drops all positions that are not leased, also of later epochs. Returns their number; 0: done before."""
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
        """The state at this moment. Reported progress of leases is counted, and the rest of them is pending. This is
        exact while every worker stands at a batch boundary and has reported its progress."""
        rests = (one.rest for one in self._leases.in_order())
        held = (*rests, *(self._claims[worker] for worker in sorted(self._claims)))
        # in order the leased positions are granted first, otherwise those that workers gave back
        pending = (*held, *self._returned) if self.settings.in_order else (*self._returned, *held)
        return LedgerState(
            samples=self.settings.samples,
            units=len(self.settings.units),
            epoch=self.epoch,
            next_unit=self._next_unit,
            next_lease_id=self._next_lease_id,
            pending=pending,
            dropped=self._dropped,
            trained=self.trained,
            skipped=self.skipped,
            quarantined=self.quarantined,
        )

    def to_json(self) -> bytes:
        return msgspec.json.encode(self.state())

    @classmethod
    def from_json(cls, settings: LedgerSettings, text: bytes) -> Ledger:
        """Reads a ledger. Raises CheckpointError when the text is damaged, or the ledger is of other data."""
        try:
            state = msgspec.json.decode(text, type=LedgerState)
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"the checkpoint's sample ledger cannot be read: {error}") from error
        return cls.from_state(settings, state)

    @classmethod
    def from_state(cls, settings: LedgerSettings, state: LedgerState) -> Ledger:
        """A ledger that continues from this state. Raises CheckpointError when the state is of other data."""
        if state.data != settings.data:
            raise CheckpointError(
                f"the checkpoint was made with data of {state.data}, but the job's data now has {settings.data}",
                hint="resume with the same data files and the same data.limit_rows as the run began with",
            )
        ledger = cls(settings)
        ledger._start_order(state.epoch, state.next_unit)
        ledger._next_lease_id = state.next_lease_id
        ledger._returned.extend(state.pending)
        ledger.trained, ledger.skipped, ledger.quarantined = state.trained, state.skipped, state.quarantined
        if state.dropped:
            ledger._dropped, ledger._closed = state.dropped, True
        return ledger
