"""The load of the PS from recorded looks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.reporting.run.heat import MOST_POINTS, HeatFolder
from elastichost.tuner.records import BalanceLooked
from tests.effort import examples

OWNERS = ((0, 0, 0), (0, 1, 1), (1, 0, 1))


def look(asked: tuple[tuple[int, int, float], ...], **facts: object) -> BalanceLooked:
    """A look at the load of the PS. asked: (table, bucket, keys that workers requested)."""
    known = {"now_s": 0.0, "owners": None, "speeds": {0: 1.0, 1: 1.0}, "busiest": 0.5, "kind": "balanced", **facts}
    return BalanceLooked(asked=asked, **known)  # type: ignore[arg-type]


def test_shares_follow_the_owners() -> None:
    folder = HeatFolder()
    folder.looked(look(((0, 0, 30.0), (0, 1, 10.0)), owners=OWNERS), 1.0)
    folder.looked(look(((1, 0, 10.0),), moves=((1, 0, 0),)), 2.0)
    folder.looked(look(((1, 0, 10.0),), owners=((0, 0, 0), (0, 1, 1), (1, 0, 0))), 3.0)
    heat = folder.heat()
    assert heat is not None
    assert heat.at_s == (1.0, 2.0, 3.0)
    assert heat.shares == ((0.75, 0.0, 1.0), (0.25, 1.0, 0.0))
    assert heat.moves == ((2.0, 1),)
    assert [(one.table, one.bucket, one.server) for one in heat.hottest] == [(0, 0, 0), (1, 0, 0), (0, 1, 1)]
    assert heat.hottest[0].share == 0.5


def test_a_ps_that_fewer_workers_use_has_less_load() -> None:
    folder = HeatFolder()
    folder.looked(look(((0, 0, 30.0), (0, 1, 10.0)), owners=OWNERS, speeds={0: 2.0, 1: 1.0}), 1.0)
    heat = folder.heat()
    assert heat is not None
    assert heat.shares == ((0.6,), (0.4,))


def test_without_requests_there_is_no_heat() -> None:
    folder = HeatFolder()
    assert folder.heat() is None
    folder.looked(look((), owners=OWNERS), 1.0)
    assert folder.heat() is None


def test_moves_that_were_not_begun_are_left_out() -> None:
    folder = HeatFolder()
    folder.looked(look(((0, 0, 1.0),), owners=OWNERS, moves=((0, 0, 1),), was_begun=False), 1.0)
    heat = folder.heat()
    assert heat is not None
    assert heat.moves == ()


@settings(max_examples=examples(25))
@given(st.integers(1, 5 * MOST_POINTS), st.floats(0.1, 0.9))
def test_any_number_of_looks_becomes_a_figure(count: int, share: float) -> None:
    folder = HeatFolder()
    for number in range(count):
        folder.looked(look(((0, 0, share), (0, 1, 1.0 - share)), owners=OWNERS), float(number))
    heat = folder.heat()
    assert heat is not None
    assert len(heat.at_s) <= 2 * MOST_POINTS
    assert list(heat.at_s) == sorted(heat.at_s)
    assert heat.shares[0] == pytest.approx([share] * len(heat.at_s))
