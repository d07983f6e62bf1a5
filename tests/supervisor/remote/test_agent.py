"""An agent goes on, and tells so, if its machine can keep no log of a process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.plan import ProcessId
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.agent import Agent
from tests.supervisor.launch.test_fork_server_client import Receiving

PROCESS = ProcessId("worker", 3, 1)
ORDER = said.SpawnProcessMsg(PROCESS, "tests:worker", b"{}", (0,), {})


@pytest.fixture
def server() -> Receiving:
    return Receiving()


@pytest.fixture
def agent(server: Receiving, tmp_path: Path) -> Iterator[Agent]:
    """An agent that keeps logs in the folder `logs`. Its pipe keeps what it says in `words`."""
    words: list[Any] = []
    pipe: Any = SimpleNamespace(send=words.append, words=words)
    made = Agent(pipe)

    def log_of(process: ProcessId) -> Path:
        return tmp_path / "logs" / f"{process}.log"

    with LocalLauncher((), start=server.start) as launcher:
        made._host = SimpleNamespace(launcher=launcher, log_of=log_of)  # type: ignore[assignment]
        yield made


def words_after(agent: Agent) -> list[Any]:
    """What the agent says after it was ordered to start a process."""
    agent._spawn(ORDER)
    for event in agent._opened.launcher.events():
        agent._tell_event(event)
    words: list[Any] = agent._pipe.words  # type: ignore[attr-defined]
    return words


def test_a_process_whose_log_cannot_be_opened_starts_and_the_supervisor_is_told(
    agent: Agent, server: Receiving, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("a file in the place of the folder")
    assert words_after(agent) == [
        said.LogRefusedMsg(PROCESS, str(tmp_path / "logs" / f"{PROCESS}.log"), "Not a directory")
    ]
    assert server.logs() == [os.devnull]


def test_an_agent_that_can_open_no_file_refuses_the_process_and_goes_on(
    agent: Agent, server: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuses)
        (told,) = words_after(agent)
    assert isinstance(told, said.ProcessRefusedMsg) and "Too many open files" in told.reason
    assert server.logs() == []
