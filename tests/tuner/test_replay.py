"""A record replays to the same decisions; an altered record, or one made by different code, does not."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.history.features import Estimates
from elastichost.plan import ProcessId
from elastichost.tuner.first_plan import FirstPlanRequest, first_plan
from elastichost.tuner.health import HealthSettings, HealthState, WorkerSpeed, observe
from elastichost.tuner.memory.facts import HostMemorySample, MemorySample
from elastichost.tuner.memory.forecast import begin
from elastichost.tuner.memory.forecast import decide as decide_memory
from elastichost.tuner.placement.heat import HeatState, fold
from elastichost.tuner.placement.rebalance import BalanceState, Rebalance, decide
from elastichost.tuner.records import (
    BalanceLooked,
    BalanceOpened,
    FirstPlanMade,
    HealthLooked,
    HealthOpened,
    MemoryLooked,
    MemoryOpened,
    Record,
    moves_of,
)
from elastichost.tuner.replay import replay

SETTINGS = HealthSettings(after_s=5.0)


def health_records(slow: float) -> list[Record]:
    speeds = tuple(
        WorkerSpeed(ProcessId("worker", index, 1), rate, rate, has_work=True)
        for index, rate in enumerate((100.0, 100.0, slow))
    )
    state, records = HealthState(), list[Record]([HealthOpened(SETTINGS)])
    for now_s in range(10):
        state, remarks = observe(state, speeds, SETTINGS, float(now_s))
        records.append(HealthLooked(float(now_s), speeds, remarks))
    return records


def balance_records() -> list[Record]:
    owners = {(0, bucket): bucket % 2 for bucket in range(8)}
    asked = {(0, 0): 500.0, (0, 2): 400.0, (0, 1): 50.0}
    heat, state = HeatState(), BalanceState()
    records: list[Record] = [BalanceOpened(6.0)]
    for turn in range(3):
        now_s = 3.0 * turn
        heat = fold(heat, asked, now_s, 6.0)
        state, decision = decide(state, heat.heat, owners, {0: 1.0, 1: 1.0}, 0.9, now_s)
        moves = moves_of(decision, owners) if isinstance(decision, Rebalance) else ()
        records.append(
            BalanceLooked(
                now_s,
                tuple((*key, count) for key, count in asked.items()),
                tuple((*key, owner) for key, owner in owners.items()) if turn == 0 else None,
                {0: 1.0, 1: 1.0},
                0.9,
                "moved" if isinstance(decision, Rebalance) else decision.kind,
                moves,
            )
        )
    return records


def test_a_replacement_is_replayed() -> None:
    found = list(replay(health_records(10.0)))
    assert [one.is_same for one in found] == [True]
    assert "worker-2.1 replaced" in found[0].recorded


def test_a_record_without_decisions_replays_to_none() -> None:
    assert not list(replay(health_records(95.0)))


def test_a_missing_and_an_additional_decision_are_reported_as_different() -> None:
    records = health_records(10.0)
    at = next(i for i, one in enumerate(records) if isinstance(one, HealthLooked) and one.remarks)
    records[at] = msgspec.structs.replace(records[at], remarks=())
    found = list(replay(records))
    assert [(one.is_same, one.recorded) for one in found] == [(False, "")]


def test_moves_of_buckets_are_replayed() -> None:
    records = balance_records()
    at = next(i for i, one in enumerate(records) if isinstance(one, BalanceLooked) and one.moves)
    assert all(one.is_same for one in replay(records))
    records[at] = msgspec.structs.replace(records[at], moves=((0, 5, 0),))
    assert not all(one.is_same for one in replay(records))


def test_the_first_plan_is_replayed() -> None:
    request = FirstPlanRequest(cores=(0, 1), workers=(1, 4), servers=1)
    record = FirstPlanMade(request, first_plan(request).plan)
    [found] = replay([record])
    assert found.is_same
    [other] = replay([FirstPlanMade(msgspec.structs.replace(request, cores=(0, 1, 2)), record.plan)])
    assert not other.is_same


def test_a_sample_of_a_part_that_was_not_opened() -> None:
    with pytest.raises(ValueError, match="line 1: HealthLooked comes before the record that opens its part"):
        list(replay(health_records(10.0)[1:]))


def test_a_resumed_run_opens_its_parts_again() -> None:
    once = health_records(10.0)
    assert [one.is_same for one in replay([*once, *once])] == [True, True]


def memory_records(known: Estimates) -> list[Record]:
    """A job with memory that grows by 20 MB per second towards its budget."""
    state, records = begin(known), list[Record]([MemoryOpened(known)])
    for second in range(1, 60):
        made = 2e7 * second
        host = HostMemorySample(0, 2 * 10**9, 10**9 + int(made), made, 1.0)
        look = MemorySample(second * 10**4, 10**7, 1e4, made, 200.0, made, 0.0, (host,), ("evict",))
        state, decision = decide_memory(state, look, float(second))
        records.append(MemoryLooked(float(second), look, decision))
    return records


KNOWN = Estimates({"rows_by_1e6_samples": 16.1, "beta": -0.01}, {"rows_by_1e6_samples": 0.1, "beta": 0.05})


@pytest.mark.parametrize("known", [Estimates(), KNOWN])
def test_memory_decisions_are_replayed_with_the_recorded_estimates(known: Estimates) -> None:
    records = memory_records(known)
    found = list(replay(records))
    assert found and all(one.part == "memory" and one.is_same for one in found)
    assert found[0].recorded.startswith("evict")


def test_the_estimates_are_part_of_the_record() -> None:
    """With an estimate of the growth, the forecast looks farther ahead from the beginning."""
    records = [MemoryOpened(KNOWN), *memory_records(Estimates())[1:]]
    assert not all(one.is_same for one in replay(records))


def test_a_record_of_an_earlier_version_has_no_estimates() -> None:
    assert msgspec.json.decode(b'{"type":"MemoryOpened"}', type=MemoryOpened) == MemoryOpened()
