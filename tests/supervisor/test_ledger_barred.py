"""Positions that a roll-back has barred are never granted and are counted once; no other position is affected."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.errors import IllegalTransitionError, SampleRange
from elastichost.plan import ProcessId
from elastichost.runs.facts import Quarantined
from elastichost.supervisor.ledger.ledger import Ledger, LedgerSettings
from elastichost.wire.facts import Lease

A, B = ProcessId("worker", 0, 1), ProcessId("worker", 1, 1)
Position = tuple[int, int, int]  # (epoch, unit, position)

ranges = st.builds(
    lambda epoch, unit, start, size: SampleRange(epoch, unit, start, start + size),
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(0, 50),
    st.integers(1, 30),
)


def train(ledger: Ledger, until: int = 10**9) -> list[Position]:
    """Trains until `until` samples are accounted for. Returns the positions of every finished lease, in order."""
    trained: list[Position] = []
    while ledger.samples_accounted < until:
        leases: list[tuple[ProcessId, Lease]] = []
        for worker in (A, B):
            while (lease := ledger.request(worker, 40.0)) is not None:
                leases.append((worker, lease))
        for worker, lease in leases:
            assert ledger.progress(worker, lease.lease_id, lease.stop, lease.stop - lease.start, 0)
            trained += [(lease.epoch, lease.unit, place) for place in range(lease.start, lease.stop)]
        if not ledger.is_epoch_done:
            continue
        if ledger.is_finished:
            break
        ledger.begin_epoch()
    for worker in (A, B):
        ledger.give_back(worker)
    return trained


def positions(entries: tuple[Quarantined, ...] | list[SampleRange]) -> list[Position]:
    """All positions of ranges."""
    return [(e.epoch, e.unit, place) for e in entries for place in range(e.start, e.stop)]


@given(
    units=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    barred=st.lists(ranges, max_size=4),
    before=st.integers(0, 200),
    order=st.sampled_from(["file", "shuffle_groups"]),
    again=st.booleans(),
)
def test_barred_positions_are_counted_once_and_all_others_trained(
    units: list[int], barred: list[SampleRange], before: int, order: str, again: bool
) -> None:
    settings = LedgerSettings(tuple(units), epochs=2, batch_size=8, order=order)  # type: ignore[arg-type]
    first = Ledger(settings)
    trained = train(first, before)
    ledger = Ledger.from_state(settings, first.state())
    ledger.bar(barred)
    if again:
        ledger.bar(barred)  # barring twice has the same effect as once
    reported = list(ledger.newly_barred())
    trained += train(ledger)
    reported += ledger.newly_barred()
    everything = {(e, u, place) for e in range(2) for u, size in enumerate(units) for place in range(size)}
    given_up = positions(ledger.quarantined)
    assert sorted(trained + given_up) == sorted(everything)
    assert tuple(reported) == ledger.quarantined
    assert set(given_up) == (set(positions(barred)) & everything) - set(trained[: first.trained])
    assert ledger.samples_accounted == ledger.samples_planned
    assert ledger.newly_barred() == ()


def test_leases_in_order_skip_barred_positions_and_stay_in_order() -> None:
    ledger = Ledger(LedgerSettings((30, 30), epochs=1, batch_size=10, in_order=True))
    ledger.bar([SampleRange(0, 0, 10, 20), SampleRange(0, 1, 0, 30)])
    leases: list[Lease] = []
    while not ledger.is_epoch_done:
        lease = ledger.request(A, 10.0)
        assert lease is not None or ledger.is_epoch_done
        if lease is not None:
            leases.append(lease)
            ledger.progress(A, lease.lease_id, lease.stop, lease.stop - lease.start, 0)
    assert [(lease.unit, lease.start, lease.stop) for lease in leases] == [(0, 0, 10), (0, 20, 30)]
    assert all(before.lease_id < after.lease_id for before, after in pairwise(leases))
    assert ledger.samples_quarantined == 40


def test_no_position_can_be_barred_while_leases_are_outstanding() -> None:
    ledger = Ledger(LedgerSettings((30,), epochs=1, batch_size=10))
    ledger.request(A, 10.0)
    with pytest.raises(IllegalTransitionError, match="bar positions"):
        ledger.bar([SampleRange(0, 0, 0, 10)])
