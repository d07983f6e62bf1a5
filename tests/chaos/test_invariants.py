"""The checks of a chaos run hold for a run with correct accounts, and find every kind of wrong account."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.chaos.facts import RunFacts
from elastichost.chaos.invariants import (
    Leftovers,
    check_applied,
    check_leftovers,
    check_recovery,
    check_samples,
    percentile,
)
from elastichost.plan import ProcessId
from elastichost.runs.events import AnyEvent, BatchTorn, LeaseGranted, LeasesSettled, RunStarted
from elastichost.supervisor.ledger.checkpoint_record import RunRecord
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.wire.applied import APPLIED_RECORD
from elastichost.wire.facts import AppliedBatch, Lease
from tests.effort import examples

BATCH = 10
FIELDS = ("worker", "incarnation", "sequence", "lease_id", "epoch", "unit", "start", "stop", "samples", "skipped")
SETTINGS = LedgerSettings(units=(100, 0, 95, 64), epochs=3, batch_size=BATCH, order="shuffle_groups", seed=5)


class MadeUpRun:
    """A run of the real ledger with made-up workers that train, are killed and are drained at random."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger(SETTINGS)
        self.events: list[AnyEvent] = []
        self.rows: list[tuple[int, ...]] = []
        self.incarnations = [1, 1]
        self.sequence: dict[ProcessId, int] = {}
        self.trained: dict[ProcessId, int] = {}
        self.at: dict[int, int] = {}
        self.events.append(RunStarted("ab", "run"))
        for _ in range(steps):
            self.step()
        for index in range(2):
            self.end(index, died=False)

    def worker(self, index: int) -> ProcessId:
        return ProcessId("worker", index, self.incarnations[index])

    def step(self) -> None:
        index, draw = self.random.randrange(2), self.random.random()
        if self.ledger.is_epoch_done:
            if not self.ledger.is_finished:
                self.ledger.begin_epoch()
        elif draw < 0.3:
            self.lease(index)
        elif draw < 0.95:
            self.train(index)
        else:
            self.end(index, died=draw < 0.98)

    def lease(self, index: int) -> None:
        worker = self.worker(index)
        lease = self.ledger.request(worker, 30.0)
        if lease is not None:
            granted = LeaseGranted(worker, lease.lease_id, lease.epoch, lease.unit, lease.start, lease.stop)
            self.events.append(granted)
            self.at[lease.lease_id] = lease.start

    def train(self, index: int) -> None:
        worker = self.worker(index)
        for lease in self.ledger.leases_of(worker):
            self.commit(worker, lease, reported=self.random.random() < 0.8)
            return

    def commit(self, worker: ProcessId, lease: Lease, *, reported: bool) -> None:
        start = self.at[lease.lease_id]
        stop = min(start + BATCH, lease.stop)
        if start >= stop:
            return
        self.at[lease.lease_id] = stop
        sequence = self.sequence[worker] = self.sequence.get(worker, 0) + 1
        self.trained[worker] = self.trained.get(worker, 0) + stop - start
        self.rows.append(
            (
                worker.index,
                worker.incarnation,
                sequence,
                lease.lease_id,
                lease.epoch,
                lease.unit,
                start,
                stop,
                stop - start,
                0,
            )
        )
        if reported or stop == lease.stop:
            self.ledger.progress(worker, lease.lease_id, stop, stop - lease.start, 0)

    def end(self, index: int, *, died: bool) -> None:
        worker = self.worker(index)
        mine = [row for row in self.rows if row[:2] == (worker.index, worker.incarnation)]
        last = mine[-1] if mine else None
        applied = (
            AppliedBatch(last[2], last[3], last[7], self.trained[worker], 0) if last else AppliedBatch(0, 0, 0, 0, 0)
        )
        settled = self.ledger.give_back(worker, applied, failed=died)
        self.events.append(LeasesSettled(worker, settled.trained, settled.skipped, settled.returned))
        self.incarnations[index] += 1

    def facts(self) -> RunFacts:
        state = self.ledger.state()
        record = RunRecord(state, len(self.rows), len(self.rows), state.trained)
        applied = np.zeros(len(self.rows), dtype=APPLIED_RECORD)
        for number, row in enumerate(self.rows):
            for name, value in zip(FIELDS, row, strict=True):
                applied[number][name] = value
        return RunFacts(SETTINGS, "direct", tuple(self.events), applied, record)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_a_run_with_correct_accounts_holds(seed: int, steps: int) -> None:
    facts = MadeUpRun(seed, steps).facts()
    assert check_samples(facts).violations == ()
    assert check_applied(facts).violations == ()


@pytest.fixture
def facts() -> RunFacts:
    found = MadeUpRun(4, 150).facts()
    assert len(found.applied) > 20
    assert check_samples(found).holds
    return found


def changed(facts: RunFacts, applied: np.ndarray | None = None, **ledger: object) -> RunFacts:
    """Returns the facts with another log of applied batches, or with other fields of the ledger."""
    assert facts.record is not None
    record = msgspec.structs.replace(facts.record, ledger=msgspec.structs.replace(facts.record.ledger, **ledger))
    kept = facts.applied if applied is None else applied
    return RunFacts(facts.settings, facts.access, facts.events, kept, record)


def broken(facts: RunFacts, words: str) -> None:
    """Asserts that the check of samples finds a violation with these words."""
    verdict = check_samples(facts)
    assert verdict.holds is False
    assert any(words in line for line in verdict.violations), verdict.violations


def test_a_batch_committed_twice_is_found(facts: RunFacts) -> None:
    broken(changed(facts, np.append(facts.applied, facts.applied[3:4])), "were both committed")


def test_a_batch_that_overlaps_another_is_found(facts: RunFacts) -> None:
    applied = facts.applied.copy()
    applied["stop"][5] += 1
    broken(changed(facts, applied), "were both committed")


def test_a_batch_that_is_missing_is_found(facts: RunFacts) -> None:
    without = np.delete(facts.applied, 7)
    broken(changed(facts, without), "never committed")
    broken(changed(facts, without), "the log of applied batches holds")


def test_a_batch_without_a_lease_of_its_incarnation_is_found(facts: RunFacts) -> None:
    applied = facts.applied.copy()
    applied["incarnation"][9] += 50
    broken(changed(facts, applied), "but the journal grants this worker no lease")


def test_a_ledger_with_another_sample_count_is_found(facts: RunFacts) -> None:
    assert facts.record is not None
    broken(changed(facts, trained=facts.record.ledger.trained + 1), "the ledger")


def test_positions_that_are_pending_and_committed_are_found(facts: RunFacts) -> None:
    assert facts.record is not None
    last = facts.applied[-1]
    state = facts.record.ledger
    spans = (*state.pending, type(state.pending[0])(int(last["unit"]), int(last["start"]), int(last["stop"])))
    broken(changed(facts, pending=spans), "are pending")


def test_a_range_leased_while_another_incarnation_holds_it_is_found(facts: RunFacts) -> None:
    first = next(event for event in facts.events if isinstance(event, LeaseGranted))
    again = msgspec.structs.replace(first, process=ProcessId("worker", 7, 1), lease=999)
    place = facts.events.index(first) + 1
    events = (*facts.events[:place], again, *facts.events[place:])
    broken(RunFacts(facts.settings, facts.access, events, facts.applied, facts.record), "still held")


def test_a_dense_vector_with_another_sample_count_breaks_promise_a(facts: RunFacts) -> None:
    assert facts.record is not None
    record = msgspec.structs.replace(facts.record, samples_applied=facts.record.samples_applied - 1)
    verdict = check_applied(RunFacts(facts.settings, facts.access, facts.events, facts.applied, record))
    assert verdict.holds is False


@pytest.mark.parametrize(
    ("access", "batches", "with_supervisor", "holds"),
    [
        ("direct", (1,), False, True),
        ("direct", (2,), False, False),
        ("direct", (1, 1), False, False),
        ("direct", (3,), True, True),
        ("direct", (4,), True, False),
        ("mixed", (1,), False, True),
        ("mixed", (2,), False, False),
        ("served", (1,), False, False),
    ],
)
def test_at_most_one_batch_of_an_incarnation_is_torn_and_none_with_served_access(
    facts: RunFacts, access: str, batches: tuple[int, ...], with_supervisor: bool, holds: bool
) -> None:
    torn = [BatchTorn(ProcessId("worker", 0, 1), count, with_supervisor) for count in batches]
    events = (*facts.events, *torn)
    verdict = check_applied(RunFacts(facts.settings, access, events, facts.applied, facts.record))
    assert verdict.holds is holds


def test_without_a_checkpoint_there_is_no_verdict(facts: RunFacts) -> None:
    bare = RunFacts(facts.settings, facts.access, facts.events, facts.applied, None)
    assert check_samples(bare).holds is None
    assert check_applied(bare).holds is None


def test_processes_and_directories_that_are_left_are_named() -> None:
    assert check_leftovers(Leftovers((), (), (), 0.3)).holds
    verdict = check_leftovers(Leftovers(("12",), ("/dev/shm/x",), (), 5.0))
    assert verdict.violations == ("process 12 is left", "directory /dev/shm/x is left")


def test_the_median_of_recoveries_must_be_within_its_bound() -> None:
    assert check_recovery({"worker": [0.1, 0.2, 9.0]}, {"worker": 1.0}, []).holds
    assert check_recovery({"worker": [0.1, 2.0, 9.0]}, {"worker": 1.0}, []).holds is False
    assert check_recovery({"supervisor": [9.0]}, {"worker": 1.0}, []).holds, "a kind without a bound always holds"
    assert check_recovery({"worker": []}, {"worker": 1.0}, []).holds is None
    assert check_recovery({"worker": [0.1]}, {"worker": 1.0}, ["no recovery from x"]).violations == (
        "no recovery from x",
    )


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
