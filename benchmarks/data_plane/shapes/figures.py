"""Computes the figures of a shape from its windows: speeds, ratios to the peers, shares of the limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.data_plane.figures import ArmFigures, MeasuredWindow, arm_figures, ratios_of, speed_quotient
from benchmarks.data_plane.shapes.arms import PRECISIONS
from benchmarks.harness.aims import Aim, Verdict
from benchmarks.harness.benchmark import PairedFigure
from benchmarks.harness.outcome import Outcome
from benchmarks.workload.job_file import Precision
from benchmarks.workload.shape import Shape

__all__ = ["ShapeResult", "shape_result"]

# aims by shape; a shape without a name here has none
AIMS: dict[str, dict[str, float]] = {
    "small": {"ours_over_best_peer": 4.2},
    "multi_hot": {"ours_over_best_peer": 4.2},
    "large_tables": {"ours_over_best_peer": 2.5},
    "middle": {"ours_over_best_peer": 2.5, "float32_over_peer": 2.0},
    "mlperf": {
        "ours_over_best_peer": 2.0,
        "float32_over_peer": 1.35,
        "gemm_share_float32": 0.80,
        "gemm_share_bfloat16": 0.55,
    },
}


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """All figures of one shape. figures: by arm. peers: the fastest peer in each precision. ratios: medians of the
    quotients within a round. failures, left_out: reasons by arm."""

    name: str
    shape: Shape
    figures: Mapping[str, ArmFigures]
    peers: Mapping[Precision, str | None]
    ratios: Mapping[str, float | None]
    rejected: int
    kept_disturbed: int
    failures: Mapping[str, str]
    left_out: Mapping[str, str]
    verdicts: Mapping[str, Verdict]

    def speed(self, arm: str | None) -> float | None:
        """Samples/s: the median over the rounds; None if the arm was not measured."""
        figures = self.figures.get(arm or "")
        return None if figures is None else figures.median

    def to_json(self) -> dict[str, Any]:
        speeds = {f"ours_{precision}": self.speed(f"ours_{precision}") for precision in PRECISIONS}
        speeds |= {f"peer_{precision}": self.speed(self.peers[precision]) for precision in PRECISIONS}
        return {
            **{name: None if speed is None else round(speed) for name, speed in speeds.items()},
            **{name: None if ratio is None else round(ratio, 3) for name, ratio in self.ratios.items()},
        }


def shape_result(
    name: str,
    shape: Shape,
    outcome: Outcome[MeasuredWindow],
    memory: Mapping[str, Mapping[str, int]],
    failures: Mapping[str, str],
    left_out: Mapping[str, str],
) -> ShapeResult:
    """The figures of a shape. memory: bytes by role, by arm."""
    measured = [one.found for one in outcome.measured if one.found is not None]
    windows = [one.window for one in measured]
    figures = {
        arm: found
        for arm in outcome.benchmark.arms
        if (found := arm_figures(arm, windows, memory.get(arm, {}))) is not None
    }
    ours = [arm for arm in figures if arm.startswith("ours_")]
    others = [arm for arm in figures if not arm.startswith(("ours_", "gemm_"))]
    peers = {
        precision: _fastest([arm for arm in others if arm.endswith(precision)], figures) for precision in PRECISIONS
    }
    pairs = (
        _pair("ours_over_best_peer", _fastest(ours, figures), _fastest(others, figures)),
        _pair("float32_over_peer", "ours_float32", peers["float32"]),
        *(_pair(f"gemm_share_{precision}", f"ours_{precision}", f"gemm_{precision}") for precision in PRECISIONS),
    )
    aims = tuple(Aim(figure, bound, "at least", form=".2f") for figure, bound in AIMS.get(name, {}).items())
    judged = Outcome(replace(outcome.benchmark, pairs=pairs, aims=aims), outcome.measured)
    return ShapeResult(
        name=name,
        shape=shape,
        figures=figures,
        peers=peers,
        ratios=ratios_of(judged),
        rejected=sum(one.rejected for one in measured),
        kept_disturbed=sum(window.is_disturbed for window in windows),
        failures=failures,
        left_out=left_out,
        verdicts={verdict.aim.figure: verdict for verdict in judged.verdicts()},
    )


def _fastest(arms: Sequence[str], figures: Mapping[str, ArmFigures]) -> str | None:
    return max(arms, key=lambda arm: figures[arm].median, default=None)


def _pair(name: str, arm: str | None, against: str | None) -> PairedFigure[MeasuredWindow]:
    return PairedFigure(name, "", arm or "", against or "", speed_quotient, form=".2f")
