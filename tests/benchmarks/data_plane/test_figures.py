"""Medians, ratios, and the choice of the window that counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.data_plane.figures import (
    RATIOS,
    MeasuredWindow,
    Window,
    arm_figures,
    best_peer,
    judged,
    least_disturbed,
    ratios_of,
)
from benchmarks.harness.aims import Verdict
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.interleave import Measurement, Rounds
from benchmarks.harness.outcome import Outcome


def window(arm: str, number: int, samples_per_s: float, foreign_share: float = 0.0) -> Window:
    return Window(arm, number, int(2 * samples_per_s), 2.0, {"worker": 1.5, "server": 0.5}, foreign_share)


def outcome(windows: Sequence[Window], peer: str | None = None, batch_size: int = 2048) -> Outcome[MeasuredWindow]:
    measured = tuple(Measurement(one.arm, one.round, MeasuredWindow(one, 0)) for one in windows)
    return judged(Outcome(Benchmark("", {}, Rounds(3), ()), measured), peer, batch_size)


def test_figures_of_an_arm_are_of_its_own_windows() -> None:
    windows = [window("tbe1", 0, 100), window("tbe1", 1, 400), window("tbe1", 2, 200), window("tbe2", 0, 900)]
    figures = arm_figures("tbe1", windows, {"worker": 7})
    assert figures is not None
    assert (figures.windows, figures.median, figures.least, figures.most) == (3, 200, 100, 400)
    assert figures.memory_bytes_by_role == {"worker": 7}


def test_cpu_time_of_a_sample_is_taken_over_all_windows() -> None:
    figures = arm_figures("tbe1", [window("tbe1", 0, 100), window("tbe1", 1, 300)], {})
    assert figures is not None
    assert figures.cpu_us_by_role == {"worker": pytest.approx(3e6 / 800), "server": pytest.approx(1e6 / 800)}
    assert figures.cpu_us == pytest.approx(4e6 / 800)


def test_an_arm_without_windows_has_no_figures() -> None:
    assert arm_figures("rpc", [window("tbe1", 0, 100)], {}) is None


@pytest.mark.parametrize(("share", "disturbed"), [(0.0, False), (0.05, False), (0.051, True)])
def test_a_foreign_share_above_a_twentieth_disturbs_a_window(share: float, disturbed: bool) -> None:
    assert window("tbe1", 0, 100, share).is_disturbed is disturbed


def test_of_disturbed_attempts_the_least_disturbed_counts() -> None:
    attempts = [window("tbe1", 0, 1, 0.3), window("tbe1", 0, 2, 0.1), window("tbe1", 0, 3, 0.2)]
    assert least_disturbed(attempts).samples_per_s == 2


def test_a_ratio_is_the_median_of_the_quotients_within_rounds() -> None:
    # the machine is four times as fast in the last round: the quotient of the medians would be 2.4
    windows = [
        *(window("direct2", number, rate) for number, rate in enumerate((200, 240, 800))),
        *(window("tbe1", number, rate) for number, rate in enumerate((100, 100, 400))),
    ]
    assert ratios_of(outcome(windows))["direct2_over_tbe1"] == pytest.approx(2.0)


def test_a_ratio_takes_only_rounds_in_which_both_arms_were_measured() -> None:
    windows = [window("direct2", 0, 300), window("direct2", 1, 500), window("tbe1", 1, 100)]
    assert ratios_of(outcome(windows))["direct2_over_tbe1"] == pytest.approx(5.0)


def test_ratios_of_absent_arms_are_none() -> None:
    ratios = ratios_of(outcome([window("direct2", 0, 300)]))
    assert set(ratios) == {ratio.name for ratio in RATIOS}
    assert set(ratios.values()) == {None}


def test_the_best_peer_is_the_fastest_of_those_measured_and_never_elastichost() -> None:
    windows = [window("tbe1", 0, 100), window("rpc", 0, 130), window("direct2", 0, 900), window("bare_loop", 0, 500)]
    figures = {name: found for w in windows if (found := arm_figures(name := w.arm, windows, {})) is not None}
    assert best_peer(figures) == "rpc"
    assert ratios_of(outcome(windows, "rpc"))["direct2_over_best_peer"] == pytest.approx(900 / 130)
    assert best_peer({}) is None


def test_the_aim_against_the_best_peer_depends_on_the_batch_size() -> None:
    def bounds(batch_size: int) -> dict[str, float]:
        return {verdict.aim.figure: verdict.aim.bound for verdict in outcome([], None, batch_size).verdicts()}

    found = [bounds(size).get("direct2_over_best_peer") for size in (512, 2048, 8192, 100)]
    assert found == [1.6, 1.5, 1.3, None]
    assert bounds(100)["direct2_over_tbe1"] == 1.8


def test_a_verdict_is_reached_not_reached_or_not_measured() -> None:
    def verdict(direct2: float) -> Verdict:
        windows = [window("direct2", 0, direct2), window("tbe1", 0, 100)]
        return next(one for one in outcome(windows).verdicts() if one.aim.figure == "direct2_over_tbe1")

    assert [verdict(rate).word for rate in (180, 179)] == ["reached", "not reached"]
    assert {one.word for one in outcome([]).verdicts()} == {"not measured"}
