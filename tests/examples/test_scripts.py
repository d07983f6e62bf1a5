"""The scripts of `examples` run in an empty directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import elastichost as eh
from tests.examples.kernels import ROOT, kernel_environment
from tests.system.test_run import folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(200), pytest.mark.thorough]

__all__ = ["folder"]


def test_the_quickstart_trains_and_scores(folder: Path) -> None:
    script = ROOT / "examples" / "quickstart.py"
    assert len(script.read_text().splitlines()) < 40
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=kernel_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "", "a script whose stderr is no terminal shows no progress"
    (path,) = (folder / "runs").glob("quickstart-*")
    run = eh.Run(path)
    assert run.metrics["auc"] > 0.75
    assert f"AUC {run.metrics['auc']:.3f}; the files of the run are in {path}" in ended.stdout
    assert "'probability': " in ended.stdout
