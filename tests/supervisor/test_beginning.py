"""A history that is out of reach is a warning, and the run begins without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config import load_job
from elastichost.datasets import open_reader
from elastichost.supervisor.beginning import Beginning, begin

JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
synthetic = { rows = 1000, test_rows = 1, tables = 1 }
"""


def begun(folder: Path) -> Beginning:
    path = folder / "job.toml"
    path.write_text(JOB)
    job = load_job(path, environ={})
    return begin(job, (), open_reader(job, "train").describe(), (0, 1), (), 1.0)


def test_without_a_home_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", "~nobody-of-that-name/history.sqlite")
    found = begun(tmp_path)
    assert "where the history lies is not known" in found.warnings[0]
    assert "without the history" in found.plan.reason


def test_in_somebody_elses_home_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(tmp_path / "history.sqlite"))

    own, exists = tmp_path / "history.sqlite", Path.exists

    def forbidden(path: Path) -> bool:
        if path == own:  # as for any user but root
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", forbidden)
    found = begun(tmp_path)
    assert "Permission denied" in found.warnings[0]
    assert "without the history" in found.plan.reason
