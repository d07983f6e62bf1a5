"""The benchmark of the emulated cloud in its smallest size, with real processes: it has every figure."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from benchmarks.tuner.emulated import benchmark as emulated
from elastichost.tuner.facts import Configuration


@pytest.mark.thorough
@pytest.mark.system
def test_every_figure_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = emulated.measure(2, 5, 2, 1.5, 0.0, 0.1)
    out, calm = figures.scale_out, figures.steady
    assert 0 < out.started_s <= out.ready_s < out.trained_s
    assert (calm.workers, calm.servers, calm.late) == (5, 2, 0)
    assert calm.heartbeats >= 5 and 0 < calm.heartbeat_p50_s <= calm.heartbeat_p99_s <= calm.heartbeat_worst_s
    assert calm.private_bytes["worker"] < 20e6
    (speed,) = figures.speeds
    assert speed.configuration == Configuration(5, 2)
    assert 0 < speed.samples_per_s < 2 * speed.truth
    assert json.loads(msgspec.json.encode(figures))["aims"] == {"heartbeat_p99_s": 0.1, "supervisor_cores": 0.25}
    emulated.show(figures)
    assert "2 -> 5 workers" in capsys.readouterr().out
