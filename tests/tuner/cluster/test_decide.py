"""Cores divided among jobs: by their frontiers, with few changes, and none that does not pay."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.cluster.decide import decide, floats
from elastichost.tuner.cluster.facts import ClusterView, Grant, JobView
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import JobId, Option, OptionArray
from tests.effort import examples


def frontier(power: float = 0.7, most: int = 8) -> OptionArray:
    return OptionArray.of([Option(Configuration(cores, 1), 10 * cores**power, cores) for cores in range(1, most + 1)])


def job(name: str, cores: int = 0, left: float = 1e4, power: float = 0.7, **more: Any) -> JobView:
    """A job that runs with this number of cores; 0: it waits."""
    return JobView(job=name, samples_left=left, options=frontier(power), current=cores - 1 if cores else None, **more)


def host(*jobs: JobView, cores: int, **more: Any) -> dict[JobId, Grant]:
    view = ClusterView(jobs=jobs, cores=cores, is_one_host=True, has_news=False, **more)
    return {grant.job: grant for grant in decide(view)}


def cluster(*jobs: JobView, cores: int, **more: Any) -> dict[JobId, int]:
    return {grant.job: grant.cores for grant in decide(ClusterView(jobs=jobs, cores=cores, **more))}


def test_new_jobs_get_all_cores_by_their_frontiers() -> None:
    grants = host(job("flat", power=0.1), job("steep", power=0.95), cores=6)
    assert grants["steep"].cores > grants["flat"].cores
    assert sum(grant.cores for grant in grants.values()) == 6
    assert grants["steep"].configuration == Configuration(grants["steep"].cores, 1)
    assert all(grant.is_own for grant in grants.values())


def test_a_better_division_is_used() -> None:
    grants = host(job("a", 7, power=0.3), job("b", 1, power=0.95), cores=8)
    assert grants["b"].cores >= 4 and grants["a"].cores + grants["b"].cores == 8
    assert "gain" in grants["a"].reason and "save" in grants["a"].reason


def test_a_small_gain_changes_nothing() -> None:
    grants = host(job("a", 6), job("b", 2), cores=8)
    assert (grants["a"].cores, grants["b"].cores) == (6, 2)
    assert grants["a"].reason.startswith("unchanged: a change gains 2.9% speed")
    short, longer = (host(job("a", 7, left, 0.3), job("b", 1, left, 0.95), cores=8)["b"].cores for left in (40.0, 6e3))
    assert (short, longer >= 4) == (1, True), "at its end a job saves less than 5 s"


def test_a_growth_that_does_not_pay_is_not_made_and_nobody_shrinks_for_it() -> None:
    """One job gains much; the others would only exchange single cores."""
    others = [job(f"j{at}", cores, 1e5) for at, cores in enumerate((4, 5, 4, 5, 4))]
    found = cluster(*others, job("starved", 1, 1e5, 0.95), cores=30, has_news=False)
    assert found["starved"] > 4
    changed = [at for at, one in enumerate(others) if found[f"j{at}"] != (one.current or 0) + 1]
    grown = [at for at in changed if found[f"j{at}"] > (others[at].current or 0) + 1]
    assert not grown


def test_removed_cores_and_new_jobs_always_change_the_division() -> None:
    assert sum(grant.cores for grant in host(job("a", 3), job("b", 3), cores=4).values()) == 4
    grants = host(job("a", 4), job("new"), cores=4)
    assert grants["new"].cores >= 1 and grants["a"].cores < 4


def test_in_a_cluster_a_job_without_cores_waits() -> None:
    assert set(cluster(*(job(f"j{at}", left=10.0**at) for at in range(1, 6)), cores=2)) == {"j1", "j2"}


def test_a_job_that_is_changing_or_not_measured_keeps_what_it_has() -> None:
    for reason in ({"is_changing": True}, {"is_measured": False}):
        still = cluster(job("a", 7, power=0.3, **reason), job("b", 1, power=0.95), cores=8, has_news=False)
        assert still["a"] == 7
    pressed = job("a", 7, power=0.3, is_measured=False), job("b", 1, power=0.95)
    assert cluster(*pressed, cores=8, has_news=True)["a"] < 7


def test_jobs_that_were_not_measured_change_if_they_do_not_fit() -> None:
    jobs = [job(name, 3, is_measured=False) for name in ("a", "b")]
    assert sum(grant.cores for grant in host(*jobs, cores=4).values()) == 4


def test_a_job_that_stays_gets_what_its_own_tuner_proposes() -> None:
    own = Configuration(2, 2, 2)
    (wanted,) = decide(ClusterView(jobs=(job("a", 8, proposal=Option(own, 0.0, 8)),), cores=8, has_news=False))
    assert (wanted.configuration, wanted.cores, wanted.is_proposal) == (own, 8, True)
    (larger,) = decide(ClusterView(jobs=(job("a", 8, proposal=Option(own, 0.0, 9)),), cores=8, has_news=False))
    assert (larger.configuration, larger.is_proposal) == (Configuration(8, 1), False), "its cores are not enough"
    changing = job("a", 8, proposal=Option(own, 0.0, 8), is_changing=True)
    assert not decide(ClusterView(jobs=(changing,), cores=8, has_news=False))[0].is_proposal


def test_a_job_that_changes_does_not_get_what_it_proposed_before() -> None:
    own = Option(Configuration(7, 2), 0.0, 7)
    grants = host(job("a", 7, power=0.3, proposal=own), job("b", 1, power=0.95), cores=8)
    assert grants["a"].cores < 7 and not grants["a"].is_proposal


def test_a_floating_job_gets_what_its_own_tuner_proposes_too() -> None:
    own = Configuration(1, 2)
    grants = host(job("waits", 1, busy_cores=0.1, proposal=Option(own, 0.0, 1)), job("computes", 2), cores=4)
    assert grants["waits"].configuration == own and not grants["waits"].is_own
    grants = host(job("waits", 1, busy_cores=0.1, proposal=Option(own, 0.0, 2)), job("computes", 2), cores=4)
    assert not grants["waits"].is_proposal


def test_jobs_that_wait_for_input_float() -> None:
    waiting = [job(f"waits {at}", 1, busy_cores=0.25) for at in range(8)]
    grants = host(job("computes", 2), *waiting, cores=4)
    assert grants["computes"].cores == 2, "the cores that floating jobs keep busy are deducted"
    for at in range(8):
        grant = grants[f"waits {at}"]
        assert not grant.is_own and grant.cores == 4 and "keeps only 0.25 cores busy" in grant.reason
    assert host(job("computes", 1, busy_cores=0.9), cores=4)["computes"].is_own


def test_a_floating_job_floats_until_it_keeps_clearly_more_cores_busy() -> None:
    busy = (0.2, 0.4, 0.5)
    assert [floats(job("a", 1, busy_cores=one)) for one in busy] == [True, False, False]
    assert [floats(job("a", 1, busy_cores=one, has_own_cores=False)) for one in busy] == [True, True, False]


def test_with_more_jobs_than_cores_the_rest_floats() -> None:
    grants = host(*(job(f"j{at}", left=10.0**at) for at in range(1, 6)), cores=2)
    assert [name for name, grant in grants.items() if grant.is_own] == ["j1", "j2"], "the jobs with least left"
    for grant in grants.values():
        if not grant.is_own:
            assert grant.option == 0 and "no cores are left" in grant.reason


def test_jobs_that_may_not_change_leave_no_core_for_a_new_one() -> None:
    stays = job("stays", 2, is_measured=False)
    assert cluster(stays, job("new"), cores=2, has_news=False) == {"stays": 2}
    grants = host(stays, job("new"), cores=2)
    assert grants["stays"].cores == 2 and not grants["new"].is_own


def test_invalid_views_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one option"):
        decide(ClusterView(jobs=(JobView(job="a", samples_left=1.0, options=()),), cores=1))
    with pytest.raises(ValueError, match="two jobs"):
        decide(ClusterView(jobs=(job("a"), job("a")), cores=2))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.floats(1, 1e6), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 24),
    st.booleans(),
)
def test_grants_fit_and_are_stable(asked: list[tuple[int, float, bool]], cores: int, has_news: bool) -> None:
    jobs = [job(f"j{at}", now, left, is_measured=known) for at, (now, left, known) in enumerate(asked)]
    taken = sum((one.current or 0) + 1 for one in jobs if one.current is not None)
    cores = max(cores, taken)
    found = cluster(*jobs, cores=cores, has_news=has_news)
    assert sum(found.values()) <= cores
    again = [msgspec.structs.replace(one, current=found[one.job] - 1 if one.job in found else None) for one in jobs]
    assert cluster(*again, cores=cores, has_news=has_news) == found


def test_many_jobs_are_divided_in_arrays() -> None:
    """4,000 jobs with 16 options each; a decision takes a part of a second, and here ten times that is allowed."""
    random = np.random.default_rng(0)
    jobs = []
    for number in range(4000):
        sizes = np.unique(np.rint(np.exp(np.linspace(0, np.log(random.integers(8, 200)), 16))))
        speeds = 1e3 * random.uniform(0.5, 2.0) * sizes ** random.uniform(0.4, 0.95)
        rows = np.stack([sizes, *(np.ones_like(sizes),) * 3], axis=1)
        options = OptionArray(rows, speeds, sizes, np.zeros_like(sizes))
        current = int(random.integers(len(sizes))) if number % 3 else None
        jobs.append(JobView(job=number, samples_left=float(random.lognormal(15, 1)), options=options, current=current))
    view = ClusterView(jobs=tuple(jobs), cores=64_000, has_news=False)
    began_s = time.process_time()
    grants = decide(view)
    assert time.process_time() - began_s < 10.0
    assert sum(grant.cores for grant in grants) <= view.cores
