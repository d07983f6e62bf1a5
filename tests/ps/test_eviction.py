"""Dropped rows' places wait until no worker can still hold them."""

from __future__ import annotations

from elastichost.ps.eviction import GRACE_BATCHES, EvictionRounds
from elastichost.specs import TableSpec


def table(index: int, age: int) -> TableSpec:
    name = f"t{index}"
    return TableSpec(name, index, (name,), "int", rows=0, evict_after_samples=age)


def test_only_tables_with_an_age_have_rounds_and_at_most_a_quarter_late() -> None:
    rounds = EvictionRounds([table(0, 0), table(1, 1000)])
    assert rounds.due(999) == ()
    assert rounds.due(1000) == (1,)
    assert rounds.due(1249) == ()
    assert rounds.due(1250) == (1,)


def test_grace_lasts_until_every_worker_went_on_far_enough() -> None:
    rounds = EvictionRounds([table(0, 10)])
    assert not rounds.grace_is_over({})
    rounds.begin_grace({0: (1, 5), 1: (1, 9)})
    rounds.begin_grace({0: (1, 7), 1: (1, 11)})  # one is under way
    assert not rounds.grace_is_over({0: (1, 5 + GRACE_BATCHES), 1: (1, 10)})
    assert rounds.grace_is_over({0: (1, 5 + GRACE_BATCHES), 1: (1, 9 + GRACE_BATCHES)})
    assert not rounds.grace_is_over({0: (1, 99), 1: (1, 99)})


def test_a_replaced_or_gone_worker_ends_its_grace() -> None:
    rounds = EvictionRounds([table(0, 10)])
    rounds.begin_grace({0: (1, 5), 1: (1, 9)})
    assert rounds.grace_is_over({0: (2, 0)})


def test_an_age_that_changes_brings_the_next_round_at_once() -> None:
    rounds = EvictionRounds([table(0, 0), table(1, 100_000)])
    rounds.set_age(0, 1000)
    assert rounds.due(999) == ()
    assert rounds.due(5000) == (0,)
    rounds.set_age(0, 1000)
    assert rounds.due(5249) == ()
    rounds.set_age(0, 4000)
    assert rounds.due(5249) == (0,)
    assert rounds.due(6248) == ()
    rounds.set_age(1, 5000)
    assert rounds.due(6248) == (1,)
    rounds.set_age(0, 0)
    rounds.set_age(1, 0)
    assert rounds.due(1 << 40) == ()
    rounds.set_age(0, 0)
