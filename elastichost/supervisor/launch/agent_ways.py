"""What an agent finds out for its supervisor before processes go there: who reaches whom, how fast, and which files."""

from __future__ import annotations

import queue
import socket
import threading
from pathlib import Path

from elastichost.supervisor.launch import agent_messages as said
from elastichost.supervisor.launch.knocking import knock, open_door
from elastichost.supervisor.launch.link_speed import receive_stream, send_stream

__all__ = ["Question", "Ways"]

Question = said.Listen | said.Knock | said.ReceiveStream | said.SendStream | said.LookAtFiles


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

    def ask(self, question: Question) -> None:
        match question:
            case said.Listen(address=address):
                self._door = self._open(address)
            case said.Knock(address=address, port=port):
                self._answers.put(said.Knocked(knock(address, port)))
            case said.ReceiveStream(address=address):
                door = self._open(address)
                if door is not None:
                    threading.Thread(target=self._receive, args=(door,), daemon=True).start()
            case said.SendStream(address=address, port=port):
                threading.Thread(target=self._send, args=(address, port), daemon=True).start()
            case said.LookAtFiles(paths=paths):
                self._answers.put(said.FilesSeen(tuple(map(_size_bytes, paths))))

    def _open(self, address: str) -> socket.socket | None:
        self.close()
        try:
            door = open_door(address)
        except OSError as error:
            self._answers.put(said.Listening(0, str(error)))
            return None
        self._answers.put(said.Listening(door.getsockname()[1], ""))
        return door

    def _receive(self, door: socket.socket) -> None:
        with door:
            self._answers.put(said.StreamReceived(receive_stream(door)))

    def _send(self, address: str, port: int) -> None:
        try:
            send_stream(address, port)
        except OSError as error:
            self._answers.put(said.StreamSent(str(error) or type(error).__name__))
        else:
            self._answers.put(said.StreamSent(""))

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
