"""The dispatcher sends runs the resources that it lends to them, and never blocks on their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastichost.dispatcher import resource_leases as lending
from elastichost.dispatcher.core.allocation_drift import Answer
from elastichost.dispatcher.core.effects import ResizeJob
from elastichost.dispatcher.facts import Size
from elastichost.dispatcher.resource_leases import Lender
from elastichost.wire.commands import AcceptedMsg, CommandServer, LendMsg, ReachedMsg, RefusedMsg
from tests.clock import ManualClock

WAIT_MS = 10_000


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandServer]:
    """The run's end of the connection."""
    monkeypatch.chdir(tmp_path)
    server = CommandServer("ipc://commands")
    yield server
    server.close()


@pytest.fixture
def lender() -> Iterator[Lender]:
    made = Lender()
    yield made
    made.close()


def received(run: CommandServer) -> tuple[bytes, LendMsg]:
    """Waits for the next command that the run gets."""
    assert run.socket.poll(WAIT_MS)
    found = run.receive()
    assert found is not None
    peer, command = found
    assert isinstance(command, LendMsg)
    return peer, command


def turns(lender: Lender, until: Callable[[], bool]) -> list[str]:
    """Turns the lender until `until` holds; returns the problems that it reported."""
    problems: list[str] = []
    for _ in range(WAIT_MS // 5):
        problems += lender.turn()
        if until():
            return problems
        lending_wait()
    raise AssertionError("no answer came")


def lending_wait() -> None:
    """Waits a moment for the next answer."""
    import select

    select.select([], [], [], 0.005)


def test_a_lend_command_arrives_and_its_answers_are_taken(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, ResizeJob("a", Size(3, 2, 4), (0, 5), 70))
    peer, command = received(run)
    assert command == LendMsg((0, 5), 70, 3, 2, 4)
    assert lender.turn() == [], "the lender does not wait for the answer"
    run.reply(peer, AcceptedMsg("it is being done"))
    run.reply(peer, ReachedMsg("it is so"))
    assert turns(lender, lambda: not lender._open) == []


def test_a_command_has_only_what_changes(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, ResizeJob("a", memory_bytes=9))
    assert received(run)[1] == LendMsg(memory_bytes=9)


def test_a_refusal_is_reported(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, ResizeJob("a", memory_bytes=9))
    lender.lend(run.address, ResizeJob("b", cores=(1,)))
    for _ in range(2):
        peer, command = received(run)
        run.reply(peer, RefusedMsg("the run is stopping") if command.cores is None else ReachedMsg("unchanged"))
    assert turns(lender, lambda: not lender._open) == ["a keeps its present resources: the run is stopping"]


def test_an_invalid_answer_is_reported(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, ResizeJob("a", memory_bytes=9))
    peer, _ = received(run)
    run.socket.send_multipart([peer, b'{"type": "Nonsense"}'])
    (problem,) = turns(lender, lambda: not lender._open)
    assert problem.startswith("a keeps its present resources: the run sent an invalid reply")


def test_each_answer_is_returned_once(run: CommandServer, lender: Lender) -> None:
    taken, refused = ResizeJob("a", cores=(0, 1)), ResizeJob("b", cores=(2,))
    for resize, reply in ((taken, ReachedMsg("unchanged")), (refused, RefusedMsg("the run is stopping"))):
        lender.lend(run.address, resize)
        run.reply(received(run)[0], reply)
    turns(lender, lambda: not lender._open)
    assert sorted(lender.answers(), key=str) == sorted([Answer(taken), Answer(refused, "the run is stopping")], key=str)
    assert lender.answers() == []


def test_a_command_that_a_newer_one_replaced_is_not_reported_as_refused(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, ResizeJob("a", Size(2, 1, 1)))
    first, _ = received(run)
    newest = ResizeJob("a", Size(3, 1, 1))
    lender.lend(run.address, newest)
    second, _ = received(run)
    run.reply(first, RefusedMsg("another plan change replaced this one before it was done"))
    run.reply(second, ReachedMsg("it is so"))
    assert turns(lender, lambda: not lender._open) == []
    assert lender.answers() == [Answer(newest)]


def test_a_run_that_does_not_answer_in_time_keeps_its_resources(run: CommandServer) -> None:
    clock = ManualClock()
    lender = Lender(clock)
    lost = ResizeJob("a", cores=(0,))
    lender.lend(run.address, lost)
    clock.advance(lending.UNANSWERED_S - 1)
    assert lender.turn() == []
    clock.advance(1)
    assert lender.turn() == ["a keeps its present resources: its supervisor did not answer in time"]
    assert lender.answers() == [Answer(lost, "its supervisor did not answer in time")]
    assert not lender._open


def test_a_run_that_takes_no_commands_yet_keeps_its_resources(lender: Lender) -> None:
    lender.lend("", ResizeJob("a", cores=(0,)))
    assert lender.turn() == ["a keeps its present resources: its supervisor takes no commands yet"]
    assert lender.answers()[0].problem


def test_commands_to_a_run_that_has_ended_are_forgotten(lender: Lender, tmp_path: Path) -> None:
    for job in ("a", "b", "a"):
        lender.lend(f"ipc://{tmp_path}/nobody", ResizeJob(job, memory_bytes=9))
    lender.lend("", ResizeJob("a"))
    clients = [one.client for one in lender._open if one.resize.job == "a"]
    lender.forget("a")
    assert [one.resize.job for one in lender._open] == ["b"]
    assert all(client._socket.closed for client in clients)
    assert lender.answers() == []


def test_the_oldest_of_too_many_unanswered_commands_are_given_up(
    lender: Lender, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lending, "MOST_OPEN", 3)
    for number in range(5):
        lender.lend(f"ipc://{tmp_path}/nobody", ResizeJob(f"job-{number}", memory_bytes=9))
    assert [one.resize.job for one in lender._open] == ["job-2", "job-3", "job-4"]
    given_up = ["job-0 keeps its present resources: it is the oldest of more than 3 unanswered commands"]
    assert lender.turn() == [
        *given_up,
        "job-1 keeps its present resources: it is the oldest of more than 3 unanswered commands",
    ]
    assert [answer.resize.job for answer in lender.answers()] == ["job-0", "job-1"]
    lender.close()
    assert lender.turn() == []
