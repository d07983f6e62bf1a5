"""The integer program finds what trying all choices finds, and stays within cores and memory."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.policies.integer_programs.solver import chosen_options
from tests.effort import examples

GIB = 2.0**30
LIMIT_S = 10.0
JOBS = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(40), deadline=None)
@given(JOBS, st.integers(1, 20), st.integers(1, 20), st.data())
def test_it_finds_the_best_of_all_choices(
    jobs: list[list[tuple[int, int, int]]], cores: int, gib: int, data: st.DataObject
) -> None:
    """Options are (value, cores, GiB)."""
    must = data.draw(st.lists(st.booleans(), min_size=len(jobs), max_size=len(jobs)))
    flat = [(group, *option) for group, options in enumerate(jobs) for option in options]
    group, value, needed, memory = (np.array(column, dtype=np.float64) for column in zip(*flat, strict=True))
    found = chosen_options(
        value, needed, memory * GIB, group.astype(np.int64), np.array(must), (cores, gib * GIB), LIMIT_S
    )
    ranges = [[*range(len(options)), *([] if one else [None])] for options, one in zip(jobs, must, strict=True)]
    totals = []
    for choice in product(*ranges):
        taken = [options[at] for options, at in zip(jobs, choice, strict=True) if at is not None]
        if sum(one[1] for one in taken) <= cores and sum(one[2] for one in taken) <= gib:
            totals.append(sum(one[0] for one in taken))
    if not totals:
        assert found is None
        return
    assert found is not None
    picked = found[found >= 0]
    assert needed[picked].sum() <= cores and memory[picked].sum() <= gib
    assert all(found[job] >= 0 for job, one in enumerate(must) if one)
    assert all(group[at] == job for job, at in enumerate(found.tolist()) if at >= 0)
    assert value[picked].sum() >= max(totals) * (1 - 1e-3) - 1e-6


def test_a_job_that_runs_cannot_be_dropped() -> None:
    """A worthless job that must run is kept, and the valuable one waits."""
    one = np.array([0.0, 9.0]), np.array([3.0, 3.0]), np.zeros(2), np.array([0, 1])
    found = chosen_options(*one, np.array([True, False]), (5.0, GIB), LIMIT_S)
    assert found is not None and found.tolist() == [0, -1]


@pytest.mark.parametrize("cores", [2.0, 1.0])
def test_nothing_is_chosen_where_nothing_fits(cores: float) -> None:
    one = np.array([1.0]), np.array([3.0]), np.zeros(1), np.array([0])
    assert chosen_options(*one, np.array([True]), (cores, GIB), LIMIT_S) is None
