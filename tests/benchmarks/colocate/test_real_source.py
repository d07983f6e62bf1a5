"""Real jobs on one source: the dispatcher finds its rate, which nothing tells it, and loses it at no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.colocate.jobs import QUICK, SHAPES, SOURCE_BYTES_PER_S, job_of, write_job
from benchmarks.colocate.shared_source import SOURCE_VARIABLE, SharedSource
from benchmarks.harness.workshop import ROOT

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]

SECONDS = (8, 12, 16, 24)  # of each job, if it had the source alone; the last has it alone for a while at the end


def test_the_rate_of_a_shared_source_is_found(tmp_path: Path) -> None:
    shape = next(one for one in SHAPES if one.name == "disk-a")
    jobs = [
        replace(job_of(shape, number, QUICK), samples=round(seconds * shape.samples_per_s))
        for number, seconds in enumerate(SECONDS, start=1)
    ]
    files = [str(write_job(tmp_path, job)) for job in jobs]
    source = tmp_path / "source"
    environment = {"PYTHONPATH": str(ROOT), "ELASTICHOST_HISTORY": "off", SOURCE_VARIABLE: str(source)}
    command = [sys.executable, "-m", "elastichost", "run", *files, "--run-dir", "host", "--dashboard", "no"]
    found: list[float] = []
    with (
        SharedSource(source, SOURCE_BYTES_PER_S),
        subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as run,
    ):
        while run.poll() is None:
            time.sleep(0.5)
            path = tmp_path / "host" / "host.json"
            jobs_now = json.loads(path.read_text())["jobs"] if path.exists() else []
            running = [job for job in jobs_now if job["state"] == "running" and job["demand_basis"]]
            found += [job["read_bytes_per_s"] for job in running if job["demand_basis"][2] == "measured"]
        assert run.returncode == 0, run.stderr.read().decode() if run.stderr is not None else ""
    assert found, "no job has a measured demand on the input"
    assert found == pytest.approx([SOURCE_BYTES_PER_S] * len(found), rel=0.15)
