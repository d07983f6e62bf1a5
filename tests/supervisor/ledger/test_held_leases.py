"""The leases that workers hold, against a plain list of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.plan import ProcessId
from elastichost.supervisor.ledger.held_leases import HeldLease, HeldLeases
from elastichost.supervisor.ledger.state import Span
from elastichost.wire.facts import Lease

WORKERS = [ProcessId("worker", index, incarnation) for index in range(3) for incarnation in (1, 2)]


def held(worker: ProcessId, lease_id: int, failures: int = 0) -> HeldLease:
    start = 100 * lease_id
    return HeldLease(Lease(lease_id, epoch=0, unit=7, start=start, stop=start + 100), worker, failures, start)


@given(st.lists(st.one_of(st.sampled_from(WORKERS), st.integers(0, 30)), max_size=60))
def test_it_answers_as_a_list_of_all_leases_does(steps: list[ProcessId | int]) -> None:
    """A worker in `steps` gets a lease; a number takes one of the leases away."""
    leases, model = HeldLeases(), list[HeldLease]()
    for lease_id, step in enumerate(steps, 1):
        if isinstance(step, ProcessId):
            model.append(held(step, lease_id))
            leases.add(model[-1])
        elif model:
            leases.remove(model.pop(step % len(model)))
        assert bool(leases) == bool(model)
        assert leases.in_order() == model
        assert set(leases.workers()) == {one.worker for one in model}
        for worker in WORKERS:
            assert leases.of(worker) == tuple(one for one in model if one.worker == worker)
            assert leases.count(worker) == len(leases.of(worker))
    for one in model:
        assert leases.find(one.worker, one.lease.lease_id) is one


def test_another_incarnation_does_not_hold_the_lease() -> None:
    leases = HeldLeases()
    leases.add(one := held(WORKERS[0], 1))
    assert leases.find(WORKERS[1], 1) is None
    leases.remove(one)
    with pytest.raises(KeyError):
        leases.remove(one)


def test_failures_stay_with_the_first_batch_only() -> None:
    one = held(WORKERS[0], 1, failures=2)
    assert one.rest == Span(7, 100, 200, 2)
    one.applied_stop = 150
    assert one.rest == Span(7, 150, 200, 0)
