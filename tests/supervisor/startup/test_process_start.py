"""A process starts even if its log cannot be opened."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.events import LogNotKept
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.startup.process_start import request_process
from tests.supervisor.noted import Noted

PROCESS = ProcessId("worker", 0, 2)


class OpensLogs:
    """A launcher that opens the log of a request as `LocalLauncher` does, and keeps the request."""

    def __init__(self) -> None:
        self.requests: list[SpawnRequest] = []

    def spawn(self, request: SpawnRequest) -> None:
        os.close(os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600))
        self.requests.append(request)


def request(logs: Path) -> tuple[SpawnRequest, Noted]:
    """The request that reached the launcher for a worker whose log is in `logs`, and the events."""
    noted, launcher = Noted(), OpensLogs()
    place = SimpleNamespace(control_address="", run_dir="", arena="", sockets="", gate="", is_elsewhere=False)
    run: Any = SimpleNamespace(
        job=SimpleNamespace(emulate=SimpleNamespace(enabled=False)),
        entries=SimpleNamespace(of=lambda role: f"tests:{role}"),
        directory=SimpleNamespace(log_of=lambda process: logs / f"{process}.log"),
        place=lambda host: place,
        keyring=None,
        job_id="j",
        plan=SimpleNamespace(access="local"),
        supervisor_pid=1,
        launcher=launcher,
        **noted.attributes,
    )
    record = ProcessRecord(PROCESS, ProcessSpec("worker", 0, (0,), 1), 0.0, 0.0)
    request_process(run, record, None, ())
    (found,) = launcher.requests
    return found, noted


def test_the_folder_of_the_logs_is_made_anew(tmp_path: Path) -> None:
    found, noted = request(tmp_path / "logs")
    assert found.log.parent == tmp_path / "logs" and found.log.exists()
    assert not noted.events


def test_a_process_whose_log_cannot_be_opened_starts_without_it(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file in the place of the folder")
    found, noted = request(tmp_path / "logs")
    assert found.log == Path(os.devnull)
    (told,) = noted.of(LogNotKept)
    assert told.process == PROCESS and str(tmp_path / "logs") in told.error
    assert "starts without a log" in noted.texts[0]


def test_no_file_at_all_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(OSError, match="Too many open files"):
        request(tmp_path)
