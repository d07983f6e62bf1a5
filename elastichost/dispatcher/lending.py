"""Tells runs what of the host is theirs from now on, and hears whether they have made room."""

from __future__ import annotations

from collections import deque

from elastichost.dispatcher.effects import Resize
from elastichost.errors import ProtocolError
from elastichost.wire.commands import Accepted, CommandClient, Lend, Refused

__all__ = ["Lender"]

MOST_OPEN = 256  # commands that are not answered yet; the oldest is given up then


class Lender:
    """Nothing here waits: answers are taken by `turn`."""

    def __init__(self) -> None:
        self._open: deque[tuple[str, CommandClient]] = deque()

    def lend(self, address: str, resize: Resize) -> None:
        size = resize.size
        client = CommandClient(address)
        client.send(
            Lend(
                cores=resize.cores,
                memory_bytes=resize.memory_bytes,
                workers=size.workers if size is not None else None,
                servers=size.servers if size is not None else None,
                worker_cores=size.worker_cores if size is not None else None,
            )
        )
        self._open.append((resize.job, client))
        if len(self._open) > MOST_OPEN:
            self._open.popleft()[1].close()

    def turn(self) -> list[str]:
        """Call it often. What was refused, in words."""
        problems, left = [], deque[tuple[str, CommandClient]]()
        for job, client in self._open:
            try:
                reply = client.receive(0.0)
            except ProtocolError as error:
                problems.append(f"{job}: {error}")
                client.close()
                continue
            if reply is None or isinstance(reply, Accepted):
                left.append((job, client))
                continue
            if isinstance(reply, Refused):
                problems.append(f"{job} keeps what it has: {reply.message}")
            client.close()
        self._open = left
        return problems

    def close(self) -> None:
        for _, client in self._open:
            client.close()
        self._open.clear()
