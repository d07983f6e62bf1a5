"""The arena benchmark measures the index it says it measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.arena import benchmark as arena
from benchmarks.harness import measuring


@pytest.fixture
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Arenas lie here, so that what stays behind is seen."""
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    return tmp_path


def test_figures_of_every_part(own_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arena.main(["--keys", "20000", "--repeat", "2", "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    figures = found["figures"]
    assert found["benchmark"] == "arena"
    assert set(figures["insert_ns"]) == set(figures["lookup_ns"]) == {"elastichost", "torchrec_mch", "dict"}
    for kinds in figures["lookup_ns"].values():
        assert set(kinds) == {"uniform", "zipf"}
        assert all(0 < spread["least"] <= spread["median"] <= spread["most"] for spread in kinds.values())
    assert 0 < figures["growth_ms"]["p50"] <= figures["growth_ms"]["p99"] <= figures["growth_ms"]["worst"]
    memory = figures["memory_ratio"]
    assert 1.0 <= memory["fixed"] < 1.1
    assert memory["dynamic_rows_bytes"] >= 4 * arena.DIM
    assert memory["dynamic_index_bytes"] >= 16 / 0.7, "no index is fuller than it may be"
    assert min(figures["snapshot_s_per_gb"].values()) > 0
    assert list(own_root.iterdir()) == [], "nothing stays behind"


def test_the_managed_collision_module_knows_every_key_it_was_given() -> None:
    keys = arena.np.arange(1000) * 31
    collision = arena.ManagedCollision(len(keys))
    collision.insert(keys)
    assert len(set(collision.lookup(keys).tolist())) == len(keys)


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_measured_values(percent: float, expected: float) -> None:
    assert measuring.percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == expected


def test_rounds_alternate_their_direction() -> None:
    calls: list[tuple[str, int]] = []

    def arm(name: str, number: int) -> float:
        calls.append((name, number))
        return float(number)

    found = measuring.interleaved({"a": lambda n: arm("a", n), "b": lambda n: arm("b", n)}, 3)
    assert calls == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert found["a"] == measuring.Spread(1.0, 0.0, 2.0)
