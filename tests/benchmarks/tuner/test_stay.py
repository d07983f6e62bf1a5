"""The `stay` benchmarks: their figures follow from their runs."""

from __future__ import annotations

import pytest

from benchmarks.tuner import stay
from benchmarks.tuner.search.world import Costs
from benchmarks.tuner.stay_live import Course, rows_of, visits_of
from benchmarks.tuner.stay_worlds import RETAIL
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.profile import ProfileSample
from elastichost.tuner.records import TunerLooked

TWO, ONE = Configuration(2, 1), Configuration(1, 1)


def test_the_retail_job_is_as_fast_as_it_was_measured() -> None:
    truth = RETAIL.truth(Costs())
    assert truth.speed(TWO) == pytest.approx(410_000.0)
    assert truth.speed(ONE) == pytest.approx(214_000.0)
    assert truth.speed(Configuration(3, 1)) < truth.speed(TWO)


def test_runs_in_a_known_world() -> None:
    best, bad = (stay.stay_of(RETAIL, start, "unlike", 0) for start in stay.STARTS)
    assert best.until_s == 0.0 and best.final == pytest.approx(1.0)
    assert bad.changes >= 1 and bad.slowest > 0.9
    found = stay.summary_of([best, bad])
    assert found.runs == 2 and found.calm in (0.5, 1.0)


def course(start: str, rates: tuple[float, ...], *visits: tuple[float, str]) -> Course:
    return Course(start, "empty", rates, visits)


def test_live_rows_count_the_slowest_window_against_those_before_the_first_change() -> None:
    calm = course("best", (50.0, 100.0, 104.0, 96.0, 100.0, 100.0, 100.0, 100.0), (0.0, "2x1"))
    wandering = course("best", (50.0, 100.0, 100.0, 50.0, 100.0, 100.0, 100.0, 100.0), (0.0, "2x1"), (16.0, "1x1"))
    mended = course("bad", (30.0, 40.0, 97.0, 98.0, 100.0, 100.0, 100.0, 100.0), (0.0, "1x4"), (9.0, "2x1"))
    best, bad = rows_of([calm, wandering, mended])
    assert (best.calm, best.runs, best.changes) == (1, 2, (0, 1))
    assert best.slowest == pytest.approx((0.96, 0.5))
    assert bad.until_s == (10.0,) and bad.final == pytest.approx((1.0,))


def test_visits_are_read_from_looks() -> None:
    looks = [(0.5, TWO), (1.0, TWO), (1.5, None), (2.0, ONE), (2.5, TWO)]
    records = [TunerLooked(ProfileSample(at_s, plan, True, 0), 0) for at_s, plan in looks]
    assert visits_of(records, 0.5) == ((0.0, "2x1"), (1.5, "1x1"), (2.0, "2x1"))
