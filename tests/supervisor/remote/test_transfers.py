"""Files between hosts, a few pieces at a time: what comes is what was sent, and nobody waits for a lost host."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.errors import ProtocolError
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.agent_tasks import below, read_piece, remove, write_piece
from elastichost.supervisor.remote.messages import PIECE_BYTES
from elastichost.supervisor.remote.transfers import UNDER_WAY, TransferEnd, Transfers
from tests.full_disk import file_limit


class Bench:
    """A host's files, and transfers with it. `asked`: orders that it has not followed yet."""

    def __init__(self, folder: Path) -> None:
        self.there = folder / "there"
        self.there.mkdir()
        self.asked: list[said.AgentOrder] = []
        self.done: list[TransferEnd] = []
        self.most = 0
        self.transfers = Transfers(self.asked.append)

    def follow(self) -> None:
        """All that was asked for, as an agent does."""
        while self.asked:
            self.most = max(self.most, sum(isinstance(one, said.ReadFileMsg) for one in self.asked))
            match self.asked.pop(0):
                case said.ReadFileMsg(number=number, name=name, offset=offset):
                    try:
                        piece = said.FilePieceMsg(number, *read_piece(below(self.there, name), offset))
                    except OSError as error:
                        piece = said.FilePieceMsg(number, b"", True, str(error.strerror))
                    self.transfers.came(piece)
                case said.WriteFileMsg(name=name, offset=offset, data=data, is_last=is_last):
                    write_piece(below(self.there, name), offset, data)
                    if is_last:
                        self.transfers.written(said.FileWrittenMsg(name, ""))
                case said.RemoveFileMsg(name=name):
                    remove(below(self.there, name))

    def send(self) -> None:
        self.transfers.turn(lambda: True)
        self.follow()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 9 * PIECE_BYTES + 5])
def test_a_file_that_comes_is_what_was_there_and_is_gone_there(bench: Bench, tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (bench.there / "cut").mkdir()
    (bench.there / "cut" / "a.bin").write_bytes(content[:size])
    bench.transfers.fetch("cut/a.bin", tmp_path / "a.bin", bench.done.append)
    bench.follow()
    assert bench.done == [TransferEnd()]
    assert (tmp_path / "a.bin").read_bytes() == content[:size]
    assert list(bench.there.iterdir()) == []
    assert bench.most <= UNDER_WAY


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_a_file_that_goes_is_there_as_it_was_here(bench: Bench, tmp_path: Path, size: int) -> None:
    (tmp_path / "b.bin").write_bytes(b"x" * size)
    bench.transfers.send("kept/b.bin", tmp_path / "b.bin", bench.done.append)
    bench.send()
    assert bench.done == [TransferEnd()]
    assert (bench.there / "kept" / "b.bin").read_bytes() == b"x" * size


def test_what_is_not_there_is_told(bench: Bench, tmp_path: Path) -> None:
    bench.transfers.fetch("none.bin", tmp_path / "none.bin", bench.done.append)
    bench.follow()
    bench.transfers.send("c.bin", tmp_path / "missing.bin", bench.done.append)
    assert bench.done[0] == TransferEnd("No such file or directory") and "missing.bin" in bench.done[1].problem


def test_a_lost_host_ends_all_of_them(bench: Bench, tmp_path: Path) -> None:
    (bench.there / "a.bin").write_bytes(b"x" * (8 * PIECE_BYTES))
    (tmp_path / "b.bin").write_bytes(b"x")
    bench.transfers.fetch("a.bin", tmp_path / "a.bin", bench.done.append)
    bench.transfers.send("b.bin", tmp_path / "b.bin", bench.done.append)
    bench.transfers.lost("it is gone")
    assert bench.done == [TransferEnd("it is gone")] * 2
    bench.follow()  # answers that were on their way
    assert bench.done == [TransferEnd("it is gone")] * 2


def test_a_host_that_is_lost_while_it_is_told_to_remove_a_file_has_sent_it(bench: Bench, tmp_path: Path) -> None:
    (bench.there / "a.bin").write_bytes(b"x")

    def say(order: said.AgentOrder) -> None:
        bench.asked.append(order)
        if isinstance(order, said.RemoveFileMsg):
            bench.transfers.lost("it is gone")

    bench.transfers = Transfers(say)
    bench.transfers.fetch("a.bin", tmp_path / "a.bin", bench.done.append)
    bench.transfers.fetch("b.bin", tmp_path / "b.bin", bench.done.append)
    bench.transfers.came(said.FilePieceMsg(1, b"x", True, ""))
    assert bench.done == [TransferEnd(), TransferEnd("it is gone")]
    assert (tmp_path / "a.bin").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["", "..", "../other", "/etc/passwd", "a/../../b", "."])
def test_nothing_outside_the_runs_directory_is_touched(bench: Bench, name: str) -> None:
    with pytest.raises(ProtocolError, match="no file below the run directory"):
        below(bench.there, name)


def test_a_disk_that_takes_a_part_only_fails_the_fetch(bench: Bench, tmp_path: Path) -> None:
    (bench.there / "a.bin").write_bytes(bytes(5000))
    bench.transfers.fetch("a.bin", tmp_path / "a.bin", bench.done.append)
    with file_limit(4000):
        bench.follow()
    assert len(bench.done) == 1
    assert "cannot write" in bench.done[0].problem
    assert bench.done[0].is_out_of_space
