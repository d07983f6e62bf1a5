"""The verb scale: its arguments, errors and replies."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from elastichost.config.hosts import hosts_of_text
from elastichost.metrics import RunStatus
from elastichost.wire.commands import (
    AcceptedMsg,
    Command,
    CommandServer,
    JoinMsg,
    ReachedMsg,
    RefusedMsg,
    Reply,
    ScaleMsg,
)
from tests.cli.conftest import Elastichost, write_status


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("workers=0", "workers=0: the least is 1"),
        ("servers=two", "servers=two: 'two' is not a whole number"),
        ("workers=-1", "workers=-1: '-1' is not a whole number"),
        ("worker=3", "'worker=3' is not one of workers=COUNT"),
        ("wrokers=3", 'did you mean "workers"?'),
        ("workers=", "'' is not a whole number"),
    ],
)
def test_bad_arguments_end_with_2(elastichost: Elastichost, run_directory: Path, setting: str, problem: str) -> None:
    outcome = elastichost("scale", run_directory.name, setting)
    assert outcome.code == 2
    assert problem in outcome.stderr


def test_all_problems_at_once(elastichost: Elastichost, run_directory: Path) -> None:
    outcome = elastichost("scale", "latest", "workers=0", "servers=x", "workers=3", "what")
    assert outcome.code == 2
    assert all(word in outcome.stderr for word in ("workers=0", "servers=x", "'what'"))
    assert "workers is given twice" in elastichost("scale", "workers=3", "workers=3").stderr
    assert "nothing to scale" in elastichost("scale", "latest").stderr


def test_scaling_a_run_without_commands_ends_with_3(elastichost: Elastichost, running_directory: Path) -> None:
    outcome = elastichost("scale", "workers=3")
    assert outcome.code == 3
    assert "accepts no commands" in outcome.stderr


def test_scaling_a_run_that_is_not_running_ends_with_3(elastichost: Elastichost, run_directory: Path) -> None:
    outcome = elastichost("scale", "workers=3")
    assert outcome.code == 3
    assert f"is not running: its supervisor ({os.getpid()}) is gone" in outcome.stderr
    write_status(run_directory, "done", os.getpid())
    outcome = elastichost("scale", "workers=3")
    assert outcome.code == 3
    assert "is not running: done" in outcome.stderr
    assert elastichost("scale", "no-such-run", "workers=3").code == 2


class Answering:
    """A supervisor that gives these replies to one command."""

    def __init__(self, run: Path) -> None:
        self.server = CommandServer("ipc://commands")
        status = msgspec.json.decode((run / "status.json").read_bytes(), type=RunStatus)
        status = msgspec.structs.replace(status, commands=self.server.address)
        (run / "status.json").write_bytes(msgspec.json.encode(status))
        self.got: list[Command] = []

    def answer(self, *replies: Reply) -> None:
        def work() -> None:
            assert self.server.socket.poll(20_000)
            received = self.server.receive()
            assert received is not None
            self.got.append(received[1])
            for reply in replies:
                self.server.reply(received[0], reply)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def close(self) -> None:
        self._thread.join()
        self.server.close()


@pytest.fixture
def run(elastichost: Elastichost, running_directory: Path) -> Iterator[Answering]:
    answering = Answering(running_directory)
    try:
        yield answering
    finally:
        answering.close()


def test_scale_waits_until_the_size_is_reached(elastichost: Elastichost, run: Answering) -> None:
    run.answer(AcceptedMsg("new plan: 3 workers"), ReachedMsg("workers 1 -> 3", {"reached_s": 0.2}))
    outcome = elastichost("scale", "latest", "workers=3", "worker_cores=2")
    assert (outcome.code, outcome.stdout) == (0, "workers 1 -> 3\n")
    assert "new plan: 3 workers" in outcome.stderr
    assert run.got == [ScaleMsg(workers=3, worker_cores=2)]


def test_json_is_one_object(elastichost: Elastichost, run: Answering, run_directory: Path) -> None:
    run.answer(AcceptedMsg("soon"), ReachedMsg("workers 1 -> 3", {"reached_s": 0.2}))
    facts = json.loads(elastichost("scale", "workers=3", "--json").stdout)
    assert facts == {
        "schema": "elastichost/v1",
        "run_dir": str(run_directory),
        "status": "reached",
        "text": "workers 1 -> 3",
        "reached_s": 0.2,
    }


def test_without_waiting(elastichost: Elastichost, run: Answering) -> None:
    run.answer(AcceptedMsg("soon"))
    assert elastichost("scale", "servers=2", "--no-wait").stdout == "soon\n"


@pytest.mark.parametrize(("is_usage", "code"), [(True, 2), (False, 3)])
def test_a_refusal_has_its_reason(elastichost: Elastichost, run: Answering, is_usage: bool, code: int) -> None:
    run.answer(RefusedMsg("workers=999 is out of range (1 to 256)", "name fewer", is_usage))
    outcome = elastichost("scale", "workers=999")
    assert outcome.code == code
    assert "workers=999 is out of range (1 to 256)" in outcome.stderr
    assert "name fewer" in outcome.stderr


def test_a_supervisor_that_is_replaced_after_it_got_the_command_is_not_waited_for(
    elastichost: Elastichost, running_directory: Path
) -> None:
    first, second = Answering(running_directory).server, CommandServer("ipc://others")
    facts = msgspec.json.decode((running_directory / "status.json").read_bytes(), type=RunStatus)
    replaced = msgspec.json.encode(msgspec.structs.replace(facts, commands=second.address))

    def replace_it() -> None:
        first.wait(60.0)
        (running_directory / "status.json").write_bytes(replaced)

    replacing = threading.Thread(target=replace_it)
    replacing.start()
    outcome = elastichost("scale", "workers=3")
    replacing.join()
    first.close()
    second.close()
    assert outcome.code == 3
    assert "is gone, and another one works now" in outcome.stderr


def test_machines_join_with_the_numbers_that_are_named(elastichost: Elastichost, run: Answering) -> None:
    run.answer(AcceptedMsg("starting an agent on b"), ReachedMsg("workers 2 -> 4"))
    outcome = elastichost("scale", "latest", "servers=2", "--host", "user@b")
    assert (outcome.code, outcome.stdout) == (0, "workers 2 -> 4\n")
    (got,) = run.got
    assert isinstance(got, JoinMsg)
    assert (got.workers, got.servers) == (None, 2)
    assert [host.address for host in hosts_of_text(got.hosts).hosts] == ["user@b"]


def test_machines_join_without_a_number(elastichost: Elastichost, run: Answering) -> None:
    run.answer(RefusedMsg("no machine joins: b: versions"))
    outcome = elastichost("scale", "--host", "user@b")
    assert outcome.code == 3
    assert "no machine joins: b: versions" in outcome.stderr
    assert isinstance(run.got[0], JoinMsg)
