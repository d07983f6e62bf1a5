"""A job gets the size and the memory that it is lent, and its tuner asks the dispatcher before it changes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import JobSpec, load_job
from elastichost.dispatcher.facts import Size
from elastichost.dispatcher.job_process import JobArguments, fitted
from elastichost.resources import HostInventory

JOB = """
[job]
name = "a"
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
synthetic = {{ rows = 8192, test_rows = 1, tables = 1 }}
[tuner]
mode = "{mode}"
"""
LENT = HostInventory((0, 1), 10**9)


def job_of(folder: Path, mode: str, size: Size | None) -> JobSpec:
    """The job as its process gets it."""
    path = folder / "job.toml"
    path.write_text(JOB.format(mode=mode))
    arguments = JobArguments(str(path), str(folder), str(folder), str(folder / "run"), LENT, size)
    return fitted(load_job(path, environ={}), arguments)


@pytest.mark.parametrize(("mode", "becomes"), [("act", "propose"), ("watch", "watch"), ("off", "off")])
def test_with_a_lent_size_the_tuner_proposes_instead_of_acting(tmp_path: Path, mode: str, becomes: str) -> None:
    job = job_of(tmp_path, mode, Size(3, 2, 1))
    first = job.tuner.first_plan
    assert job.tuner.mode == becomes
    assert (first.workers, first.servers) == ((0, 0) if mode == "off" else (3, 2))
    assert job.resources.memory == LENT.memory_bytes


def test_a_job_that_chooses_its_size_itself_acts(tmp_path: Path) -> None:
    assert job_of(tmp_path, "act", None).tuner.mode == "act"
