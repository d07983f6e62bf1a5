"""Figures of a shape, from windows with known speeds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.data_plane.figures import MeasuredWindow, Window
from benchmarks.data_plane.shapes.figures import shape_result
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.interleave import Measurement, Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.workload.shape import SHAPES


def outcome_of(speeds: Mapping[str, tuple[int, ...]]) -> Outcome[MeasuredWindow]:
    """An outcome with these samples/s by arm and round."""
    measured = [
        Measurement(arm, number, MeasuredWindow(Window(arm, number, speed, 1.0, {"worker": 1.0}, 0.0), 0))
        for arm, of_arm in speeds.items()
        for number, speed in enumerate(of_arm)
    ]
    arms = dict.fromkeys(speeds, lambda _: measured[0].found)
    return Outcome(Benchmark("a shape", arms, Rounds(3), ()), tuple(measured))


def test_the_faster_peer_of_each_precision_counts_and_quotients_are_taken_within_rounds() -> None:
    found = shape_result(
        "mlperf",
        SHAPES["mlperf"],
        outcome_of(
            {
                "ours_float32": (100, 50, 100),
                "ours_bfloat16": (300, 150, 300),
                "tbe1_float32": (50, 25, 50),
                "dmp_float32": (80, 40, 80),
                "tbe1_bfloat16": (120, 60, 120),
                "dmp_bfloat16": (90, 45, 90),
                "gemm_float32": (200, 100, 200),
                "gemm_bfloat16": (600, 300, 600),
            }
        ),
        {},
        {},
        {},
    )
    assert dict(found.peers) == {"float32": "dmp_float32", "bfloat16": "tbe1_bfloat16"}
    assert found.to_json() == {
        "ours_float32": 100,
        "ours_bfloat16": 300,
        "peer_float32": 80,
        "peer_bfloat16": 120,
        "ours_over_best_peer": 2.5,
        "float32_over_peer": 1.25,
        "gemm_share_float32": 0.5,
        "gemm_share_bfloat16": 0.5,
    }
    words = {name: verdict.word for name, verdict in found.verdicts.items()}
    assert words == {
        "ours_over_best_peer": "reached",
        "float32_over_peer": "not reached",
        "gemm_share_float32": "not reached",
        "gemm_share_bfloat16": "not reached",
    }


def test_what_was_not_measured_is_null() -> None:
    speeds: dict[str, tuple[int, ...]] = {"ours_float32": (100,), "tbe1_float32": (50,)}
    reasons = {"ours_bfloat16": "this CPU has no units for bfloat16"}
    found = shape_result("another", SHAPES["small"], outcome_of(speeds), {}, reasons, {})
    told = found.to_json()
    assert told["ours_over_best_peer"] == pytest.approx(2.0)
    assert [name for name, figure in told.items() if figure is None] == [
        "ours_bfloat16",
        "peer_bfloat16",
        "gemm_share_float32",
        "gemm_share_bfloat16",
    ]
    assert not found.verdicts
