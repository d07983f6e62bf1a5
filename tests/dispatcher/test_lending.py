"""Runs are told what is lent to them; nobody waits for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastichost.dispatcher import lending
from elastichost.dispatcher.effects import Resize
from elastichost.dispatcher.facts import Size
from elastichost.dispatcher.lending import Lender
from elastichost.wire.commands import Accepted, CommandServer, Lend, Reached, Refused

WAIT_MS = 10_000


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandServer]:
    """The run's end."""
    monkeypatch.chdir(tmp_path)
    server = CommandServer("ipc://commands")
    yield server
    server.close()


@pytest.fixture
def lender() -> Iterator[Lender]:
    made = Lender()
    yield made
    made.close()


def received(run: CommandServer) -> tuple[bytes, Lend]:
    assert run.socket.poll(WAIT_MS)
    found = run.receive()
    assert found is not None
    peer, command = found
    assert isinstance(command, Lend)
    return peer, command


def turns(lender: Lender, until: Callable[[], bool]) -> list[str]:
    problems: list[str] = []
    for _ in range(WAIT_MS // 5):
        problems += lender.turn()
        if until():
            return problems
        lending_wait()
    raise AssertionError("no answer came")


def lending_wait() -> None:
    import select

    select.select([], [], [], 0.005)


def test_what_is_lent_arrives_and_the_answers_are_taken(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, Resize("a", Size(3, 2, 4), (0, 5), 70))
    peer, command = received(run)
    assert command == Lend((0, 5), 70, 3, 2, 4)
    assert lender.turn() == [], "nobody waits"
    run.reply(peer, Accepted("it is being done"))
    run.reply(peer, Reached("it is so"))
    assert turns(lender, lambda: not lender._open) == []


def test_only_what_changes_is_said(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, Resize("a", memory_bytes=9))
    assert received(run)[1] == Lend(memory_bytes=9)


def test_a_refusal_is_told(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, Resize("a", memory_bytes=9))
    lender.lend(run.address, Resize("b", cores=(1,)))
    for _ in range(2):
        peer, command = received(run)
        run.reply(peer, Refused("the run is stopping") if command.cores is None else Reached("as it was"))
    assert turns(lender, lambda: not lender._open) == ["a keeps what it has: the run is stopping"]


def test_what_is_no_answer_is_told(run: CommandServer, lender: Lender) -> None:
    lender.lend(run.address, Resize("a", memory_bytes=9))
    peer, _ = received(run)
    run.socket.send_multipart([peer, b'{"type": "Nonsense"}'])
    (problem,) = turns(lender, lambda: not lender._open)
    assert problem.startswith("a: ")


def test_answers_that_never_come_are_given_up(lender: Lender, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lending, "MOST_OPEN", 3)
    for number in range(5):
        lender.lend(f"ipc://{tmp_path}/nobody", Resize(f"job-{number}", memory_bytes=9))
    assert [job for job, _ in lender._open] == ["job-2", "job-3", "job-4"]
    assert lender.turn() == []
    lender.close()
    assert lender.turn() == []
