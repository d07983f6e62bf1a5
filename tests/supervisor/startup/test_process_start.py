"""The request for a process of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.startup.process_start import request_process
from elastichost.wire.child import ChildArguments

PROCESS = ProcessId("worker", 0, 2)


@pytest.mark.parametrize("is_emulated", [False, True])
def test_a_process_is_requested_on_its_host_with_its_function_and_its_log(tmp_path: Path, is_emulated: bool) -> None:
    place = SimpleNamespace(control_address="ipc:///c", run_dir="/r", arena="", sockets="", gate="", is_elsewhere=False)
    requests: list[SpawnRequest] = []
    run: Any = SimpleNamespace(
        job=SimpleNamespace(emulate=SimpleNamespace(enabled=is_emulated)),
        entries=SimpleNamespace(of=lambda role: f"tests:{role}"),
        directory=SimpleNamespace(log_of=lambda process: tmp_path / f"{process}.log"),
        place=lambda host: place,
        keyring=None,
        job_id=5,
        plan=SimpleNamespace(access="direct"),
        supervisor_pid=1,
        launcher=SimpleNamespace(spawn=requests.append),
    )
    request_process(run, ProcessRecord(PROCESS, ProcessSpec("worker", 0, (0, 1), 2, host=3), 0.0, 0.0), None, ())
    (request,) = requests
    assert (request.process, request.entry, request.host) == (PROCESS, "tests:worker", 3)
    assert request.log == tmp_path / f"{PROCESS}.log"
    assert request.cores == (() if is_emulated else (0, 1))
    told = msgspec.json.decode(request.arguments, type=ChildArguments)
    assert (told.index, told.incarnation, told.control_address, told.cores) == (0, 2, "ipc:///c", (0, 1))
