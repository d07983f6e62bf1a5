"""The scale-out benchmark: a real run with a worker that joins and leaves, and the arithmetic of its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.harness.aggregates import Percentiles
from benchmarks.recovery import scale_out

TINY = (
    "data.synthetic.rows=100000",
    "data.synthetic.test_rows=1000",
    "data.synthetic.tables=4",
    "data.synthetic.table_rows=500",
    "train.batch_size=128",
)


@pytest.mark.thorough
@pytest.mark.system
def test_the_steps_of_every_join_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    monkeypatch.setattr(scale_out, "BATCHES_BETWEEN", 3)
    settings = [part for setting in TINY for part in ("--set", setting)]
    scale_out.main(["--times", "2", "--hand-overs", "2", "--json", *settings])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    figures = found["figures"]
    assert found["benchmark"] == "scale-out"
    assert figures["times"] == 2
    assert tuple(figures["steps"]) == scale_out.STEPS
    assert (figures["hand_overs"], figures["buckets"]) == (2, 4 * 16 // 2)
    for part in (figures["total"], figures["left"], figures["hand_over"], *figures["steps"].values()):
        assert 0 <= part["p50"] <= part["p99"] <= part["worst"]
    assert figures["total"]["worst"] <= sum(step["worst"] for step in figures["steps"].values()) + 1e-9
    assert list(tmp_path.iterdir()) == [], "no files may remain"


def test_percentiles_are_over_all_joins() -> None:
    found = [scale_out.ScaleOut(dict.fromkeys(scale_out.STEPS, 0.1 * n), 0.01 * n) for n in (1, 2, 3)]
    moves = [scale_out.HandOver(32, 0.001 * n, 0.5 + 0.1 * n) for n in (1, 2, 3)]
    figures = cast(dict[str, Any], scale_out.figures_of(found, moves))
    assert figures["total"].p50 == pytest.approx(0.2 * len(scale_out.STEPS))
    assert figures["total"].worst == pytest.approx(0.3 * len(scale_out.STEPS))
    assert figures["steps"]["fork"] == Percentiles(3, 0.2, pytest.approx(0.3), pytest.approx(0.3))
    assert figures["left"].worst == pytest.approx(0.03)
    assert figures["hand_over"].p50 == pytest.approx(0.002)
    assert (figures["dip_p50"], figures["dip_worst"]) == (pytest.approx(0.7), pytest.approx(0.6))
