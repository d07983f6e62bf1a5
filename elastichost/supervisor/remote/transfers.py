"""Copies files from another host and to it, in pieces, of which only a few are under way at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elastichost.atomic_write import is_out_of_space, write_whole_at
from elastichost.supervisor.remote import messages as said

__all__ = ["TransferEnd", "Transfers"]

UNDER_WAY = 4  # pieces of one file that are requested and have not come
Say = Callable[[said.AgentOrder], None]


@dataclass(frozen=True, slots=True)
class TransferEnd:
    """The result of a transfer. problem: "", or why it failed. is_out_of_space: it failed because the disk of this
    machine is full."""

    problem: str = ""
    is_out_of_space: bool = False


Done = Callable[[TransferEnd], None]


@dataclass(slots=True)
class _Fetch:
    """A file that comes from the host."""

    name: str
    target: Path
    done: Done
    descriptor: int
    asked: int = 0  # bytes that were requested
    come: int = 0  # bytes that have come
    waiting: int = 0  # pieces that were requested and have not come


@dataclass(slots=True)
class _Sending:
    """A file that goes to the host."""

    name: str
    source: Path
    done: Done
    size_bytes: int
    sent: int = 0


@dataclass(slots=True)
class Transfers:
    """The transfers of one host. `turn` continues those to the host; those from it continue as pieces come.

    say: sends an order to the agent.
    """

    say: Say
    _fetches: dict[int, _Fetch] = field(default_factory=dict)
    _sending: deque[_Sending] = field(default_factory=deque)
    _sent: dict[str, Done] = field(default_factory=dict)  # files that were sent whole and are not confirmed yet
    _numbers: int = 0

    def fetch(self, name: str, target: Path, done: Done) -> None:
        """Copies a file of the run's directory there to `target`, with fsync, and removes it there. done: called with
        the result."""
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            done(TransferEnd(f"cannot create {target}: {error.strerror}", is_out_of_space(error)))
            return
        self._numbers += 1
        self._fetches[self._numbers] = _Fetch(name, target, done, descriptor)
        self._ask(self._numbers)

    def _ask(self, number: int) -> None:
        fetch = self._fetches[number]
        while fetch.waiting < UNDER_WAY:
            self.say(said.ReadFileMsg(number, fetch.name, fetch.asked))
            fetch.asked += said.PIECE_BYTES
            fetch.waiting += 1

    def came(self, piece: said.FilePieceMsg) -> None:
        """Takes a piece. Pieces come in the order in which they were requested."""
        fetch = self._fetches.get(piece.number)
        if fetch is None:
            return  # a piece beyond the end of the file, or of a transfer that has failed meanwhile
        fetch.waiting -= 1
        if piece.problem:
            self._end(piece.number, TransferEnd(piece.problem))
            return
        try:
            write_whole_at(fetch.descriptor, piece.data, fetch.come)
            fetch.come += len(piece.data)
            if piece.is_last:
                os.fsync(fetch.descriptor)
        except OSError as error:
            problem = f"cannot write {fetch.target}: {error.strerror}"
            self._end(piece.number, TransferEnd(problem, is_out_of_space(error)))
            return
        if piece.is_last:
            self._end(piece.number, TransferEnd())  # first, because the next call may find that the host is lost
            self.say(said.RemoveFileMsg(fetch.name))
        else:
            self._ask(piece.number)

    def remove(self, name: str) -> None:
        """Removes a file of the run's directory there. A transfer of it fails."""
        for number in [number for number, fetch in self._fetches.items() if fetch.name == name]:
            self._end(number, TransferEnd(f"the transfer of {name} was called off"))
        self.say(said.RemoveFileMsg(name))

    def _end(self, number: int, end: TransferEnd) -> None:
        fetch = self._fetches.pop(number)
        os.close(fetch.descriptor)
        fetch.done(end)

    def send(self, name: str, source: Path, done: Done) -> None:
        """Copies a file of this machine to `name` in the run's directory there. done: called with the result."""
        try:
            self._sending.append(_Sending(name, source, done, source.stat().st_size))
        except OSError as error:
            done(TransferEnd(f"cannot read {source}: {error.strerror}"))

    def turn(self, has_room: Callable[[], bool]) -> None:
        """Sends further pieces while `has_room` holds, that is, while no bytes wait to be written."""
        while self._sending and has_room():
            one = self._sending[0]
            try:
                with one.source.open("rb") as file:
                    file.seek(one.sent)
                    data = file.read(said.PIECE_BYTES)
            except OSError as error:
                self._sending.popleft()
                one.done(TransferEnd(f"cannot read {one.source}: {error.strerror}"))
                continue
            is_last = one.sent + len(data) >= one.size_bytes
            self.say(said.WriteFileMsg(one.name, one.sent, data, is_last))
            one.sent += len(data)
            if is_last:
                self._sending.popleft()
                self._sent[one.name] = one.done

    def written(self, word: said.FileWrittenMsg) -> None:
        """Takes the confirmation of a file that was sent."""
        done = self._sent.pop(word.name, None)
        if done is not None:
            done(TransferEnd(word.problem))

    def lost(self, reason: str) -> None:
        """The host is lost: all transfers fail with this reason."""
        end = TransferEnd(reason)
        while self._fetches:  # `done` of one transfer may end others
            self._end(next(iter(self._fetches)), end)
        pending = [*(one.done for one in self._sending), *self._sent.values()]
        self._sending.clear()
        self._sent.clear()
        for done in pending:
            done(end)
