"""Files that the user may not read, and places that the user may not write to, are named with what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "elastichost"]
# root reads and writes every file unless it gives these capabilities up
AS_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]

pytestmark = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root without setpriv may read every file"
)


def call(directory: Path, *arguments: str) -> tuple[int, str]:
    """(exit code, stderr) of a verb that is called by a user without special rights."""
    command = [*(AS_USER if os.geteuid() == 0 else []), *PROGRAM, *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_journal_that_may_not_be_read(run_directory: Path) -> None:
    (run_directory / "journal.jsonl").chmod(0)
    code, stderr = call(run_directory, "events", str(run_directory))
    assert code == 3
    assert f"error  {run_directory}/journal.jsonl: Permission denied\n" in stderr
    assert "bug" not in stderr


def test_a_data_file_that_may_not_be_read(job_file: Path) -> None:
    job_file.write_text(
        '[model]\nbuild = "elastichost.models:dlrm"\n[data]\ntrain = "a.parquet"\nlabel = "y"\ncategorical = ["c"]\n'
    )
    (job_file.parent / "a.parquet").write_bytes(b"PAR1")
    (job_file.parent / "a.parquet").chmod(0)
    code, stderr = call(job_file.parent, "run", str(job_file), "--dry-run")
    assert code == 3
    assert "a.parquet: cannot be read (Permission denied): check that you may read it" in stderr


def test_a_run_directory_that_may_not_be_written(job_file: Path) -> None:
    closed = job_file.parent / "closed"
    closed.mkdir(mode=0o555)
    code, stderr = call(job_file.parent, "run", str(job_file), "--run-dir", "closed/run")
    assert code == 3
    assert f"the run directory {closed}/run could not be created: permission denied\n" in stderr
    assert "-> choose a place that you may write to" in stderr
