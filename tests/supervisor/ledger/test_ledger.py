"""The ledger: law L (every sample counts exactly once) as a state machine, and each of its policies alone."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastichost.batches import MIN_SAMPLES, batch_stop
from elastichost.errors import CheckpointError, IllegalTransitionError, ProtocolError, SampleRange
from elastichost.plan import ProcessId
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.ledger import Ledger, LedgerSettings, Span
from elastichost.supervisor.ledger.state import epoch_order
from elastichost.wire.facts import AppliedBatch, Lease
from tests.effort import examples


def worker(index: int, incarnation: int = 1) -> ProcessId:
    return ProcessId("worker", index, incarnation)


def ledger_of(*units: int, epochs: int = 1, batch_size: int = 10, **more: object) -> Ledger:
    """A ledger over units of these sizes."""
    return Ledger(LedgerSettings(units=units, epochs=epochs, batch_size=batch_size, **more))  # type: ignore[arg-type]


def finish(ledger: Ledger, process: ProcessId, lease: Lease) -> None:
    """Reports that a worker has trained a whole lease."""
    assert ledger.progress(process, lease.lease_id, lease.stop, lease.stop - lease.start, 0)


class ModelWorker:
    """One worker incarnation: it trains leases in order, and its batches are applied (at the PS) before it reports
    them."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self.leases: list[Lease] = []
        self.applied = AppliedBatch(0, 0, 0, 0, 0)
        self.stop: dict[int, int] = {}
        self.samples: dict[int, int] = {}
        self.skipped: dict[int, int] = {}

    def train_batch(self, batch_size: int, bad: int) -> tuple[Lease, int, int, int] | None:
        """Applies the next batch of the first unfinished lease. bad: number of its rows that are skipped."""
        for lease in self.leases:
            start = self.stop.get(lease.lease_id, lease.start)
            if start == lease.stop:
                continue
            stop = batch_stop(start, lease.stop, batch_size)
            skipped = min(bad, stop - start)
            self.stop[lease.lease_id] = stop
            self.samples[lease.lease_id] = self.samples.get(lease.lease_id, 0) + stop - start - skipped
            self.skipped[lease.lease_id] = self.skipped.get(lease.lease_id, 0) + skipped
            if skipped < stop - start:  # a batch without a good row is never committed
                before = self.applied
                self.applied = AppliedBatch(
                    before.sequence + 1, lease.lease_id, stop, sum(self.samples.values()), sum(self.skipped.values())
                )
            return lease, start, stop, skipped
        return None


class LedgerMachine(RuleBasedStateMachine):
    """Workers train, report late or twice, drain and die. A second, independent count is kept of every position."""

    @initialize(
        units=st.lists(st.integers(0, 60), min_size=1, max_size=5),
        epochs=st.integers(1, 3),
        batch_size=st.integers(1, 16),
        order=st.sampled_from(["file", "shuffle_groups", "shuffle"]),
    )
    def begin(self, units: list[int], epochs: int, batch_size: int, order: str) -> None:
        self.settings = LedgerSettings(
            units=tuple(units),
            epochs=epochs,
            batch_size=batch_size,
            order=order,
            seed=7,
            failures_to_quarantine=3,  # type: ignore[arg-type]
        )
        self.ledger = Ledger(self.settings)
        self.workers: dict[int, ModelWorker] = {}
        self.incarnations = 0
        self.counted: dict[tuple[int, int, int], int] = {}
        self.late: list[tuple[ProcessId, int, int, int, int]] = []
        self.bad_rows = 0

    def _count(self, epoch: int, unit: int, start: int, stop: int) -> None:
        """Counts positions in the independent count; none may be counted twice."""
        for position in range(start, stop):
            key = (epoch, unit, position)
            self.counted[key] = self.counted.get(key, 0) + 1
            assert self.counted[key] == 1, f"{key} counted twice"

    def _alive(self, index: int) -> ModelWorker:
        """The worker with this index; a new incarnation if there is none."""
        if index not in self.workers:
            self.incarnations += 1
            self.workers[index] = ModelWorker(worker(index, self.incarnations))
        return self.workers[index]

    @rule(index=st.integers(0, 3), rate=st.floats(0, 200), ahead=st.integers(0, 9))
    def ask(self, index: int, rate: float, ahead: int) -> None:
        model = self._alive(index)
        lease = self.ledger.request(model.process, rate, ahead)
        if lease is not None:
            assert 0 <= lease.start < lease.stop <= self.settings.units[lease.unit]
            is_whole = (lease.stop - lease.start) % self.settings.batch_size == 0
            assert is_whole or lease.stop == self.settings.units[lease.unit]
            samples = self.settings.units[lease.unit]
            assert lease.stop - lease.start >= min(MIN_SAMPLES, samples, self.settings.batch_size)
            model.leases.append(lease)

    @rule(index=st.integers(0, 3), batches=st.integers(1, 4), bad=st.integers(0, 2), reports=st.booleans())
    def train(self, index: int, batches: int, bad: int, reports: bool) -> None:
        model = self._alive(index)
        for _ in range(batches):
            done = model.train_batch(self.settings.batch_size, bad)
            if done is None:
                return
            lease, _, stop, _ = done
            report = (model.process, lease.lease_id, stop, model.samples[lease.lease_id], model.skipped[lease.lease_id])
            self.late.append(report)
            if reports:
                self._report(report)

    def _report(self, report: tuple[ProcessId, int, int, int, int]) -> None:
        before = {held.lease_id: held for held in self.ledger.leases_of(report[0])}
        entry = self.ledger._leases.find(report[0], report[1])
        start = entry.applied_stop if entry is not None else None
        counted = self.ledger.progress(*report)
        if counted:
            lease = before[report[1]]
            assert start is not None
            self._count(lease.epoch, lease.unit, start, report[2])

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def report_late_or_twice(self, data: st.DataObject) -> None:
        self._report(data.draw(st.sampled_from(self.late[-20:])))

    @rule(index=st.integers(0, 3))
    def drain(self, index: int) -> None:
        """A drained worker has reported all its progress."""
        model = self.workers.pop(index, None)
        if model is None:
            return
        for lease in model.leases:
            if lease.lease_id in model.stop:
                stop, number = model.stop[lease.lease_id], lease.lease_id
                self._report((model.process, number, stop, model.samples[number], model.skipped[number]))
        self.ledger.give_back(model.process)

    @rule(index=st.integers(0, 3))
    def kill(self, index: int) -> None:
        """Batches that are applied at the PS count, whether they were reported or not."""
        model = self.workers.pop(index, None)
        if model is None:
            return
        held = {entry.lease.lease_id: entry.applied_stop for entry in self.ledger._leases.of(model.process)}
        leases = {lease.lease_id: lease for lease in self.ledger.leases_of(model.process)}
        epoch = self.ledger.epoch
        settlement = self.ledger.give_back(model.process, model.applied, failed=True)
        for number, start in held.items():
            lease = leases[number]
            if model.applied.sequence and number < model.applied.lease_id:
                self._count(lease.epoch, lease.unit, start, lease.stop)
            elif model.applied.sequence and number == model.applied.lease_id:
                self._count(lease.epoch, lease.unit, start, max(start, model.applied.stop))
        for entry in settlement.quarantined:
            self._count(epoch, entry.unit, entry.start, entry.stop)

    @precondition(lambda self: self.ledger.is_epoch_done and not self.ledger.is_finished)
    @rule()
    def next_epoch(self) -> None:
        self.ledger.begin_epoch()

    @rule()
    def checkpoint_and_restore(self) -> None:
        """Every worker pauses and has reported all its progress; a new run begins with new workers."""
        for index in list(self.workers):
            self.drain(index)
        self.ledger = Ledger.from_json(self.settings, self.ledger.to_json())

    @invariant()
    def both_counts_agree(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.samples_accounted == len(self.counted)

    def teardown(self) -> None:
        """A last worker finishes the job; then every position must be counted exactly once."""
        if not hasattr(self, "ledger"):
            return
        for index in list(self.workers):
            self.kill(index)
        last = worker(9, 10**6)
        while not self.ledger.is_finished:
            if self.ledger.is_epoch_done:
                self.ledger.begin_epoch()
                continue
            lease = self.ledger.request(last, 100.0)
            assert lease is not None
            self._count(lease.epoch, lease.unit, lease.start, lease.stop)
            finish(self.ledger, last, lease)
        assert self.ledger.samples_accounted == self.ledger.samples_planned == len(self.counted)
        assert set(self.counted.values()) <= {1}


LedgerMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase


def test_a_worker_continues_its_own_unit() -> None:
    ledger = ledger_of(100, 100)
    first = ledger.request(worker(0), 20.0)
    other = ledger.request(worker(1), 20.0)
    second = ledger.request(worker(0), 20.0)
    assert [(lease.unit, lease.start, lease.stop) for lease in (first, other, second) if lease] == [
        (0, 0, 20),
        (1, 0, 20),
        (0, 20, 40),
    ]


def test_leases_are_sized_by_the_rate_in_whole_batches() -> None:
    ledger = ledger_of(10_000)
    lease = ledger.request(worker(0), 1234.0)
    assert lease is not None
    assert lease.stop - lease.start == 1230
    slow = ledger_of(10_000).request(worker(0), 0.5)
    assert slow is not None
    assert slow.stop - slow.start == 10


def test_a_worker_holds_at_most_two_leases() -> None:
    ledger = ledger_of(1000)
    leases = [ledger.request(worker(0), 10.0) for _ in range(3)]
    assert leases[2] is None
    assert leases[0] is not None
    finish(ledger, worker(0), leases[0])
    assert ledger.request(worker(0), 10.0) is not None


def test_a_worker_that_decodes_units_ahead_holds_as_many_leases_more() -> None:
    for ahead, held in ((2, 3), (4, 5), (100, 5)):
        ledger = ledger_of(1000)
        leases = [ledger.request(worker(0), 10.0, ahead) for _ in range(held + 1)]
        assert [lease is None for lease in leases] == [False] * held + [True]


def test_an_idle_worker_gets_the_second_half_of_another_claim_from_a_batch_boundary() -> None:
    ledger = ledger_of(100)
    ledger.request(worker(0), 10.0)
    stolen = ledger.request(worker(1), 10.0)
    assert stolen is not None
    assert (stolen.start, stolen.stop) == (50, 60)


def test_leases_shrink_towards_the_end() -> None:
    ledger = ledger_of(1000)
    sizes = []
    workers = [worker(0), worker(1)]
    while not ledger.is_epoch_done:
        for one in workers:
            lease = ledger.request(one, 10_000.0)
            if lease is not None:
                sizes.append(lease.stop - lease.start)
                finish(ledger, one, lease)
    assert sizes[0] > sizes[-1]
    assert sizes[-1] <= 20


def test_positions_of_a_dead_worker_are_granted_first_and_its_suspected_batch_alone() -> None:
    ledger = ledger_of(100, 100)
    lease = ledger.request(worker(0), 40.0)
    assert lease is not None
    ledger.progress(worker(0), lease.lease_id, 10, 10, 0)
    settlement = ledger.give_back(worker(0), AppliedBatch(2, lease.lease_id, 20, 20, 0), failed=True)
    assert (settlement.trained, settlement.returned) == (10, 80)
    suspect = ledger.request(worker(1), 40.0)
    rest = ledger.request(worker(1), 40.0)
    assert suspect is not None
    assert rest is not None
    assert (suspect.start, suspect.stop) == (20, 30)
    assert (rest.start, rest.stop) == (30, 40)


def test_a_batch_that_kills_three_incarnations_is_quarantined() -> None:
    ledger = ledger_of(30)
    for incarnation in (1, 2, 3):
        lease = ledger.request(worker(0, incarnation), 10.0)
        assert lease is not None
        assert (lease.start, lease.stop) == (0, 10)
        settlement = ledger.give_back(worker(0, incarnation), AppliedBatch(0, 0, 0, 0, 0), failed=True)
    assert [(entry.start, entry.stop, entry.failures) for entry in settlement.quarantined] == [(0, 10, 3)]
    while (lease := ledger.request(worker(0, 4), 10.0)) is not None:
        finish(ledger, worker(0, 4), lease)
    assert ledger.is_finished
    assert (ledger.trained, ledger.samples_quarantined) == (20, 10)


def test_a_drained_worker_is_not_counted_as_a_failure_of_its_batch() -> None:
    ledger = ledger_of(10)
    for incarnation in range(1, 6):
        assert ledger.request(worker(0, incarnation), 10.0) is not None
        assert ledger.give_back(worker(0, incarnation)).quarantined == ()


def test_bad_rows_at_a_lease_end_count_as_skipped_without_a_commit() -> None:
    ledger = ledger_of(40)
    first = ledger.request(worker(0), 20.0)
    second = ledger.request(worker(0), 20.0)
    assert first is not None
    assert second is not None
    # applied: 10 of the first lease, then 10 of the second; the first lease's tail was all bad
    settlement = ledger.give_back(worker(0), AppliedBatch(2, second.lease_id, second.start + 10, 20, 0), failed=True)
    assert (settlement.trained, settlement.skipped) == (20, 10)


def test_late_progress_and_progress_of_another_worker_count_nothing() -> None:
    ledger = ledger_of(20)
    lease = ledger.request(worker(0), 10.0)
    assert lease is not None
    assert not ledger.progress(worker(1), lease.lease_id, 10, 10, 0)
    ledger.give_back(worker(0))
    assert not ledger.progress(worker(0), lease.lease_id, 10, 10, 0)
    assert ledger.samples_accounted == 0


def test_older_progress_counts_nothing() -> None:
    ledger = ledger_of(200)
    lease = ledger.request(worker(0), 0.0)
    assert lease is not None and lease.stop == 40
    assert ledger.progress(worker(0), lease.lease_id, 20, 19, 1)
    assert not ledger.progress(worker(0), lease.lease_id, 10, 10, 0)
    assert not ledger.progress(worker(0), lease.lease_id, 20, 19, 1)
    assert (ledger.trained, ledger.skipped) == (19, 1)


@pytest.mark.parametrize(("stop", "samples", "skipped"), [(30, 30, 0), (10, 9, 0), (10, 12, -2 + 1)])
def test_impossible_progress_is_refused(stop: int, samples: int, skipped: int) -> None:
    ledger = ledger_of(20)
    lease = ledger.request(worker(0), 20.0)
    assert lease is not None
    with pytest.raises(ProtocolError, match="worker-0"):
        ledger.progress(worker(0), lease.lease_id, stop, samples, skipped)


@pytest.mark.parametrize(("samples", "skipped"), [(3, 7), (9, 1)])
def test_progress_with_smaller_counts_than_before_is_refused(samples: int, skipped: int) -> None:
    """The positions fit, but the counts decrease, so counted samples would be taken back."""
    ledger = ledger_of(20)
    lease = ledger.request(worker(0), 20.0)
    assert lease is not None
    ledger.progress(worker(0), lease.lease_id, 7, 5, 2)
    trained = ledger.trained
    with pytest.raises(ProtocolError, match="fewer samples of lease"):
        ledger.progress(worker(0), lease.lease_id, samples + skipped, samples, skipped)
    assert ledger.trained == trained == 5


def test_contradicting_records_are_refused() -> None:
    ledger = ledger_of(20)
    lease = ledger.request(worker(0), 20.0)
    assert lease is not None
    ledger.progress(worker(0), lease.lease_id, 10, 10, 0)
    with pytest.raises(ProtocolError, match="had reported 10"):
        ledger.give_back(worker(0), AppliedBatch(1, lease.lease_id, 10, 5, 0), failed=True)


def test_an_early_stop_drops_all_positions_that_are_not_leased() -> None:
    ledger = ledger_of(100, 100, epochs=3)
    lease = ledger.request(worker(0), 10.0)
    assert lease is not None
    assert ledger.stop_early() == 590
    assert ledger.stop_early() == 0, "the remaining epochs are dropped only once"
    assert ledger.request(worker(1), 10.0) is None
    finish(ledger, worker(0), lease)
    assert ledger.is_finished
    assert ledger.samples_accounted == ledger.samples_planned == 10


def test_an_epoch_does_not_begin_before_the_one_before_is_done() -> None:
    ledger = ledger_of(10, epochs=2)
    with pytest.raises(IllegalTransitionError):
        ledger.begin_epoch()


def test_shuffled_orders_are_permutations_that_differ() -> None:
    shape = LedgerSettings(units=(1,) * 50, epochs=2, batch_size=1, order="shuffle_groups", seed=3)
    first, second = epoch_order(shape, 0), epoch_order(shape, 1)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second != tuple(range(50))
    assert epoch_order(shape, 0) == first


def test_shuffle_seeds_differ_by_unit_and_epoch_and_fit_in_a_message() -> None:
    ledger = ledger_of(10, 10, order="shuffle", seed=2**63 - 1)
    seeds = {ledger.shuffle_seed(Lease(1, epoch, unit, 0, 1)) for epoch in range(4) for unit in range(4)}
    assert len(seeds) == 16
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert ledger_of(10).shuffle_seed(Lease(1, 0, 0, 0, 1)) == -1


def test_a_checkpoint_of_other_data_is_refused() -> None:
    text = ledger_of(10, 10).to_json()
    with pytest.raises(CheckpointError, match="20 samples in 2 units"):
        Ledger.from_json(LedgerSettings(units=(10, 11), epochs=1, batch_size=10), text)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Ledger.from_json(LedgerSettings(units=(10, 11), epochs=1, batch_size=10), b"{}")


def test_a_span_has_the_number_of_its_samples() -> None:
    assert Span(0, 3, 8).samples == 5


# --- the crew of sync mode --------------------------------------------------------------------------------------------


def test_samples_of_a_crew_are_counted_by_the_record_of_its_steps() -> None:
    ledger, crew = ledger_of(40, batch_size=4), worker(255)
    leases = [ledger.request(crew, 8.0) for _ in range(2)]
    assert [(lease.start, lease.stop) for lease in leases if lease] == [(0, 8), (8, 16)]
    assert leases[0] is not None and leases[1] is not None
    assert not ledger.account(crew, AppliedBatch(0, 0, 0, 0, 0)), "nothing is committed yet"
    assert ledger.account(crew, AppliedBatch(1, leases[0].lease_id, 4, 3, 1))
    assert not ledger.account(crew, AppliedBatch(1, leases[0].lease_id, 4, 3, 1)), "it is counted already"
    assert (ledger.trained, ledger.skipped) == (3, 1)
    assert ledger.leases_of(crew) == (leases[0], leases[1])
    assert ledger.account(crew, AppliedBatch(3, leases[1].lease_id, 12, 11, 1))
    assert (ledger.trained, ledger.skipped) == (11, 1)
    assert ledger.leases_of(crew) == (leases[1],), "all steps of the lease before are committed"
    third = ledger.request(crew, 8.0)
    assert third is not None and third.start == 16


def test_an_impossible_record_of_a_crew_is_refused() -> None:
    ledger, crew = ledger_of(40, batch_size=4), worker(255)
    lease = ledger.request(crew, 8.0)
    assert lease is not None
    with pytest.raises(ProtocolError, match="at most 4 more positions"):
        ledger.account(crew, AppliedBatch(1, lease.lease_id, 4, 5, 0))
    fresh = ledger_of(40, batch_size=4)
    held = fresh.request(crew, 8.0)
    assert held is not None
    with pytest.raises(ProtocolError, match="ends at 8"):
        fresh.account(crew, AppliedBatch(3, held.lease_id, 12, 12, 0))


def test_samples_that_a_crew_leaves_out_are_listed_and_counted_once() -> None:
    ledger, crew = ledger_of(12, batch_size=12), worker(255)
    lease = ledger.request(crew, 12.0)
    assert lease is not None
    entry = Quarantined(0, 0, 3, 6, 3)
    ledger.leave_out(entry)
    assert ledger.quarantined == (entry,)
    assert ledger.samples_accounted == 0, "its step is not committed yet"
    assert ledger.account(crew, AppliedBatch(1, lease.lease_id, 12, 9, 3))
    assert (ledger.trained, ledger.skipped, ledger.samples_quarantined) == (9, 0, 3)
    assert ledger.is_finished and ledger.samples_accounted == ledger.samples_planned


def test_a_restored_ledger_in_order_continues_with_the_positions_that_are_next() -> None:
    """What waits behind the lease of the crew, because positions before it are left out, comes after the lease."""
    ledger = ledger_of(100, in_order=True)
    ledger.bar((SampleRange(0, 0, 40, 50),))
    lease = ledger.request(worker(0), 40.0)
    assert lease is not None
    assert lease.start == 0
    restored = Ledger.from_json(ledger.settings, ledger.to_json())
    starts = []
    while (lease := restored.request(worker(0, 2), 1.0)) is not None:
        starts.append(lease.start)
        finish(restored, worker(0, 2), lease)
    assert starts == [0, 10, 20, 30, 50, 60, 70, 80, 90]
