"""The decisions of a fault proxy: which messages it drops, duplicates, delays or corrupts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.chaos.faults.message_faults import Link, MessageRates, Partition, decide, is_cut, parse_rates, spoil
from elastichost.errors import ConfigError

LINK = Link("worker-0.1", "server-0.1")


def test_rates_are_shares_of_the_messages() -> None:
    rates = MessageRates(drop=0.1, duplicate=0.2, corrupt=0.05)
    counts = Counter(decide(3, LINK, number, "PullMsg", rates) for number in range(20_000))
    assert counts["drop"] == pytest.approx(2000, rel=0.1)
    assert counts["duplicate"] == pytest.approx(4000, rel=0.1)
    assert counts["corrupt"] == pytest.approx(1000, rel=0.15)
    assert counts["pass"] == 20_000 - counts["drop"] - counts["duplicate"] - counts["corrupt"]


def test_a_decision_is_a_function_of_seed_link_and_number() -> None:
    rates = MessageRates(drop=0.5)
    first = [decide(3, LINK, number, "PullMsg", rates) for number in range(100)]
    assert first == [decide(3, LINK, number, "PullMsg", rates) for number in range(100)]
    assert first != [decide(4, LINK, number, "PullMsg", rates) for number in range(100)]
    assert first != [decide(3, Link(*reversed(LINK)), number, "PullMsg", rates) for number in range(100)]


def test_only_the_named_types_are_hit() -> None:
    rates = parse_rates("drop=1,only=PullMsg+PulledMsg")
    assert decide(0, LINK, 0, "PulledMsg", rates) == "drop"
    assert decide(0, LINK, 0, "PushMsg", rates) == "pass"


@given(st.integers(0, 1000), st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_a_corrupted_message_differs_in_one_bit_and_a_truncated_one_is_shorter(number: int, parts: list[bytes]) -> None:
    corrupted = spoil(1, LINK, number, "corrupt", parts)
    truncated = spoil(1, LINK, number, "truncate", parts)
    if not any(parts):
        assert corrupted == truncated == parts
        return
    assert [len(part) for part in corrupted] == [len(part) for part in parts]
    before, after = b"".join(parts), b"".join(corrupted)
    assert sum((one ^ two).bit_count() for one, two in zip(before, after, strict=True)) == 1
    assert sum(map(len, truncated)) < len(before)


def test_a_partition_is_one_way_and_ends_at_its_end() -> None:
    partitions = [Partition("worker", "server", 10.0, 12.0)]
    assert is_cut(partitions, LINK, 11.0)
    assert not is_cut(partitions, Link(*reversed(LINK)), 11.0)
    assert not is_cut(partitions, LINK, 12.0)
    assert not is_cut(partitions, Link("worker-0.1", "supervisor"), 11.0)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("dorp=0.1", 'did you mean "drop"'),
        ("drop=2", "from 0 to 1"),
        ("drop=x", "from 0 to 1"),
        ("drop=0.6,delay=0.6", "more"),
    ],
)
def test_wrong_rates_are_refused_with_the_reason(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_rates(setting)
