"""The verb `report` for a host: whether its dispatcher still runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from elastichost.errors import PreflightError
from elastichost.runs.directory import lock_directory
from tests.cli.conftest import Elastichost
from tests.reporting.host_remains import host, job, write_batch, write_host


def reported(elastichost: Elastichost, directory: Path) -> Any:
    outcome = elastichost("report", str(directory), "--json")
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.last_line)["summary"]["is_running"]


@pytest.mark.parametrize("pid", [os.getpid(), 4_000_000], ids=["of another process", "not of this container"])
def test_a_host_runs_while_its_directory_is_locked_whatever_its_pid(
    elastichost: Elastichost, tmp_path: Path, pid: int
) -> None:
    directory = write_batch(tmp_path / "batch")
    write_host(directory, host(directory, job("ads", "running"), pid=pid, state="running"))
    lock = lock_directory(directory, "the dispatcher's directory", PreflightError("taken"))
    assert reported(elastichost, directory) is True
    write_host(directory, host(directory, job("ads"), pid=pid, state="ended"))
    assert reported(elastichost, directory) is False, "its last status says that it has ended"
    write_host(directory, host(directory, job("ads", "running"), pid=pid, state="running"))
    os.close(lock)
    assert reported(elastichost, directory) is False, "it was killed"
