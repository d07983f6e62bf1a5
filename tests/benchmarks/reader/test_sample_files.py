"""Generated files: equal for equal seeds, with empty fields for null values."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.reader import sample_files


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
