"""Which job gives memory back when all jobs together use too much, by which steps, and which jobs are left alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.dispatcher.core.oom_containment import (
    CALM_S,
    PATIENCE_S,
    SLACK_BYTES,
    Act,
    Containment,
    offenders,
    relieved,
)
from elastichost.tuner.colocation.facts import JobDemand, Mode, PlacedJob, Placement

MB = 10**6
TOTAL = 3000 * MB


def placed(job: str, estimate_mb: int = 1000) -> PlacedJob:
    """A job that is charged 1.2 times its estimate."""
    mode = Mode(1, 1, 1, 100.0, (0.1, 0.0, 0.0, 0.0, 0.0, 0.0), estimate_mb * MB)
    return PlacedJob(JobDemand(job, "dense", (mode,), 1e4), Placement(0), round(1.2 * estimate_mb * MB))


def acts(state: Containment, now_s: float, **use_mb: int) -> list[Act]:
    """Containment's steps for running jobs that use this much memory."""
    running = [placed(job) for job in use_mb]
    return list(offenders(state, running, {job: mb * MB for job, mb in use_mb.items()}, TOTAL, now_s))


def test_no_job_is_acted_on_while_all_fit() -> None:
    assert acts(Containment(), 0.0, liar=2900, honest=100) == []


def test_the_job_is_first_lent_less_then_evicted_then_killed() -> None:
    state, found = Containment(), []
    for step in range(40):
        for act in acts(state, 0.5 * step, liar=2100, honest=1000):
            found.append((0.5 * step, act.kind))
            assert act.job == "liar"
            assert act.limit_bytes == 1050 * MB
    assert [kind for _, kind in found] == ["tighten", "evict", "kill"]
    times_s = [at_s for at_s, _ in found]
    assert times_s[1] - times_s[0] == times_s[2] - times_s[1] == PATIENCE_S


def test_the_reason_has_the_figures() -> None:
    (act,) = acts(Containment(), 0.0, liar=2100, honest=1000)
    assert act.reason == (
        "all jobs use 2,956.4 MiB of 2,861.0 MiB; this job uses 2,002.7 MiB, and its estimate is 953.7 MiB: its memory "
        "limit becomes 1,001.4 MiB"
    )


def test_the_job_furthest_above_its_estimate_is_chosen_not_the_largest() -> None:
    running = [placed("large", 2500), placed("small", 100)]
    (act,) = offenders(Containment(), running, {"large": 2550 * MB, "small": 800 * MB}, TOTAL, 0.0)
    assert act.job == "small"


def test_jobs_within_their_estimates_are_left_alone_even_if_memory_is_exceeded() -> None:
    """A policy that counts jobs may admit more estimates than there is memory."""
    assert acts(Containment(), 0.0, a=1000, b=1000, c=1001, d=1000 + SLACK_BYTES // MB) == []


def test_a_job_far_above_its_estimate_is_killed_at_once_even_right_after_a_milder_step() -> None:
    (act,) = acts(Containment(), 0.0, liar=9000, honest=1000)
    assert act.kind == "kill"
    state = Containment()
    assert [act.kind for act in acts(state, 0.0, liar=2100, honest=1000)] == ["tighten"]
    assert [act.kind for act in acts(state, 0.2, liar=3000, honest=1000)] == ["kill"]
    assert acts(state, 0.4, liar=3100, honest=1000) == [], "a job is killed once"
    assert acts(state, 60.0, liar=3100, honest=1000) == []


def test_a_job_that_is_started_again_begins_with_the_first_step() -> None:
    state = Containment()
    acts(state, 0.0, liar=9000, honest=1000)
    assert acts(state, 1.0, honest=1000) == []
    assert [act.kind for act in acts(state, 2.0, liar=2100, honest=1000)] == ["tighten"]


def test_jobs_that_were_not_measured_yet_count_nothing() -> None:
    assert list(offenders(Containment(), [placed("a"), placed("b")], {}, TOTAL, 0.0)) == []


@given(
    uses=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 9000)), min_size=1, max_size=5),
    times=st.lists(st.floats(0.1, 5.0), min_size=1, max_size=12),
)
def test_one_step_at_a_time_and_only_for_the_job_furthest_above_its_estimate(
    uses: list[tuple[int, int]], times: list[float]
) -> None:
    """uses: estimate and use of each job, in MB."""
    running = [placed(f"job-{at}", estimate) for at, (estimate, _) in enumerate(uses)]
    use = {f"job-{at}": mb * MB for at, (_, mb) in enumerate(uses)}
    state, now_s = Containment(), 0.0
    for wait_s in times:
        now_s += wait_s
        found = list(offenders(state, running, use, TOTAL, now_s))
        assert len(found) <= 1
        for act in found:
            estimate, mb = uses[int(act.job.removeprefix("job-"))]
            assert sum(use.values()) > TOTAL
            assert mb * MB - estimate * MB > SLACK_BYTES
            assert mb - estimate == max(has - said for said, has in uses)


@pytest.mark.parametrize("memory_mb", [1501, 2900])
def test_a_job_alone_on_the_host_may_use_all_its_memory(memory_mb: int) -> None:
    assert acts(Containment(), 0.0, liar=memory_mb) == []


# --- given back -------------------------------------------------------------------------------------------------------


def tightened(charged_mb: int = 1000) -> tuple[Containment, list[PlacedJob]]:
    """Returns running jobs of which one was tightened at 0 s."""
    state = Containment()
    liar = msgspec.structs.replace(placed("liar"), charged_bytes=charged_mb * MB)
    running = [liar, placed("other")]
    found = list(offenders(state, running, {"liar": 2100 * MB, "other": 950 * MB}, TOTAL, 0.0))
    assert [act.kind for act in found] == ["tighten"]
    return state, running


def looked(state: Containment, running: list[PlacedJob], now_s: float, used_mb: int) -> list[Act]:
    """Containment's steps at now_s, while job "liar" uses used_mb and the other job nothing."""
    use = {"liar": used_mb * MB, "other": 0}
    return [*offenders(state, running, use, TOTAL, now_s), *relieved(state, running, use, TOTAL, now_s)]


def test_a_tightened_limit_is_loosened_after_a_while_without_pressure() -> None:
    state, running = tightened(1700)
    assert looked(state, running, 1.0, 1000) == []
    assert looked(state, running, CALM_S, 1000) == [], "memory has been calm for a second less"
    (act,) = looked(state, running, 1.0 + CALM_S, 1000)
    assert (act.kind, act.job, act.limit_bytes) == ("loosen", "liar", 1700 * MB)
    assert looked(state, running, 99.0, 1000) == [], "the limit is loosened once"


def test_pressure_restarts_the_wait_and_the_second_wait_is_longer() -> None:
    state, running = tightened()
    looked(state, running, 1.0, 1000)
    looked(state, running, 5.0, int(0.95 * TOTAL / MB))
    assert looked(state, running, 2.0 + CALM_S, 1000) == []
    assert [act.kind for act in looked(state, running, 2.0 + 2 * CALM_S, 1000)] == ["loosen"]
    again = list(offenders(state, running, {"liar": 2100 * MB, "other": 950 * MB}, TOTAL, 50.0))
    assert [act.kind for act in again] == ["tighten"], "containment begins with the first step again"
    looked(state, running, 51.0, 1000)
    assert looked(state, running, 51.0 + 1.9 * CALM_S, 1000) == []
    assert [act.kind for act in looked(state, running, 51.0 + 2.1 * CALM_S, 1000)] == ["loosen"]


def test_a_limit_is_not_loosened_into_the_charges_of_other_jobs() -> None:
    state, running = tightened(int(TOTAL / MB))
    for now_s in (1.0, 100.0):
        assert looked(state, running, now_s, 1000) == []


def test_a_loosened_limit_that_the_run_did_not_take_is_sent_again() -> None:
    state, running = tightened()
    looked(state, running, 1.0, 1000)
    assert looked(state, running, 30.0, 1000)
    state.not_loosened("liar", 31.0)
    assert [act.kind for act in looked(state, running, 31.0 + 2.1 * CALM_S, 1000)] == ["loosen"]
