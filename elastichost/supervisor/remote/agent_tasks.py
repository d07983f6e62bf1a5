"""What an agent does beside its turns: probes of links, looks at files, checkpoints that it keeps for good.

A checkpoint that came for its run becomes a run directory that can be resumed on that machine.
"""

from __future__ import annotations

import queue
import shutil
import socket
import threading
from pathlib import Path

from elastichost.checkpoint.files import remove_tree
from elastichost.checkpoint.mirror import mirror_checkpoint
from elastichost.checkpoint.places import RUN_FILE
from elastichost.errors import ElastichostError, ProtocolError
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.agent_files import below
from elastichost.supervisor.remote.link_probe import knock, open_door, receive_stream, send_stream

__all__ = ["Question", "Ways", "keep"]

JOB, HOSTS, SOURCE, CHECKPOINTS = "job.resolved.toml", "hosts.json", "source", "checkpoints"
ALONE = '{"hosts": []}'  # whoever resumes it names the others, or they join

Question = (
    said.ListenMsg
    | said.ProbePortMsg
    | said.ReceiveStreamMsg
    | said.SendStreamMsg
    | said.StatFilesMsg
    | said.KeepCheckpointMsg
)


class Ways:
    """`answers` are what is to be said, in order; what takes its time is done in threads."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[said.AgentWord] = queue.SimpleQueue()
        self._door: socket.socket | None = None

    def answers(self) -> list[said.AgentWord]:
        """Since the last call."""
        found = []
        while not self._answers.empty():
            found.append(self._answers.get())
        return found

    def ask(self, question: Question, run_dir: Path | None) -> None:
        """run_dir: of the run; None: it was not opened yet. Raises ProtocolError for what needs one then."""
        match question:
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
                if run_dir is None:
                    raise ProtocolError("an agent was asked to keep a checkpoint before it was opened")
                what = (run_dir, below(run_dir, incoming), Path(directory), count)
                threading.Thread(target=lambda: self._answers.put(keep(*what)), daemon=True).start()

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


def _size_bytes(path: str) -> int:
    """-1: it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.seek(0, 2)
    except OSError:
        return -1


def keep(run_dir: Path, incoming: Path, directory: Path, count: int) -> said.CheckpointKeptMsg:
    """Verifies the checkpoint `incoming`, and makes it one of the newest `count` below the directory; the job and its
    source, from the run's directory, beside them. Never raises for what a disk does."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (JOB, RUN_FILE):
            shutil.copyfile(run_dir / name, directory / name)
        (directory / HOSTS).write_text(ALONE)
        shutil.copytree(run_dir / SOURCE, directory / SOURCE, dirs_exist_ok=True)
        size_bytes = mirror_checkpoint(incoming, directory / CHECKPOINTS, count)
        remove_tree(incoming)
    except ElastichostError as error:
        return said.CheckpointKeptMsg(0, error.message)
    except OSError as error:
        return said.CheckpointKeptMsg(0, f"{directory}: {error.strerror or error}")
    return said.CheckpointKeptMsg(size_bytes, "")
