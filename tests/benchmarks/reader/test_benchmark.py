"""The reader benchmark reads every sample of every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.reader import benchmark, sample_files

GENERATED = ["parquet-integers", "parquet-strings", "criteo-tsv", "csv"]


@pytest.mark.parametrize("options", [[], ["--shuffle"]])
def test_every_format_is_read_to_tensors_and_to_rows(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample_files.write_clicks(tmp_path / "train.parquet", 1_500, seed=1)
    code = benchmark.main(["--rows", "3000", "--repeat", "2", "--json", "--data", str(tmp_path), *options])
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[-1])
    costs = found["figures"]["costs"]
    assert found["benchmark"] == "reader"
    assert found["machine"]["cores"] >= 1
    assert sorted(costs) == sorted([*GENERATED, "retail"])
    assert [costs[name]["samples"] for name in GENERATED] == [3000] * 4
    assert costs["retail"]["samples"] == 1_500
    for cost in costs.values():
        assert 0 < cost["reading_us"]["least"] <= cost["reading_us"]["median"] <= cost["reading_us"]["most"]
        assert cost["and_rows_us"]["least"] > 0
    assert any(line.startswith("criteo-tsv: reading: CPU time") and "<= 2" in line for line in lines)
    assert [one["bound"] for one in found["verdicts"]] == [0.8, 1.2, 1.2, 2.0]
    assert code == int(not all(one["reached"] for one in found["verdicts"]))
