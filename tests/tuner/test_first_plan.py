"""`tuner.first_plan` of the job file: the size that a run gets, and the reason where it is not the requested size."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, as_array
from elastichost.tuner.first_plan import FirstPlanRequest, first_plan
from elastichost.tuner.policy.candidates import Bounds, contains, count
from elastichost.tuner.records import FirstPlanMade
from elastichost.tuner.replay import replay


def request(
    workers: int = 0,
    servers: int = 0,
    worker_cores: int = 0,
    *,
    most: tuple[int, int, int] = (16, 4, 8),
    least: tuple[int, int, int] = (1, 1, 1),
    setting: str | tuple[int, int] = "auto",
) -> FirstPlanRequest:
    """On eight cores."""
    return FirstPlanRequest(
        cores=tuple(range(8)),
        workers=setting,
        servers="auto",
        wished=Configuration(workers, servers, worker_cores, 0),
        bounds=Bounds(Configuration(*least), Configuration(*most), cores=8, oversubscription=2.0),
    )


def made(asked: FirstPlanRequest) -> tuple[tuple[int, int, int], str]:
    plan = first_plan(asked).plan
    return (len(plan.workers), len(plan.servers), plan.workers[0].threads), plan.reason


def test_a_requested_size_that_fits_is_used() -> None:
    size, reason = made(request(workers=2, servers=3, worker_cores=2))
    assert size == (2, 3, 2)
    assert reason == "as tuner.first_plan asks: 2 workers x 2 cores, 3 PS"


def test_a_requested_number_above_the_range_of_resources() -> None:
    size, reason = made(request(workers=32, most=(4, 4, 8), setting=(1, 4)))
    assert size[0] == 4
    assert reason == (
        "tuner.first_plan asks for workers = 32; the nearest allowed size is 4 workers, 1 PS: "
        "resources.workers allows 1 to 4 workers"
    )


def test_a_requested_number_above_the_bounds_where_resources_leave_it_open() -> None:
    size, reason = made(request(workers=2, servers=9))
    assert size[:2] == (2, 4)
    assert "asks for workers = 2, PS = 9" in reason
    assert "resources.servers is left open, which allows 1 to 4 PS on the 8 cores of the job" in reason


def test_requested_workers_and_threads_do_not_fit_on_the_cores() -> None:
    size, reason = made(request(workers=8, worker_cores=8))
    assert size[0] * size[2] <= 16
    assert "the requested workers and threads do not fit on the 8 cores of the job" in reason


def test_requested_numbers_take_precedence_over_open_numbers() -> None:
    """The cold start has eight workers. With four threads each they do not fit on eight cores; two workers do."""
    assert made(request(worker_cores=4)) == ((2, 1, 4), "as tuner.first_plan asks: 2 workers x 4 cores, 1 PS")


@pytest.mark.parametrize("asked", [3, 8])
def test_a_request_that_is_ignored_is_reported(asked: int) -> None:
    wish = request(workers=asked)
    wish = FirstPlanRequest(cores=wish.cores, workers="auto", servers="auto", wished=wish.wished, why_not_wished="off")
    size, reason = made(wish)
    assert size == (8, 1, 1)
    assert ("tuner.first_plan asks for workers = 3: off" in reason) == (asked == 3), "a cold start has 8 workers"


@given(st.integers(0, 40), st.integers(0, 9), st.integers(0, 20), st.integers(1, 20), st.integers(1, 6))
def test_the_reason_reports_a_different_size_exactly_when_there_is_one(
    workers: int, servers: int, worker_cores: int, most: int, most_servers: int
) -> None:
    asked = request(workers, servers, worker_cores, most=(most, most_servers, 8), setting=(1, most))
    assert asked.bounds is not None and count(asked.bounds)
    size, reason = made(asked)
    assert contains(asked.bounds, as_array([Configuration(*size)])).all()
    is_had = all(wish in (0, number) for wish, number in zip((workers, servers, worker_cores), size, strict=True))
    assert reason.startswith("as tuner.first_plan asks") == is_had


# --- resumed runs -----------------------------------------------------------------------------------------------------


def resumed(ended: Configuration, *, was_asked: bool = False, **wish: int) -> FirstPlanRequest:
    asked = request(**wish)
    return msgspec.structs.replace(asked, ended=ended, ended_bounds=asked.bounds, was_asked=was_asked)


def test_a_resumed_run_starts_with_its_last_size() -> None:
    assert made(resumed(Configuration(3, 2, 2), workers=1)) == (
        (3, 2, 2),
        "same size as before the run was resumed: 3 workers x 2 cores, 2 PS",
    )
    found = first_plan(resumed(Configuration(5, 1), was_asked=True))
    assert found.is_asked and found.plan.reason == (
        "same size as before the run was resumed, requested with `scale`: 5 workers, 1 PS"
    )


def test_a_last_size_that_no_longer_fits_is_reported() -> None:
    found = first_plan(resumed(Configuration(20, 1), was_asked=True, workers=2))
    assert not found.is_asked
    assert len(found.plan.workers) == 2
    assert "as tuner.first_plan asks: 2 workers, 1 PS (not 20 workers, 1 PS as before the run was resumed: " in (
        found.plan.reason
    )
    assert "which allows 1 to 16 workers" in found.plan.reason
    assert "the requested workers and threads do not fit" in made(resumed(Configuration(8, 1, 8)))[1]


@pytest.mark.parametrize("ended", [Configuration(3, 2, 2), Configuration(20, 1)])
def test_the_first_plan_of_a_resumed_run_is_replayed_from_its_record(ended: Configuration) -> None:
    asked = resumed(ended)
    record = msgspec.json.decode(msgspec.json.encode(FirstPlanMade(asked, first_plan(asked).plan)), type=FirstPlanMade)
    assert [one.is_same for one in replay([record])] == [True]
