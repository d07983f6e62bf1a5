"""Transfers of files between hosts in pieces: files arrive unchanged, and the loss of a host ends all transfers."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.errors import ProtocolError
from elastichost.supervisor.remote import messages
from elastichost.supervisor.remote.agent_tasks import below, read_piece, remove, write_piece
from elastichost.supervisor.remote.messages import PIECE_BYTES
from elastichost.supervisor.remote.transfers import UNDER_WAY, TransferEnd, Transfers
from tests.full_disk import file_limit


class Bench:
    """The files of a host, and transfers to and from it. orders: sent to its agent, which has not followed them yet.
    most: of requests under way at a time."""

    def __init__(self, folder: Path) -> None:
        self.remote = folder / "there"
        self.remote.mkdir()
        self.orders: list[messages.AgentOrder] = []
        self.done: list[TransferEnd] = []
        self.most = 0
        self.transfers = Transfers(self.orders.append)

    def follow(self) -> None:
        """Follows all orders, as an agent does."""
        while self.orders:
            self.most = max(self.most, sum(isinstance(one, messages.ReadFileMsg) for one in self.orders))
            match self.orders.pop(0):
                case messages.ReadFileMsg(number=number, name=name, offset=offset):
                    try:
                        piece = messages.FilePieceMsg(number, *read_piece(below(self.remote, name), offset))
                    except OSError as error:
                        piece = messages.FilePieceMsg(number, b"", True, str(error.strerror))
                    self.transfers.came(piece)
                case messages.WriteFileMsg(name=name, offset=offset, data=data, is_last=is_last):
                    write_piece(below(self.remote, name), offset, data)
                    if is_last:
                        self.transfers.written(messages.FileWrittenMsg(name, ""))
                case messages.RemoveFileMsg(name=name):
                    remove(below(self.remote, name))

    def send(self) -> None:
        """Sends all pieces; the agent follows the orders."""
        self.transfers.turn(lambda: True)
        self.follow()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A host without files."""
    return Bench(tmp_path)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 9 * PIECE_BYTES + 5])
def test_a_fetched_file_is_unchanged_and_is_removed_from_the_host(bench: Bench, tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (bench.remote / "cut").mkdir()
    (bench.remote / "cut" / "a.bin").write_bytes(content[:size])
    bench.transfers.fetch("cut/a.bin", tmp_path / "a.bin", bench.done.append)
    bench.follow()
    assert bench.done == [TransferEnd()]
    assert (tmp_path / "a.bin").read_bytes() == content[:size]
    assert list(bench.remote.iterdir()) == []
    assert bench.most <= UNDER_WAY


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_a_file_that_is_sent_arrives_unchanged(bench: Bench, tmp_path: Path, size: int) -> None:
    (tmp_path / "b.bin").write_bytes(b"x" * size)
    bench.transfers.send("kept/b.bin", tmp_path / "b.bin", bench.done.append)
    bench.send()
    assert bench.done == [TransferEnd()]
    assert (bench.remote / "kept" / "b.bin").read_bytes() == b"x" * size


def test_the_transfer_of_a_missing_file_fails(bench: Bench, tmp_path: Path) -> None:
    bench.transfers.fetch("none.bin", tmp_path / "none.bin", bench.done.append)
    bench.follow()
    bench.transfers.send("c.bin", tmp_path / "missing.bin", bench.done.append)
    assert bench.done[0] == TransferEnd("No such file or directory") and "missing.bin" in bench.done[1].problem


def test_the_loss_of_a_host_ends_all_its_transfers(bench: Bench, tmp_path: Path) -> None:
    (bench.remote / "a.bin").write_bytes(b"x" * (8 * PIECE_BYTES))
    (tmp_path / "b.bin").write_bytes(b"x")
    bench.transfers.fetch("a.bin", tmp_path / "a.bin", bench.done.append)
    bench.transfers.send("b.bin", tmp_path / "b.bin", bench.done.append)
    bench.transfers.lost("it is gone")
    assert bench.done == [TransferEnd("it is gone")] * 2
    bench.follow()  # answers that were on their way
    assert bench.done == [TransferEnd("it is gone")] * 2


def test_a_fetch_succeeds_if_the_host_is_lost_while_the_file_is_removed_there(bench: Bench, tmp_path: Path) -> None:
    (bench.remote / "a.bin").write_bytes(b"x")

    def send_order(order: messages.AgentOrder) -> None:
        bench.orders.append(order)
        if isinstance(order, messages.RemoveFileMsg):
            bench.transfers.lost("it is gone")

    bench.transfers = Transfers(send_order)
    bench.transfers.fetch("a.bin", tmp_path / "a.bin", bench.done.append)
    bench.transfers.fetch("b.bin", tmp_path / "b.bin", bench.done.append)
    bench.transfers.came(messages.FilePieceMsg(1, b"x", True, ""))
    assert bench.done == [TransferEnd(), TransferEnd("it is gone")]
    assert (tmp_path / "a.bin").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["", "..", "../other", "/etc/passwd", "a/../../b", "."])
def test_nothing_outside_the_runs_directory_is_touched(bench: Bench, name: str) -> None:
    with pytest.raises(ProtocolError, match="is not a file below the run directory"):
        below(bench.remote, name)


def test_a_fetch_fails_if_the_disk_becomes_full(bench: Bench, tmp_path: Path) -> None:
    (bench.remote / "a.bin").write_bytes(bytes(5000))
    bench.transfers.fetch("a.bin", tmp_path / "a.bin", bench.done.append)
    with file_limit(4000):
        bench.follow()
    assert len(bench.done) == 1
    assert "cannot write" in bench.done[0].problem
    assert bench.done[0].is_out_of_space
