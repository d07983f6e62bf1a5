"""A kept result names the commit that it measured, and whether files differed from it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.harness.commit import read_commit


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_the_commit_is_named_and_marked_when_files_differ(tmp_path: Path) -> None:
    assert read_commit(tmp_path) == ""
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    clean = read_commit(tmp_path)
    assert len(clean) == 12
    (tmp_path / "file").write_text("two")
    assert read_commit(tmp_path) == clean + "+"
    assert read_commit(tmp_path / "missing") == ""
