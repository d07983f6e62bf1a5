"""What is told of a source with a trouble, and when it is given up."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets.sources.patience import (
    TELL_EVERY_S,
    SourceHealth,
    failed,
    is_given_up,
    received,
)

STEPS = st.lists(st.tuples(st.sampled_from(["fail", "byte"]), st.floats(0.0, 30.0)), max_size=60)


@given(steps=STEPS)
def test_every_told_trouble_is_followed_by_at_most_one_recovery_and_nothing_is_told_too_often(
    steps: list[tuple[str, float]],
) -> None:
    health, now_s = SourceHealth(100.0), 100.0
    told: list[tuple[str, float]] = []
    for step, pause_s in steps:
        now_s += pause_s
        if step == "fail":
            health, is_told = failed(health, now_s)
            told += [("trouble", now_s)] * is_told
        else:
            health, ended = received(health, now_s)
            if ended is not None:
                told.append(("recovered", now_s))
                assert ended.failures > 0
            assert not health.is_failing
    kinds = [kind for kind, _ in told]
    assert kinds[:1] in ([], ["trouble"])
    assert all(pair != ("recovered", "recovered") for pair in pairwise(kinds))
    troubles = [at_s for kind, at_s in told if kind == "trouble"]
    assert all(after - before >= TELL_EVERY_S for before, after in pairwise(troubles))


def test_a_source_that_gives_bytes_is_never_given_up() -> None:
    health, _ = failed(SourceHealth(0.0), 5.0)
    assert is_given_up(health, 5.0, 5.0) and not is_given_up(health, 5.0, 6.0)
    health, ended = received(health, 7.0)
    assert ended is not None and (ended.worst_s, ended.failures) == (7.0, 1)
    assert not is_given_up(health, 1000.0, 5.0)
