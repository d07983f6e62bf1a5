"""The refusals of `scale`, and the cost of a plan change computed from measurements."""

from __future__ import annotations

import pytest

from elastichost.runs.events import Counts
from elastichost.runs.events.text import text_of
from elastichost.supervisor.core.plan_change import Dip, Pace, PlanChangeWatch, figures_of, gpu_refusal, refusal
from elastichost.tuner.cold_start import initial_plan
from elastichost.wire.commands import ScaleMsg

ONE, THREE = Counts(1, 1, 1), Counts(3, 2, 1)


def test_a_refusal_names_the_allowed_range() -> None:
    def refused(command: ScaleMsg) -> str:
        """The message and the hint of the refusal."""
        found = refusal(command, 256, 64, 8)
        assert found is not None and found.is_usage
        return f"{found.message}: {found.hint}"

    assert refusal(ScaleMsg(256, 64, 8), 256, 64, 8) is None
    assert refused(ScaleMsg(workers=257)) == "workers=257 is out of range (1 to 256): "
    assert refused(ScaleMsg(servers=0)).startswith("servers=0")
    assert refused(ScaleMsg(worker_cores=9)).endswith("(1 to 8): ")
    assert refused(ScaleMsg()) == "nothing to scale: name one of workers, servers, worker_cores"


def test_more_workers_than_gpus_are_refused_where_none_may_train_on_the_cpu() -> None:
    why = "the bits would differ"
    assert gpu_refusal(ScaleMsg(workers=4), 4, why) is None
    assert gpu_refusal(ScaleMsg(servers=9), 4, why) is None
    assert gpu_refusal(ScaleMsg(workers=5), 4, "") is None
    assert gpu_refusal(ScaleMsg(workers=5), 0, why) is None, "a run without GPUs"
    found = gpu_refusal(ScaleMsg(workers=5), 4, why)
    assert found is not None and found.is_usage
    assert found.message == "workers=5 is out of range (1 to 4)" and why in found.hint


def test_processes_of_a_plan_are_counted_by_role() -> None:
    assert Counts.of(initial_plan(cores=(0, 1), workers=2, servers=3)) == Counts(2, 3, 1)


def test_the_rate_before_is_the_median_of_the_last_seconds() -> None:
    pace = Pace()
    assert pace.before() == 0.0
    pace.add(0.0, 0)
    assert pace.before() == 0.0
    for tick in range(1, 101):
        at_s = tick * 0.1
        samples = int(1000 * at_s) + (5000 if at_s > 9.0 else 0)  # one window has far more samples than the others
        pace.add(at_s, samples)
    assert pace.before() == pytest.approx(1000, rel=0.01)


def run_through(dip: Dip, rates: list[float], step_s: float = 0.02) -> None:
    """Feeds a `Dip` with consecutive windows of 200 ms of these rates."""
    at_s, samples = dip.began_s, float(dip.samples)
    for rate in rates:
        for _ in range(round(0.2 / step_s)):
            at_s, samples = at_s + step_s, samples + rate * step_s
            dip.add(at_s, round(samples))


def test_a_dip_is_the_lowest_window_and_ends_when_the_rate_has_recovered() -> None:
    dip = Dip(began_s=50.0, samples=7000, rate_before=10_000.0)
    assert (dip.dip, dip.recovered_s) == (None, 0.0)
    run_through(dip, [10_000, 4_000, 8_000, 9_500, 10_000])
    assert dip.dip == pytest.approx(0.4, abs=0.01)
    assert dip.recovered_s == pytest.approx(0.6, abs=0.01)


def test_a_rate_that_stays_low_has_not_recovered() -> None:
    dip = Dip(0.0, 0, 10_000.0)
    run_through(dip, [10_000, 10_000, 5_000, 5_000])
    assert dip.recovered_s is None


def test_windows_are_right_when_samples_are_taken_rarely() -> None:
    dip = Dip(0.0, 0, 1000.0)
    dip.add(1.1, 1100)
    assert (dip.dip, dip.recovered_s) == (pytest.approx(1.0), 0.0)


def test_without_a_rate_before_there_is_no_dip() -> None:
    dip = Dip(0.0, 0, 0.0)
    run_through(dip, [0.0, 100.0])
    assert (dip.dip, dip.recovered_s) == (None, None)


def watch(newcomers: dict[int, int]) -> PlanChangeWatch:
    """The watch of a change that began at 100 s. newcomers: new worker -> its last incarnation before the change."""
    return PlanChangeWatch(ONE, THREE, newcomers, Dip(100.0, 0, 1000.0))


def test_a_change_is_over_a_moment_after_all_workers_train() -> None:
    seen = watch({1: 0, 2: 4})
    seen.observe(100.2, 200, [1], is_reached=False)
    seen.observe(100.3, 300, [], is_reached=True)
    assert (seen.awaited, seen.is_over(101.5)) == ([2], False)
    seen.observe(101.6, 1600, [2], is_reached=True)
    assert not seen.is_over(102.5)
    assert seen.is_over(102.7)
    seen.hand_overs += [(32, 0.010), (16, 0.005)]
    figures = seen.figures()
    assert figures.reached_s == pytest.approx(0.3)
    assert figures.first_sample_s == {1: pytest.approx(0.2), 2: pytest.approx(1.6)}
    assert (figures.buckets_moved, figures.handover_s) == (48, pytest.approx(0.015))
    data = figures_of(figures)
    assert data["request_to_first_sample_s"] == {"worker-1": pytest.approx(0.2), "worker-2": pytest.approx(1.6)}
    assert (data["workers_before"], data["servers_after"]) == (1, 2)
    assert text_of(figures) == (
        "plan reached after 300 ms: workers 1 -> 3, servers 1 -> 2; worker-1 trained its first sample after 200 ms; "
        "worker-2 trained its first sample after 1600 ms; 48 buckets changed owners in 15 ms; "
        "throughput stayed at or above 100 % of its value before the change"
    )


def test_a_new_worker_without_samples_is_waited_for_a_bounded_time() -> None:
    seen = watch({1: 0})
    seen.observe(100.5, 0, [], is_reached=True)
    assert not seen.is_over(105.0)
    assert seen.is_over(105.6)
    assert seen.figures().first_sample_s == {1: None}
    assert "worker-1 has trained no sample yet" in text_of(seen.figures())


def test_the_text_of_a_change_has_the_dip_of_the_throughput() -> None:
    seen = watch({})
    run_through(seen.dip, [1000, 300, 1000, 1000])
    seen.observe(100.81, 661, [], is_reached=True)
    assert "throughput fell to 30 % of its value before the change and recovered after 400 ms" in text_of(
        seen.figures()
    )
