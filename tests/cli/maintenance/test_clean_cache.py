"""`clean --cache` removes data of remote sources, and nothing without the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.datasets.sources.bounded_directory import BoundedDirectory
from tests.cli.conftest import Elastichost


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICHOST_CACHE", str(tmp_path / "cache"))
    directory = BoundedDirectory(tmp_path / "cache" / "ranges", 10_000)
    directory.use("group")
    claim = directory.claim("group", "file")
    assert claim is not None and directory.make(claim, [b"x" * 2048])
    claim.release()
    directory.close()
    return tmp_path / "cache" / "ranges" / "group" / "file"


def test_kept_data_is_removed_when_asked_for(elastichost: Elastichost, kept: Path) -> None:
    elastichost("clean")
    assert kept.exists()
    assert f"would remove {kept.parents[1]}  2.0 KiB" in elastichost("clean", "--cache", "--dry-run").stdout
    assert kept.exists()
    assert f"removed {kept.parents[1]}  2.0 KiB" in elastichost("clean", "--cache").stdout
    assert not kept.exists()
