"""The reader benchmark reads every format, and every sample of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.reader import benchmark as reader
from benchmarks.reader import sample_files

GENERATED = ["parquet-integers", "parquet-strings", "criteo-tsv", "csv"]


@pytest.mark.parametrize("options", [[], ["--shuffle"]])
def test_every_format_is_read_to_tensors_and_to_rows(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample_files.write_clicks(tmp_path / "train.parquet", 1_500, seed=1)
    reader.main(["--rows", "3000", "--repeat", "2", "--json", "--data", str(tmp_path), *options])
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
    assert any(line.startswith("criteo-tsv") and "<= 2.0" in line for line in lines)


def test_the_same_seed_makes_the_same_file(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        sample_files.write_clicks(tmp_path / name, 100, seed)
    first, same, other = (pq.read_table(tmp_path / name) for name in "abc")
    assert first.equals(same)
    assert not first.equals(other)
    assert sample_files.criteo_table(50, 3).equals(sample_files.criteo_table(50, 3))


def test_text_files_have_empty_fields_where_values_are_null(tmp_path: Path) -> None:
    table = sample_files.criteo_table(500, 0)
    sample_files.write_text(table, tmp_path / "tsv", delimiter="\t", header=False)
    lines = (tmp_path / "tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 500
    assert {line.count("\t") for line in lines} == {39}
    nulls = sum(column.null_count for column in table.columns)
    assert nulls > 0
    assert sum(line.split("\t").count("") for line in lines) == nulls
