"""A reader as its worker sees it: the link to it, and the rings that it publishes in."""

from __future__ import annotations

import contextlib
import socket
from collections import deque

from elastichost.datasets.sources.control import InputControl
from elastichost.worker.readers.link import LinkLostError, ReaderLink
from elastichost.worker.readers.messages import FromReader, FromWorker, RingMsg, RoomMsg, StagesMsg
from elastichost.worker.readers.records import Bytes, Kind, read_record
from elastichost.worker.readers.ring_memory import Ring

__all__ = ["ConnectedReader"]


class ConnectedReader:
    """One connection of a reader. The thread that reads calls all methods but `send`, which takes no part in rings."""

    def __init__(self, connection: socket.socket) -> None:
        self.link: ReaderLink[FromReader] = ReaderLink(connection, FromReader)
        self._rings: deque[Ring] = deque()

    def send(self, message: FromWorker) -> None:
        """Sends a message that must arrive. Raises LinkLostError."""
        self.link.send(message)

    def receive(self, control: InputControl) -> None:
        """Takes all messages that have arrived, and sends what waits. Raises LinkLostError."""
        while (received := self.link.receive()) is not None:
            message, descriptor = received
            if isinstance(message, RingMsg) and descriptor is not None:
                self._rings.append(Ring(descriptor, message.places, message.place_bytes))
                self._rings[-1].close()  # the memory stays mapped
            elif isinstance(message, StagesMsg):
                control.merge(message.stages)
                for trouble in message.troubles:
                    control.tell(trouble)
        self.link.flush()

    def next(self, of_round: int) -> Bytes | None:
        """The next record of this round; None: it is not published. Records of earlier rounds are dropped. What a lost
        reader has published is there as before: its memory is mapped."""
        while self._rings and (found := self._rings[0].next) is not None:
            record = read_record(found)
            if record.kind is Kind.MOVED and len(self._rings) > 1:
                self._rings.popleft()
            elif record.kind is Kind.MOVED:
                return None  # its message with the next ring was sent before, and is not read yet
            elif record.round < of_round:
                self.take()
            else:
                return found
        return None

    def take(self) -> None:
        """Gives the place of the next record back."""
        self._rings[0].take()
        with contextlib.suppress(LinkLostError):  # `receive` raises it
            self.link.hint(RoomMsg())

    def close(self) -> None:
        """Ends the connection."""
        self.link.close()
        self._rings.clear()
