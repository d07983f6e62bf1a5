"""What an agent does besides starting processes: it copies files of the run's directory piece by piece between its
other work, probes links, and keeps checkpoints.

A checkpoint to keep is put into a run directory on the agent's machine from which the run can be resumed there.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import threading
from pathlib import Path

from elastichost.checkpoint.files import remove_tree
from elastichost.checkpoint.mirror import mirror_checkpoint
from elastichost.checkpoint.places import RUN_FILE
from elastichost.datasets.files import PINNED_FILE
from elastichost.errors import ElastichostError, ProtocolError
from elastichost.run_files import CHECKPOINTS_FOLDER, HOSTS_FILE, RESOLVED_JOB_FILE
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.link_probe import knock, open_door, receive_stream, send_stream

__all__ = ["AgentTasks", "Question", "below", "keep", "read_piece", "remove", "write_piece"]

SOURCE = "source"
ALONE = '{"hosts": []}'  # a resumed run has no other machines unless the command names them or they join

FileOrder = said.ReadFileMsg | said.WriteFileMsg | said.RemoveFileMsg
Question = (
    FileOrder
    | said.ListenMsg
    | said.ProbePortMsg
    | said.ReceiveStreamMsg
    | said.SendStreamMsg
    | said.StatFilesMsg
    | said.KeepCheckpointMsg
)


class AgentTasks:
    """Performs orders, and collects the messages to send in `answers`, in order. Slow orders run in threads."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[said.AgentWord] = queue.SimpleQueue()
        self._door: socket.socket | None = None

    def answers(self) -> list[said.AgentWord]:
        """The answers since the last call."""
        found = []
        while not self._answers.empty():
            found.append(self._answers.get())
        return found

    def ask(self, question: Question, run_dir: Path | None) -> None:
        """Performs an order. run_dir: the run's directory; None before OpenMsg. Raises ProtocolError when the order
        needs the directory and there is none, or names a file outside it."""
        match question:
            case said.ReadFileMsg() | said.WriteFileMsg() | said.RemoveFileMsg():
                self._file(question, _opened(run_dir))
            case said.ListenMsg(address=address):
                self._door = self._open(address)
            case said.ProbePortMsg(address=address, port=port):
                self._answers.put(said.PortProbedMsg(knock(address, port)))
            case said.ReceiveStreamMsg(address=address):
                door = self._open(address)
                if door is not None:
                    threading.Thread(target=self._receive, args=(door,), daemon=True).start()
            case said.SendStreamMsg(address=address, port=port):
                threading.Thread(target=self._send, args=(address, port), daemon=True).start()
            case said.StatFilesMsg(paths=paths):
                self._answers.put(said.FilesStattedMsg(tuple(map(_size_bytes, paths))))
            case said.KeepCheckpointMsg(incoming=incoming, directory=directory, count=count):
                opened = _opened(run_dir)
                what = (opened, below(opened, incoming), Path(directory), count)
                threading.Thread(target=lambda: self._answers.put(keep(*what)), daemon=True).start()

    def _file(self, order: FileOrder, run_dir: Path) -> None:
        path = below(run_dir, order.name)
        problem, data, is_last = "", b"", True
        try:
            match order:
                case said.ReadFileMsg(offset=offset):
                    data, is_last = read_piece(path, offset)
                case said.WriteFileMsg(offset=offset):
                    write_piece(path, offset, order.data)
                case said.RemoveFileMsg():
                    remove(path)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
        if isinstance(order, said.ReadFileMsg):
            self._answers.put(said.FilePieceMsg(order.number, data, is_last, problem))
        elif isinstance(order, said.WriteFileMsg) and (order.is_last or problem):
            self._answers.put(said.FileWrittenMsg(order.name, problem))

    def _open(self, address: str) -> socket.socket | None:
        self.close()
        try:
            door = open_door(address)
        except OSError as error:
            self._answers.put(said.ListeningMsg(0, str(error)))
            return None
        self._answers.put(said.ListeningMsg(door.getsockname()[1], ""))
        return door

    def _receive(self, door: socket.socket) -> None:
        with door:
            self._answers.put(said.StreamReceivedMsg(receive_stream(door)))

    def _send(self, address: str, port: int) -> None:
        try:
            send_stream(address, port)
        except OSError as error:
            self._answers.put(said.StreamSentMsg(str(error) or type(error).__name__))
        else:
            self._answers.put(said.StreamSentMsg(""))

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None


def _opened(run_dir: Path | None) -> Path:
    if run_dir is None:
        raise ProtocolError("the agent got an order for the run's directory before OpenMsg")
    return run_dir


def _size_bytes(path: str) -> int:
    """The size of a file; -1 when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.seek(0, 2)
    except OSError:
        return -1


def below(directory: Path, name: str) -> Path:
    """The path of the file `name` in the directory. Raises ProtocolError when it is not below the directory."""
    path = directory / name
    if not name or not path.resolve().is_relative_to(directory.resolve()) or path == directory:
        raise ProtocolError(f"{name!r} is not a file below the run directory")
    return path


def read_piece(path: Path, offset: int) -> tuple[bytes, bool]:
    """Reads PIECE_BYTES of a file at `offset`. Returns (bytes, whether that was the last piece). Raises OSError."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(said.PIECE_BYTES)
        return data, offset + len(data) >= os.fstat(file.fileno()).st_size


def write_piece(path: Path, offset: int, data: bytes) -> None:
    """Writes a piece of a file at `offset`. A piece at 0 replaces an existing file. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if offset == 0 else 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.seek(offset)
        file.write(data)


def remove(path: Path) -> None:
    """Removes a file if it exists, and its directory if that is empty then. Raises OSError."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def keep(run_dir: Path, incoming: Path, directory: Path, count: int) -> said.CheckpointKeptMsg:
    """Verifies the checkpoint `incoming` and moves it to the directory, which keeps the newest `count` checkpoints, the
    job and the source of its model (both from `run_dir`). Raises nothing: a failure is in the answer's `problem`."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (RESOLVED_JOB_FILE, RUN_FILE, PINNED_FILE):
            shutil.copyfile(run_dir / name, directory / name)
        (directory / HOSTS_FILE).write_text(ALONE)
        shutil.copytree(run_dir / SOURCE, directory / SOURCE, dirs_exist_ok=True)
        size_bytes = mirror_checkpoint(incoming, directory / CHECKPOINTS_FOLDER, count)
        remove_tree(incoming)
    except ElastichostError as error:
        return said.CheckpointKeptMsg(0, error.message)
    except OSError as error:
        return said.CheckpointKeptMsg(0, f"{directory}: {error.strerror or error}")
    return said.CheckpointKeptMsg(size_bytes, "")
