"""The figures of the recovery benchmark are what they say."""

from __future__ import annotations

import pytest

from benchmarks.recovery.benchmark import Figures as RecoveryFigures
from benchmarks.recovery.benchmark import checkpoints_of, killed_of, peer_of, rows_of
from benchmarks.recovery.course import Course, full_rate_s, goodput_at, lost_s, rate_between
from benchmarks.recovery.torchrun import PeerHurt
from benchmarks.recovery.watched_run import Hurt


def course(*parts: tuple[float, float], step_s: float = 0.01) -> Course:
    """(seconds, samples a second), one after another, noted every 10 ms."""
    found, now_s, samples = Course(), 0.0, 0.0
    found.note(0.0, 0)
    for seconds, rate in parts:
        for _ in range(round(seconds / step_s)):
            now_s, samples = now_s + step_s, samples + rate * step_s
            found.note(now_s, round(samples))
    return found


def test_half_the_speed_for_a_second_is_half_a_second_lost() -> None:
    found = course((2.0, 1000), (1.0, 500), (3.0, 1000))
    assert rate_between(found, 0.5, 1.5) == pytest.approx(1000, rel=0.01)
    assert lost_s(found, 2.0, 5.0, 1000.0) == pytest.approx(0.5, abs=0.02)
    assert full_rate_s(found, 2.0, 1000.0, 5.0) == pytest.approx(1.0, abs=0.05)
    assert goodput_at(0.5, 60.0) == pytest.approx(1 - 0.5 / 60)


def test_the_full_rate_counts_after_the_dip_and_not_before_it() -> None:
    found = course((2.5, 1000), (0.5, 0), (3.0, 1000))
    assert full_rate_s(found, 2.0, 1000.0, 5.5) == pytest.approx(1.0, abs=0.05)
    assert full_rate_s(course((6.0, 1000)), 2.0, 1000.0, 5.0) == 0.0
    assert full_rate_s(course((2.0, 1000), (4.0, 500)), 2.0, 1000.0, 5.0) is None


def test_a_moment_that_was_not_noted_has_no_samples() -> None:
    with pytest.raises(ValueError, match="nothing was noted"):
        course((1.0, 10)).at(2.0)
    with pytest.raises(ValueError, match="nothing was noted"):
        Course().at(0.0)


def test_kills_are_put_together() -> None:
    killed = killed_of([Hurt(0.01, 0.2, 0.5, 0.3), Hurt(0.02, 0.3, None, 0.9)])
    assert killed.never_full == 1
    assert killed.back.worst == 0.3
    assert killed.full is not None and killed.full.times == 1
    assert killed.goodput_at_one_a_minute == pytest.approx(0.99)


def test_checkpoints_are_told_by_their_size_and_their_share() -> None:
    found = checkpoints_of([(0.1, 2 * 10**9), (0.2, 2 * 10**9), (0.3, 2 * 10**9)])
    assert found.stall_s_per_gb == pytest.approx(0.1)
    assert found.share == pytest.approx(0.2 / 60.2)


def test_a_peer_that_never_came_back_is_counted_and_not_averaged() -> None:
    peer = peer_of([PeerHurt(10.0, 20), PeerHurt(None, 30)])
    assert peer.never_back == 1
    assert peer.back is not None and peer.back.p50 == 10.0
    assert peer_of([PeerHurt(None, 30)]).back is None


def test_what_was_left_out_has_no_lines() -> None:
    assert rows_of(RecoveryFigures()) == []
    peer = peer_of([PeerHurt(10.0, 20)])
    assert [row[0] for row in rows_of(RecoveryFigures(peer=peer))] == ["torchrun, rank killed: back"]
