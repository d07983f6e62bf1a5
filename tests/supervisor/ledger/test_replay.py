"""A ledger rebuilt from committed batches: with the pending positions, every position counts exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.ledger import Ledger, LedgerSettings
from elastichost.supervisor.ledger.replay import ledger_of_applied
from elastichost.supervisor.ledger.state import LedgerState
from elastichost.supervisor.startup.applied_restart import fold_of_ledger
from elastichost.wire.applied import APPLIED_RECORD, AppliedRecords
from elastichost.wire.applied_fold import fold_records
from elastichost.wire.facts import AppliedBatch, Lease


def records_of(*batches: tuple[int, int, int, int, int, int]) -> AppliedRecords:
    """Records of (lease, epoch, unit, start, stop, skipped); the samples of the range that are not skipped are
    trained."""
    rows = [
        (0, 1, number, lease, epoch, unit, start, stop, stop - start - skipped, skipped)
        for number, (lease, epoch, unit, start, stop, skipped) in enumerate(batches, 1)
    ]
    return filled(rows)


def filled(rows: Sequence[tuple[int, ...]]) -> AppliedRecords:
    """An array of records with these first fields."""
    records = np.zeros(len(rows), APPLIED_RECORD)
    for number, row in enumerate(rows):
        for name, value in zip(APPLIED_RECORD.names or (), row, strict=False):
            records[name][number] = value
    return records


def settings_of(*units: int, epochs: int = 1) -> LedgerSettings:
    return LedgerSettings(units=units, epochs=epochs, batch_size=4)


@dataclass
class History:
    """A run until its supervisor dies: the batches that the dense owner committed, and a count of each position."""

    ledger: Ledger
    draw: st.DrawFn
    rows: list[tuple[int, ...]] = field(default_factory=list)
    trained: set[tuple[int, int, int]] = field(default_factory=set)
    epochs_seen: set[int] = field(default_factory=lambda: {0})
    leases_seen: int = 0
    incarnations: dict[int, int] = field(default_factory=dict)
    totals: dict[ProcessId, list[int]] = field(default_factory=dict)

    def step(self) -> None:
        """A worker gets a lease, and trains it or dies within it."""
        index = self.draw(st.integers(0, 2))
        worker = ProcessId("worker", index, self.incarnations.setdefault(index, 1))
        lease = self.ledger.request(worker, self.draw(st.sampled_from([0.0, 5.0, 40.0])))
        if lease is None:
            if self.ledger.is_epoch_done and not self.ledger.is_finished:
                self.ledger.begin_epoch()
            return
        self.epochs_seen.add(lease.epoch)
        self.leases_seen = max(self.leases_seen, lease.lease_id)
        batches = -(-(lease.stop - lease.start) // 4)
        done = self.draw(st.integers(0, batches))
        samples, skipped, applied_stop = self._train(worker, lease, done)
        if done == batches:
            assert self.ledger.progress(worker, lease.lease_id, lease.stop, samples, skipped)
        else:
            self._die(worker, lease, applied_stop)

    def _train(self, worker: ProcessId, lease: Lease, batches: int) -> tuple[int, int, int]:
        """(samples, skipped, stop of what is committed); a batch of bad rows only is not committed."""
        samples = skipped = carried = 0
        stop = applied_stop = lease.start
        totals = self.totals.setdefault(worker, [0, 0, 0, 0])
        for _ in range(batches):
            start, stop = stop, min(stop + 4, lease.stop)
            bad = self.draw(st.sampled_from([0, 0, 1, stop - start]))
            good = stop - start - bad
            samples, skipped, carried = samples + good, skipped + bad, carried + bad
            if good:
                totals[:] = [totals[0] + 1, lease.lease_id, totals[2] + good, stop]
                book = (worker.index, worker.incarnation, totals[0], lease.lease_id, lease.epoch, lease.unit)
                self.rows.append((*book, start, stop, good, carried))
                self.trained |= {(lease.epoch, lease.unit, place) for place in range(applied_stop, stop)}
                carried, applied_stop = 0, stop
        return samples, skipped, applied_stop

    def _die(self, worker: ProcessId, lease: Lease, applied_stop: int) -> None:
        totals = self.totals[worker]
        applied = AppliedBatch(totals[0], totals[1], applied_stop if totals[1] == lease.lease_id else 0, totals[2], 0)
        if totals[1] == lease.lease_id:
            applied = AppliedBatch(totals[0], totals[1], totals[3], totals[2], 0)
        self.ledger.give_back(worker, applied, failed=True)
        self.incarnations[worker.index] += 1


def folded(settings: LedgerSettings, history: History, draw: st.DrawFn) -> Ledger:
    """The ledger rebuilt from the same batches, with the first ones folded at once or in two turns."""
    cut = draw(st.integers(0, len(history.rows)))
    first = draw(st.integers(0, cut))
    fold = fold_records(None, first + 1, filled(history.rows[:first]))
    fold = fold_records(fold, cut + 1, filled(history.rows[first:cut]))
    return ledger_of_applied(
        settings,
        filled(history.rows[cut:]),
        history.ledger.quarantined,
        fold=fold,
        epoch=max(history.epochs_seen),
        next_lease_id=history.leases_seen + 1,
    )


def of_checkpoint(settings: LedgerSettings, state: LedgerState) -> Ledger:
    """The ledger rebuilt from the fold after a checkpoint with this state; no record is left."""
    fold = fold_of_ledger(settings, state, 17, state.trained)
    found = ledger_of_applied(settings, filled([]), state.quarantined, fold=fold, epoch=state.epoch)
    assert (found.trained, found.skipped, found.quarantined) == (state.trained, state.skipped, state.quarantined)
    assert found.state().next_lease_id == state.next_lease_id
    return found


@given(st.data())
def test_committed_and_pending_positions_are_together_every_position_once(data: st.DataObject) -> None:
    draw = data.draw
    units = tuple(draw(st.lists(st.integers(0, 30), min_size=1, max_size=4)))
    settings = LedgerSettings(
        units=units,
        epochs=draw(st.integers(1, 3)),
        batch_size=4,
        order=draw(st.sampled_from(["file", "shuffle_groups"])),
        seed=3,
        failures_to_quarantine=draw(st.sampled_from([1, 3])),
    )
    history = History(Ledger(settings), draw)  # type: ignore[arg-type]
    for _ in range(draw(st.integers(0, 40))):
        history.step()
    records = filled(draw(st.permutations(history.rows)))
    quarantined = history.ledger.quarantined
    ledger = ledger_of_applied(
        settings,
        records,
        quarantined,
        epoch=max(history.epochs_seen),
        next_lease_id=history.leases_seen + 1,
    )
    assert ledger.trained == int(records["samples"].sum())
    assert ledger.quarantined == quarantined
    assert folded(settings, history, draw).state() == ledger.state(), "folding must not change the ledger"
    again = of_checkpoint(settings, history.ledger.state())
    assert everything_left(again, settings, history.leases_seen) == everything_left(
        Ledger.from_state(settings, history.ledger.state()), settings, history.leases_seen
    )
    given_up = {(e.epoch, e.unit, place) for e in quarantined for place in range(e.start, e.stop)}
    assert not given_up & history.trained
    left = everything_left(ledger, settings, history.leases_seen)
    whole = {
        (e, unit, place) for e in range(settings.epochs) for unit in range(len(units)) for place in range(units[unit])
    }
    skipped_before = {at for at in whole - history.trained - given_up if at[0] < max(history.epochs_seen)}
    assert left | history.trained | given_up | skipped_before == whole
    assert not left & (history.trained | given_up | skipped_before)
    assert ledger.is_finished
    assert ledger.samples_accounted == ledger.samples_planned


def everything_left(ledger: Ledger, settings: LedgerSettings, before: int) -> set[tuple[int, int, int]]:
    """Trains the pending positions with one new incarnation. No position and no lease may come twice, the first
    `before` ones included."""
    worker, left = ProcessId("worker", 7, 9), set[tuple[int, int, int]]()
    while not ledger.is_finished:
        if ledger.is_epoch_done:
            ledger.begin_epoch()
            continue
        lease = ledger.request(worker, 40.0)
        assert lease is not None
        places = {(lease.epoch, lease.unit, place) for place in range(lease.start, lease.stop)}
        assert not places & left
        left |= places
        assert lease.lease_id > before
        before = lease.lease_id
        assert ledger.progress(worker, lease.lease_id, lease.stop, lease.stop - lease.start, 0)
    return left


def test_new_leases_have_higher_numbers_than_all_before() -> None:
    ledger = ledger_of_applied(settings_of(20), records_of((5, 0, 0, 0, 4, 0)), next_lease_id=3)
    lease = ledger.request(ProcessId("worker", 0, 2), 0.0)
    assert lease is not None
    assert (lease.lease_id, lease.start) == (6, 4)


def test_bad_rows_before_a_committed_batch_count_and_those_at_the_end_are_granted_again() -> None:
    records = records_of((1, 0, 0, 4, 8, 0))
    records["skipped"] = 4  # positions 0 to 4 were all bad; the record of the batch after them contains them
    ledger = ledger_of_applied(settings_of(12), records)
    assert (ledger.trained, ledger.skipped, ledger.samples_accounted) == (4, 4, 8)
    lease = ledger.request(ProcessId("worker", 0, 2), 0.0)
    assert lease is not None
    assert (lease.start, lease.stop) == (8, 12)


def test_positions_without_a_record_in_a_finished_epoch_count_as_skipped() -> None:
    records = records_of((1, 0, 0, 0, 8, 0))
    ledger = ledger_of_applied(settings_of(10, epochs=2), records, epoch=1)
    assert (ledger.epoch, ledger.trained, ledger.skipped, ledger.samples_accounted) == (1, 8, 2, 10)


def test_after_an_early_stop_no_position_is_pending() -> None:
    records = records_of((1, 0, 0, 0, 8, 0))
    ledger = ledger_of_applied(settings_of(10, epochs=2), records, stopped_early=True)
    assert ledger.is_finished
    assert ledger.samples_planned == ledger.samples_accounted == 8


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([(1, 0, 0, 0, 4, 0), (2, 0, 0, 2, 6, 0)], "committed twice"),
        ([(1, 0, 0, 8, 12, 0)], "which the data lacks"),
        ([(1, 0, 1, 0, 4, 0)], "which the data lacks"),
        ([(1, 1, 0, 0, 4, 0)], "which the data lacks"),
    ],
)
def test_impossible_records_are_refused(batches: list[tuple[int, int, int, int, int, int]], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        ledger_of_applied(settings_of(10), records_of(*batches))


def test_a_position_both_trained_and_quarantined_is_refused() -> None:
    with pytest.raises(ProtocolError, match="committed twice"):
        ledger_of_applied(settings_of(10), records_of((1, 0, 0, 0, 4, 0)), (Quarantined(0, 0, 2, 6, 3),))


def test_a_range_left_out_of_a_step_counts_as_quarantined_not_as_skipped() -> None:
    records = records_of((1, 0, 0, 0, 8, 4))
    ledger = ledger_of_applied(settings_of(10), records, (Quarantined(0, 0, 4, 8, 3),))
    assert (ledger.trained, ledger.skipped, ledger.samples_quarantined, ledger.samples_accounted) == (4, 0, 4, 8)
