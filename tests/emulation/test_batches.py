"""How leases are cut into batches, and what an emulated worker reads of those that wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastichost.batches import largest_batch
from elastichost.emulation.batches import EmulatedBatch, LeaseCutter
from elastichost.wire.facts import Lease
from elastichost.worker.pipeline import LeaseFinished


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 300)), max_size=5), st.integers(1, 64))
def test_every_position_comes_once_in_order_and_each_lease_ends(spans: list[tuple[int, int]], batch_size: int) -> None:
    cutter, leases = LeaseCutter(batch_size), list[Lease]()
    for number, (start, count) in enumerate(spans):
        leases.append(Lease(number + 1, 0, number, start, start + count))
        cutter.add(leases[-1], None)
    for lease in leases:
        at = lease.start
        while isinstance(one := cutter.get(), EmulatedBatch):
            assert (one.lease, one.start) == (lease, at)
            assert 0 < one.samples <= largest_batch(batch_size)
            at = one.stop
        assert (at, one) == (lease.stop, LeaseFinished(lease))
    assert cutter.is_idle and cutter.get() is None and cutter.head is None


def test_a_lease_waits_until_its_first_batch_is_taken() -> None:
    cutter = LeaseCutter(10)
    cutter.add(Lease(1, 0, 0, 0, 20), None)
    cutter.add(Lease(2, 0, 0, 20, 30), None)
    seen = [cutter.leases_waiting]
    while cutter.get() is not None:
        seen.append(cutter.leases_waiting)
    assert seen == [2, 1, 1, 1, 0, 0]


def test_the_next_batch_may_be_of_the_next_lease() -> None:
    cutter = LeaseCutter(10)
    cutter.add(Lease(1, 0, 0, 0, 10), None)
    cutter.add(Lease(2, 0, 0, 10, 30), None)
    cutter.get()
    assert cutter.head == LeaseFinished(Lease(1, 0, 0, 0, 10))
    assert cutter.next_batch == EmulatedBatch(Lease(2, 0, 0, 10, 30), 10, 20)
    cutter.discard()
    assert cutter.next_batch is None and cutter.is_idle
