"""The whole data-plane benchmark with two arms and windows that are too short for figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.data_plane import benchmark as data_plane
from benchmarks.data_plane.comparison import tensorflow_version


@pytest.mark.thorough
@pytest.mark.system
def test_two_arms_from_start_to_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brief = ["--quick", "--json", "--rounds", "1", "--window", "0.1", "--samples", "70000", "--batch-sizes", "512"]
    code = data_plane.main([*brief, "--only", "direct1,tbe1", "--out", str(tmp_path)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert captured.out.count("\n") == 1
    told = json.loads(captured.out)
    assert list(told)[:2] == ["batch_size", "ratios"]
    assert told["ratios"]["direct2_over_tbe1"] is None
    assert told["best_peer"] == "tbe1"
    assert set(told["arms"]) == {"tbe1", "direct1"}
    direct = told["arms"]["direct1"]
    assert direct["samples_per_s"]["min"] > 0
    assert {"worker", "server", "supervisor", "fork_server"} == set(direct["memory_bytes_by_role"])
    assert "| direct1 |" in (tmp_path / "data_plane.md").read_text()


def test_a_python_without_tensorflow_is_detected() -> None:
    assert tensorflow_version("/does/not/exist") is None


def test_batches_that_the_samples_do_not_fill_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        data_plane.main(["--samples", "1000", "--batch-sizes", "512,8192"])
    assert "at least two batches" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.system
def test_a_shape_from_start_to_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = "dim=32 batch=256 bottom=64-32 top=64-1 tables=4 rows=1000 ids=2"
    brief = ["--quick", "--json", "--rounds", "1", "--window", "0.1", "--samples", "20000"]
    code = data_plane.main([*brief, "--shape", shape, "--out", str(tmp_path)])
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    found = told["shapes"][shape]
    assert found["ours_float32"] > 0 and found["peer_float32"] > 0 and found["peer_bfloat16"] > 0
    assert set(told["missing"].get(shape, {})) <= {"ours_bfloat16"}, "which a CPU without units refuses"
    assert code == (1 if told["missing"] else 0), captured.err
    assert f"| {shape} |" in (tmp_path / "shapes.md").read_text()


def test_a_shape_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        data_plane.main(["--shape", "dim=32"])
    assert "bottom must end in dim" in capsys.readouterr().err
