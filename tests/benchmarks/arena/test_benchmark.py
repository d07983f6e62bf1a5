"""The arena benchmark runs and its figures are plausible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.arena import benchmark


@pytest.fixture
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate root for arenas, so that leftovers are detected."""
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    return tmp_path


def test_figures_of_every_part(own_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = benchmark.main(["--keys", "20000", "--repeat", "2", "--json"])
    *tables, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    figures = found["figures"]
    assert found["benchmark"] == "arena"
    assert set(figures["insert_ns"]) == set(figures["lookup_ns"]) == {"elastichost", "torchrec_mch", "dict"}
    for kinds in figures["lookup_ns"].values():
        assert set(kinds) == {"uniform", "zipf"}
        assert all(0 < spread["least"] <= spread["median"] <= spread["most"] for spread in kinds.values())
    assert 0 < figures["growth_ms"]["p50"] <= figures["growth_ms"]["p99"] <= figures["growth_ms"]["worst"]
    memory = figures["memory_ratio"]
    assert 1.0 <= memory["fixed"] < 1.1
    assert memory["dynamic_rows_bytes"] >= 4 * benchmark.DIM
    assert memory["dynamic_index_bytes"] >= 16 / 0.7, "an index must not be fuller than its limit"
    assert min(figures["snapshot_s_per_gb"].values()) > 0
    assert set(figures["row_gb_per_s"]) == {"copy", "rows of 64", "rows of 128", "rows of 256"}
    assert all(one[kind]["least"] > 0 for one in figures["row_gb_per_s"].values() for kind in ("lookup", "update"))
    assert [one["bound"] for one in found["verdicts"]] == [5.0, 1.05]
    assert code == int(not all(one["reached"] for one in found["verdicts"]))
    assert any(line.startswith("torchrec_mch") for line in tables) and any("<= 1.05" in line for line in tables)
    assert list(own_root.iterdir()) == [], "no arena may remain"
