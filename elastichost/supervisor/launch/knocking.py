"""Whether one machine reaches another at an address: a port that is open for a moment, and somebody who knocks."""

from __future__ import annotations

import socket

__all__ = ["knock", "open_door"]

KNOCK_TIMEOUT_S = 3.0


def open_door(address: str) -> socket.socket:
    """Listens at any port of this address; close it. Raises OSError when it is none of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.bind((address, 0))
        door.listen(8)
    except OSError:
        door.close()
        raise
    return door


def knock(address: str, port: int) -> str:
    """ "" when somebody listens there, or why that is not seen."""
    try:
        socket.create_connection((address, port), KNOCK_TIMEOUT_S).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
