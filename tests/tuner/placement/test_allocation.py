"""Jobs that share a host or a cluster: their options fit, every job gets one, short jobs come first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import (
    Capacity,
    JobId,
    JobOptions,
    Option,
    OptionArray,
    allocate,
    exact,
    total_value,
    weighted_greedy,
)
from elastichost.tuner.placement.knapsack import GAP
from tests.effort import examples

WAYS: dict[str, Callable[[list[JobOptions], Capacity], Mapping[JobId, int]]] = {
    "greedy": weighted_greedy,
    "exact": lambda jobs, capacity: exact(jobs, capacity, time_limit_s=30.0),
    "allocate": lambda jobs, capacity: allocate(jobs, capacity, time_limit_s=30.0).choices,
}
anyhow = pytest.mark.parametrize("way", sorted(WAYS))


def option(cores: int, samples_per_s: float, memory_bytes: int = 0) -> Option:
    return Option(Configuration(cores, 1), samples_per_s, cores, memory_bytes)


def saturating(job: JobId, remaining: float, power: float = 0.5, current: int | None = None) -> JobOptions:
    """A job with the speed cores ** power for 1 to 16 cores."""
    return JobOptions(job, remaining, tuple(option(cores, cores**power) for cores in range(1, 17)), current)


def taken(jobs: list[JobOptions], choices: Mapping[JobId, int]) -> tuple[int, int]:
    chosen = [job.options[choices[job.job]] for job in jobs if job.job in choices]
    return sum(one.cores for one in chosen), sum(one.memory_bytes for one in chosen)


@st.composite
def all_jobs(draw: st.DrawFn) -> list[JobOptions]:
    made = []
    for name in range(draw(st.integers(0, 5))):
        numbers = st.tuples(st.integers(1, 9), st.integers(0, 100), st.integers(0, 9))
        options = tuple(option(*one) for one in draw(st.lists(numbers, max_size=5)))
        current = draw(st.none() | st.integers(0, len(options) - 1)) if options else None
        remaining = draw(st.sampled_from([0.0, 10.0, 1e3, 1e6]))
        job: JobId = name if draw(st.booleans()) else f"job-{name}"
        made.append(JobOptions(job, remaining, options, current, draw(st.sampled_from([0.0, 1.0, 3.0]))))
    return made


capacities = st.builds(Capacity, st.integers(0, 40), st.integers(0, 40))


@anyhow
@settings(max_examples=examples(60), deadline=None)
@given(all_jobs(), capacities, st.randoms(use_true_random=False))
def test_the_choice_fits_and_does_not_depend_on_the_order(
    way: str, jobs: list[JobOptions], capacity: Capacity, random: object
) -> None:
    choices = WAYS[way](jobs, capacity)
    cores, memory = taken(jobs, choices)
    assert cores <= (capacity.cores or math.inf)
    assert memory <= (capacity.memory_bytes or math.inf)
    assert all(0 <= at < len(job.options) for job in jobs if (at := choices.get(job.job)) is not None)
    assert WAYS[way](jobs[::-1], capacity) == choices
    shuffled = jobs.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert WAYS[way](shuffled, capacity) == choices


@settings(max_examples=examples(100), deadline=None)
@given(all_jobs(), capacities)
def test_every_job_gets_an_option_if_the_cheapest_fit_else_running_jobs_first(
    jobs: list[JobOptions], capacity: Capacity
) -> None:
    def least(job: JobOptions) -> Option:
        return min(job.options, key=lambda one: (one.cores, one.memory_bytes))

    def fit(some: list[JobOptions]) -> bool:
        cores, memory = sum(least(job).cores for job in some), sum(least(job).memory_bytes for job in some)
        return cores <= (capacity.cores or math.inf) and memory <= (capacity.memory_bytes or math.inf)

    asking = [job for job in jobs if job.options]
    choices = weighted_greedy(jobs, capacity)
    assert set(choices) == set(exact(jobs, capacity, time_limit_s=30.0))
    if fit(asking):
        assert set(choices) == {job.job for job in asking}
    running = [job for job in asking if job.current is not None]
    if fit(running):
        assert set(choices) >= {job.job for job in running}


@settings(max_examples=examples(100), deadline=None)
@given(all_jobs(), capacities)
def test_exact_is_the_best_of_all_choices(jobs: list[JobOptions], capacity: Capacity) -> None:
    best, quick = exact(jobs, capacity, time_limit_s=30.0), weighted_greedy(jobs, capacity)
    assert total_value(jobs, best) >= total_value(jobs, quick)
    served = [job for job in jobs if job.job in best]
    values = []
    for picks in itertools.product(*(range(len(job.options)) for job in served)):
        choices = {job.job: at for job, at in zip(served, picks, strict=True)}
        cores, memory = taken(jobs, choices)
        if cores <= (capacity.cores or math.inf) and memory <= (capacity.memory_bytes or math.inf):
            values.append(total_value(jobs, choices))
    assert total_value(jobs, best) >= max(values) * (1 - GAP)


def test_the_place_of_a_configuration_among_options() -> None:
    rows = [Configuration(1, 1), Configuration(2, 1, 3), Configuration(2, 1, 3), Configuration(2, 3, 1)]
    options = OptionArray.of([Option(one, 1.0, one.cores) for one in rows])
    assert [options.place_of(one) for one in rows] == [0, 1, 1, 3]
    assert options.place_of(Configuration(3, 1)) is None


def test_the_value_of_a_choice() -> None:
    """weight / T^0.5 * (speed - speed of the least) / speed of the least; T = remaining / speed of the least."""
    job = JobOptions("a", 4000.0, (option(4, 30.0), option(1, 10.0), option(1, 9.0, 5)), weight=2.0)
    assert [total_value([job], {"a": at}) for at in range(3)] == pytest.approx([2 / 20 * 2, 0.0, 0.0])
    running = JobOptions("a", 4000.0, job.options, current=0, weight=2.0)
    assert total_value([running], {"a": 0}) == pytest.approx(2 / 20 * (30 * 1.02 - 10) / 10)
    assert total_value([job, running], {}) == 0.0


@anyhow
def test_equal_jobs_share_equally_and_the_shorter_one_gets_more(way: str) -> None:
    capacity = Capacity(16)
    even = WAYS[way]([saturating("a", 1e4), saturating("b", 1e4)], capacity)
    assert even == {"a": 7, "b": 7}
    uneven = WAYS[way]([saturating("a", 1e4), saturating("b", 1e6)], capacity)
    assert uneven["a"] > 10 > uneven["b"]
    weighted = WAYS[way](
        [saturating("a", 1e4), JobOptions("b", 1e4, saturating("b", 1e4).options, weight=3.0)], capacity
    )
    assert weighted["b"] > weighted["a"]
    assert sum(uneven.values()) + 2 == sum(weighted.values()) + 2 == 16, "no core is idle"


@anyhow
def test_alone_a_job_gets_its_fastest_option_that_fits(way: str) -> None:
    job = JobOptions(7, 1e5, (option(1, 5.0), option(8, 30.0, 10), option(6, 30.0, 9), option(4, 29.0, 2)))
    assert WAYS[way]([job], Capacity(0)) in ({7: 1}, {7: 2})
    assert WAYS[way]([job], Capacity(7)) == {7: 2}
    assert WAYS[way]([job], Capacity(7, 8)) == {7: 3}
    assert WAYS[way]([job], Capacity(3, 8)) == {7: 0}
    assert WAYS[way]([JobOptions(7, 1e5, (option(4, 5.0),))], Capacity(3)) == {}
    assert WAYS[way]([JobOptions(7, 1e5, ())], Capacity(3)) == {}
    assert WAYS[way]([], Capacity(3)) == {}


@anyhow
def test_cores_without_effect_are_not_used(way: str) -> None:
    job = JobOptions("a", 1e5, (option(1, 10.0), option(4, 20.0), option(8, 20.0), option(16, 15.0)))
    assert WAYS[way]([job], Capacity(16)) == {"a": 1}


@anyhow
def test_a_running_option_is_kept_for_a_gain_below_two_percent(way: str) -> None:
    options = (option(1, 10.0), option(4, 20.0), option(5, 20.3), option(6, 20.5))
    assert WAYS[way]([JobOptions("a", 1e5, options, current=2)], Capacity(8)) == {"a": 2}
    assert WAYS[way]([JobOptions("a", 1e5, options, current=1)], Capacity(8)) == {"a": 3}


def test_if_not_all_fit_short_jobs_start_and_running_jobs_continue() -> None:
    jobs = [saturating("long", 1e6), saturating("short", 1e2), saturating("runs", 1e9, current=3)]
    choices = weighted_greedy(jobs, Capacity(2))
    assert set(choices) == {"short", "runs"}
    told = allocate(jobs, Capacity(2))
    assert told.reason == "2 of 3 jobs run on 2 of 2 cores; 0 of 1 keep their size; exact choice"
    assert told.is_exact


def test_exact_finds_a_choice_that_greedy_steps_miss() -> None:
    """After a small upgrade with the better ratio, the large one no longer fits."""
    small = JobOptions("small", 1e4, (option(1, 10.0), option(2, 16.0)))
    large = JobOptions("large", 1e4, (option(1, 10.0), option(8, 50.0)))
    capacity = Capacity(9)
    assert weighted_greedy([small, large], capacity) == {"small": 1, "large": 0}
    assert exact([small, large], capacity) == {"small": 0, "large": 1}


def test_many_jobs_are_allocated_within_a_thousandth_of_the_bound() -> None:
    rng = np.random.default_rng(3)
    jobs = [
        saturating(name, float(rng.lognormal(10, 1.5)), float(rng.uniform(0.3, 0.95)), int(rng.integers(0, 16)))
        for name in range(300)
    ]
    capacity = Capacity(1500)
    quick, best = weighted_greedy(jobs, capacity), allocate(jobs, capacity, time_limit_s=30.0)
    assert best.is_exact
    assert total_value(jobs, quick) >= total_value(jobs, best.choices) * 0.999
    assert taken(jobs, quick)[0] >= 1490


def test_without_time_the_choice_is_greedy() -> None:
    rng = np.random.default_rng(5)
    jobs = [
        JobOptions(name, 1e4, (option(1, 10.0), *(option(int(cores), 10.0 + cores * rng.random()) for cores in steps)))
        for name, steps in enumerate(rng.integers(2, 60, (20, 6)))
    ]
    quick = weighted_greedy(jobs, Capacity(101))
    assert exact(jobs, Capacity(101), time_limit_s=0.0) == quick
    assert total_value(jobs, exact(jobs, Capacity(101), time_limit_s=30.0)) > total_value(jobs, quick)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([saturating("a", 1.0), saturating("a", 2.0)], "two jobs"),
        ([saturating("a", 1.0, current=16)], "current option 16"),
        ([JobOptions("a", 1.0, (option(1, 1.0),), weight=-1.0)], "weight=-1.0"),
        ([JobOptions("a", 1.0, (option(1, math.nan),))], "finite"),
        ([JobOptions("a", 1.0, (option(-1, 1.0),))], "cores and memory of options must be finite and at least 0"),
    ],
)
def test_invalid_jobs_are_refused(jobs: list[JobOptions], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        weighted_greedy(jobs, Capacity(4))
