"""Numbers of cores: as few as possible change their job."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.placement.core_allocation import assigned_cores
from tests.effort import examples


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
