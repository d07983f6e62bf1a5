"""Groups of processes that fit into memory, and the modes of peers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.data_plane.shapes import arms
from benchmarks.peers.common import Counter, PeerMode, PeerSettings
from benchmarks.workload.shape import SHAPES, Shape


def test_large_tables_leave_out_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = arms.shape_entries()
    monkeypatch.setattr(arms.psutil, "virtual_memory", lambda: SimpleNamespace(available=21 * 2**30))
    taken, left_out = arms.admitted(entries, SHAPES["large_tables"])
    assert set(taken) == {"ours_float32", "ours_bfloat16", "tbe"}
    assert set(left_out) == {"dmp"} and "GiB are needed" in left_out["dmp"]
    taken, left_out = arms.admitted(entries, SHAPES["mlperf"])
    assert (set(taken), left_out) == (set(entries), {})


def test_a_peer_has_a_mode_for_each_precision() -> None:
    names = [name for process in arms.shape_entries() for name in arms.modes_of(process)]
    assert {"tbe1_float32", "tbe1_bfloat16", "dmp_float32", "dmp_bfloat16"} <= set(names)
    assert len(set(names)) == len(names)


def test_the_counter_tells_the_peer_its_mode(tmp_path: Path) -> None:
    counter = Counter.create(tmp_path / "counter", PeerMode(2))
    seen = Counter(tmp_path / "counter")
    assert seen.mode == PeerMode(2, is_bfloat16=False)
    counter.set_mode(PeerMode(1, is_bfloat16=True))
    counter.add(3, 50)
    assert (seen.mode, seen.total()) == (PeerMode(1, is_bfloat16=True), 50)


def test_settings_of_a_peer_come_back_from_their_text() -> None:
    settings = PeerSettings("dlrm", Shape(dim=32, bottom=(8, 32)), 512, 2, "batches", "counter", "folder", "job")
    assert PeerSettings.from_json(settings.to_json()) == settings
