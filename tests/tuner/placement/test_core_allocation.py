"""Cores of a host divided among its jobs: by their frontiers, with few changes, and none for a small gain."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import JobOptions, Option
from elastichost.tuner.placement.core_allocation import CoreRequest, CoreShare, assigned_cores, share_cores
from tests.effort import examples


def frontier(
    name: str, remaining: float = 1e4, power: float = 0.7, most: int = 8, current: int | None = None
) -> JobOptions:
    options = tuple(Option(Configuration(cores, 1), 10 * cores**power, cores) for cores in range(1, most + 1))
    return JobOptions(name, remaining, options, current)


def sharing(
    name: str, cores: tuple[int, ...] = (), remaining: float = 1e4, power: float = 0.7, busy: float | None = None
) -> CoreRequest:
    """A job that runs with its present number of cores."""
    return CoreRequest(frontier(name, remaining, power, current=len(cores) - 1 if cores else None), cores, busy)


def by_name(shares: tuple[CoreShare, ...]) -> dict[object, CoreShare]:
    return {share.job: share for share in shares}


def test_new_jobs_get_all_cores_by_their_frontiers() -> None:
    shares = by_name(share_cores([sharing("flat", power=0.1), sharing("steep", power=0.95)], range(6)))
    assert len(shares["steep"].cores) > len(shares["flat"].cores)
    assert sorted(shares["steep"].cores + shares["flat"].cores) == list(range(6))
    assert shares["steep"].configuration == Configuration(len(shares["steep"].cores), 1)
    assert all(share.is_own for share in shares.values())


def test_each_job_keeps_its_cores_and_only_the_rest_changes() -> None:
    one, two = sharing("a", (5, 2, 7, 1, 3, 0), power=0.5), sharing("b", (4, 6), power=0.5)
    shares = by_name(share_cores([one, two], range(8)))
    assert len(shares["a"].cores) == len(shares["b"].cores) == 4
    assert set(shares["b"].cores) >= {4, 6}
    assert set(shares["a"].cores) <= {0, 1, 2, 3, 5, 7}
    assert "gain" in shares["a"].reason and "save" in shares["a"].reason


def test_a_small_gain_changes_nothing() -> None:
    near = [sharing("a", (0, 1, 2, 3, 4, 5)), sharing("b", (6, 7))]
    shares = by_name(share_cores(near, range(8)))
    assert (shares["a"].cores, shares["b"].cores) == ((0, 1, 2, 3, 4, 5), (6, 7))
    assert shares["a"].reason == (
        "unchanged: a change gains 2.9% speed and saves 237 s; required are at least 3% and 5 s"
    )
    ending = [sharing("a", (0, 1, 2, 3, 4, 5), 60.0, power=0.5), sharing("b", (6, 7), 60.0, power=0.5)]
    assert by_name(share_cores(ending, range(8)))["b"].cores == (6, 7), "a change saves less than 5 s"
    longer = [sharing("a", (0, 1, 2, 3, 4, 5), 6e3, power=0.5), sharing("b", (6, 7), 6e3, power=0.5)]
    assert len(by_name(share_cores(longer, range(8)))["b"].cores) == 4


def test_removed_cores_and_new_jobs_always_change_the_division() -> None:
    shares = by_name(share_cores([sharing("a", (0, 1, 2)), sharing("b", (3, 4, 5))], [0, 1, 3, 4]))
    assert (shares["a"].cores, shares["b"].cores) == ((0, 1), (3, 4))
    shares = by_name(share_cores([sharing("a", (0, 1, 2, 3)), sharing("new")], range(4)))
    assert len(shares["new"].cores) >= 1
    assert set(shares["a"].cores) < {0, 1, 2, 3}


def test_jobs_that_wait_for_input_float() -> None:
    jobs = [sharing("computes"), *(sharing(f"waits {at}", busy=0.25) for at in range(8))]
    shares = by_name(share_cores(jobs, range(4)))
    assert len(shares["computes"].cores) == 2, "the cores that floating jobs keep busy are deducted"
    for at in range(8):
        assert shares[f"waits {at}"].cores == (0, 1, 2, 3)
        assert not shares[f"waits {at}"].is_own
        assert "keeps only 0.25 cores busy" in shares[f"waits {at}"].reason
    assert share_cores([sharing("computes", busy=0.9)], range(4))[0].is_own


def test_a_floating_job_floats_until_it_keeps_clearly_more_cores_busy() -> None:
    def floats(cores: tuple[int, ...], busy: float) -> bool:
        options = frontier("a", current=0)
        return not share_cores([CoreRequest(options, cores, busy)], range(4))[0].is_own

    assert [floats((1,), busy) for busy in (0.2, 0.4, 0.5)] == [True, False, False]
    assert [floats((), busy) for busy in (0.2, 0.4, 0.5)] == [True, True, False]


def test_with_more_jobs_than_cores_the_rest_floats() -> None:
    shares = share_cores([sharing(f"j{at}", remaining=10.0**at) for at in range(1, 6)], range(2))
    owners = [share.job for share in shares if share.is_own]
    assert owners == ["j1", "j2"], "the jobs with least left get the cores"
    for share in shares:
        if not share.is_own:
            assert share.cores == (0, 1) and share.option == 0
            assert "no cores are left" in share.reason


@pytest.mark.parametrize(
    ("jobs", "cores", "words"),
    [
        ([sharing("a")], [], "must contain at least one core"),
        ([sharing("a")], [1, 1], "no core twice"),
        ([CoreRequest(JobOptions("a", 1.0, ()))], [1], "at least one option"),
        ([sharing("a"), sharing("a")], [1, 2], "two jobs"),
    ],
)
def test_invalid_requests_are_refused(jobs: list[CoreRequest], cores: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        share_cores(jobs, cores)


@st.composite
def core_counts(draw: st.DrawFn) -> tuple[dict[int | str, tuple[int, ...]], dict[int | str, int]]:
    """The present cores of four jobs, and the number of cores that each job gets."""
    owners = draw(st.lists(st.integers(-1, 3), min_size=8, max_size=8))
    own: dict[int | str, tuple[int, ...]] = {
        job: tuple(core for core, owner in enumerate(owners) if owner == job) for job in range(4)
    }
    return own, {job: draw(st.integers(0, 2)) for job in range(4)}


@settings(max_examples=examples(80), deadline=None)
@given(core_counts())
def test_as_few_cores_as_possible_change_their_job(
    scene: tuple[dict[int | str, tuple[int, ...]], dict[int | str, int]],
) -> None:
    own, counts = scene
    given_out = assigned_cores(own, counts, range(8))
    everything = [core for cores in given_out.values() for core in cores]
    assert len(set(everything)) == len(everything)
    assert {job: len(cores) for job, cores in given_out.items()} == counts
    new = sum(len(set(cores) - set(own[job])) for job, cores in given_out.items())
    assert new == sum(max(0, counts[job] - len(own[job])) for job in counts)


def test_a_core_that_two_jobs_have_goes_to_one() -> None:
    assert assigned_cores({"a": (0, 1), "b": (1, 2)}, {"a": 2, "b": 2}, range(4)) == {"a": (0, 1), "b": (2, 3)}
    with pytest.raises(ValueError, match="the jobs need 5 cores, but there are only 4"):
        assigned_cores({}, {"a": 5}, range(4))


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.floats(1, 1e6), st.none() | st.floats(0, 1)), min_size=1, max_size=5),
    st.integers(1, 12),
)
def test_shares_are_complete_and_stable(jobs: list[tuple[int, float, float | None]], cores: int) -> None:
    asked = [sharing(f"j{at}", (), remaining, busy=busy) for at, (_, remaining, busy) in enumerate(jobs)]
    shares = share_cores(asked, range(cores))
    own = [core for share in shares if share.is_own for core in share.cores]
    assert len(set(own)) == len(own)
    assert all(set(share.cores) <= set(range(cores)) and share.cores for share in shares)
    for share in shares:
        if share.is_own:
            assert len(share.cores) == share.configuration.workers
    if all(share.is_own or job.floats for share, job in zip(shares, asked, strict=True)):
        again = share_cores(
            [
                CoreRequest(
                    frontier(f"j{at}", remaining, current=share.option), share.cores if share.is_own else (), busy
                )
                for at, (share, (_, remaining, busy)) in enumerate(zip(shares, jobs, strict=True))
            ],
            range(cores),
        )
        for before, after in zip(shares, again, strict=True):
            if not after.is_own or before.is_own:
                assert (before.option, before.cores) == (after.option, after.cores)
