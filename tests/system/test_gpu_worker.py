"""A worker with the step of a GPU, in Triton's interpreter, and its readers: accounting and promises under kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.nvml.recorded import ONE_BUSY
from tests.system.gpu_runs import gpu_environment, gpu_job
from tests.system.test_run import ROOT, folder

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]

__all__ = ["folder"]

LIMIT_S = 280.0


def test_no_sample_is_lost_or_doubled_when_its_processes_are_killed(folder: Path) -> None:
    told = folder / "nvml.json"
    told.write_text(json.dumps({"state": ONE_BUSY}))
    job = gpu_job(folder, "workers = 1\ngpus = 1", rows=60_000, every_s=2)
    command = [sys.executable, "-m", "elastichost", "chaos", str(job), "--run-dir", str(folder / "run"), "--json"]
    kinds = [word for role in ("worker", "reader", "server") for word in ("--fault", f"kill-{role}")]
    faults = [*kinds, "--for", "25s", "--every", "3s", "--no-twins"]
    done = subprocess.run(
        [*command, *faults, "--seed", "3"],
        cwd=ROOT,
        env=gpu_environment(told),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["violations"] == []
    assert facts["kills"] >= 2
    assert facts["invariants"]["A"] and facts["invariants"]["O"]
    logs = "".join(path.read_text() for path in (folder / "run" / "logs").glob("worker-*.log"))
    assert "rows are looked up on the CPU" not in logs
