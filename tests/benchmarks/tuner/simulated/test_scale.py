"""The benchmark of the largest clusters runs its parts, and prints what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.tuner.simulated import scale
from benchmarks.tuner.simulated.scale import Scale, measure


def trace(folder: Path) -> Path:
    rows = [f"j{number},{3000 * number},{600 + 60 * number},{1 + number % 4}" for number in range(40)]
    path = folder / "trace.csv"
    path.write_text("\n".join(["job_id,submission_time,duration,num_gpu", *rows]))
    return path


def test_the_simulator_alone() -> None:
    found = measure(Scale("engine", jobs=20, hosts=2))
    assert found.policy == "static" and found.completed > 0 and found.most_at_once > 1
    assert 0 < found.busy <= 1 and found.events > found.decisions > 0
    assert found.engine_s > 0 and found.peak_bytes > 2**20
    assert found.aim.endswith("at full size"), "a small run is not judged"


def test_a_trace_is_folded_until_it_has_the_load(tmp_path: Path) -> None:
    path = str(trace(tmp_path))
    found = measure(Scale("trace", jobs=40, hosts=2, policy="static", trace=path))
    assert found.completed > 0 and found.period_h < 30, "the trace lasts 32.5 hours"
    light = measure(Scale("trace", jobs=40, hosts=200, policy="static", trace=path))
    assert light.period_h < found.period_h
    as_it_was = measure(Scale("trace", jobs=40, hosts=2, load=0.01, policy="static", trace=path))
    assert as_it_was.period_h == pytest.approx(32.5)


@pytest.mark.thorough
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--jobs", "6", "--hosts", "2", "--policy", "tuned", "--hosts-mix", "three", "--json"]
    assert scale.main([*arguments, "--trace", str(trace(tmp_path))]) == 0
    *tables, last = capsys.readouterr().out.splitlines()
    assert any("peak, MiB" in line for line in tables)
    assert [one["scale"]["part"] for one in json.loads(last)["figures"]["parts"]] == ["engine", "decision", "trace"]


def test_a_missing_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--part", "trace"]) == 2
    assert "needs --trace" in capsys.readouterr().err
    assert scale.main(["--part", "trace", "--trace", str(tmp_path / "none.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err
