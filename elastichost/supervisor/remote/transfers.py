"""Files that come from another host, and go there: a few pieces under way at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elastichost.atomic_write import is_out_of_space, write_whole_at
from elastichost.supervisor.remote import messages as said

__all__ = ["TransferEnd", "Transfers"]

UNDER_WAY = 4
Say = Callable[[said.AgentOrder], None]


@dataclass(frozen=True, slots=True)
class TransferEnd:
    """problem: "" or why it failed. is_out_of_space: for want of space on this machine's disk."""

    problem: str = ""
    is_out_of_space: bool = False


Done = Callable[[TransferEnd], None]


@dataclass(slots=True)
class _Fetch:
    """A file that comes: what was asked for, what has come."""

    name: str
    target: Path
    done: Done
    descriptor: int
    asked: int = 0  # bytes
    come: int = 0
    waiting: int = 0  # pieces under way


@dataclass(slots=True)
class _Sending:
    name: str
    source: Path
    done: Done
    size_bytes: int
    sent: int = 0


@dataclass(slots=True)
class Transfers:
    """With one host. `turn` goes on with what is sent."""

    say: Say
    _fetches: dict[int, _Fetch] = field(default_factory=dict)
    _sending: deque[_Sending] = field(default_factory=deque)
    _sent: dict[str, Done] = field(default_factory=dict)  # whole, and not answered yet
    _numbers: int = 0

    def fetch(self, name: str, target: Path, done: Done) -> None:
        """A file of the run's directory there becomes `target`, on disk (fsync), and is removed there."""
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
        """Pieces come in the order they were asked for."""
        fetch = self._fetches.get(piece.number)
        if fetch is None:
            return  # asked for beyond the end, or it failed meanwhile
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
            self._end(piece.number, TransferEnd())  # first: the host may turn out to be lost while it is spoken to
            self.say(said.RemoveFileMsg(fetch.name))
        else:
            self._ask(piece.number)

    def remove(self, name: str) -> None:
        """A file of the run's directory there, whether it is wanted still or not."""
        for number in [number for number, fetch in self._fetches.items() if fetch.name == name]:
            self._end(number, TransferEnd("it is not wanted any more"))
        self.say(said.RemoveFileMsg(name))

    def _end(self, number: int, end: TransferEnd) -> None:
        fetch = self._fetches.pop(number)
        os.close(fetch.descriptor)
        fetch.done(end)

    def send(self, name: str, source: Path, done: Done) -> None:
        """A file of this machine becomes one of the run's directory there."""
        try:
            self._sending.append(_Sending(name, source, done, source.stat().st_size))
        except OSError as error:
            done(TransferEnd(f"cannot read {source}: {error.strerror}"))

    def turn(self, has_room: Callable[[], bool]) -> None:
        """has_room: what was said has gone out."""
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
        done = self._sent.pop(word.name, None)
        if done is not None:
            done(TransferEnd(word.problem))

    def lost(self, reason: str) -> None:
        """The host is."""
        end = TransferEnd(reason)
        while self._fetches:  # whoever is told may end others
            self._end(next(iter(self._fetches)), end)
        pending = [*(one.done for one in self._sending), *self._sent.values()]
        self._sending.clear()
        self._sent.clear()
        for done in pending:
            done(end)
