"""The listening socket of a gate. Whoever knocks costs a descriptor until he is sent away, and a process without
descriptors can open no file: so where too many are in the house the door is shut for a while. Its port stays ours.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import socket
import struct

import zmq

__all__ = ["Door"]

# Beyond these the kernel has a caller knock again after a second: who may come in must not wait behind a crowd.
KNOCKING = 1024
SILENT_S = 3  # who connects and says nothing is not even let into the hall
MOST_DESCRIPTORS = 65_536
LOOK_EVERY_S = 0.1

# Of asm-generic/socket.h and linux/filter.h: a filter of one instruction, "take nothing of any packet".
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_TAKE_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


class Door:
    """For one ROUTER. address: `tcp://10.0.0.1:*` or `tcp://[::1]:5000`."""

    def __init__(self, address: str) -> None:
        """Raises OSError when the address is none of this machine's, or taken."""
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        is_version_6 = host.startswith("[")
        self._listener = socket.socket(socket.AF_INET6 if is_version_6 else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_S)
            self._listener.bind((host.strip("[]"), 0 if port == "*" else int(port)))
            self._listener.listen(KNOCKING)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)  # or ZeroMQ's thread would wait for a caller that has gone again
        self.address = f"tcp://{host}:{self._listener.getsockname()[1]}"
        self._limit = _raise_limit()
        self._look_at_s = 0.0
        self.is_shut = False

    def lead_to(self, router: zmq.Socket[bytes]) -> None:
        """Binds it."""
        router.setsockopt(zmq.USE_FD, os.dup(self._listener.fileno()))  # ZeroMQ closes it
        router.bind(self.address)

    def tend(self, now_s: float) -> None:
        """Shuts the door when half of the descriptors are taken, opens it when three quarters are free. Whoever is in
        stays; whoever knocks meanwhile is not heard, and knocks again. Call it often."""
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        taken = self._descriptors()
        if not self.is_shut and taken > self._limit // 2:
            instructions = ctypes.create_string_buffer(_TAKE_NOTHING)
            program = struct.pack("HP", 1, ctypes.addressof(instructions))
            self._listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
            self.is_shut = True
        elif self.is_shut and taken < self._limit // 4:
            self._listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
            self.is_shut = False

    def _descriptors(self) -> int:
        try:
            return len(os.listdir("/proc/self/fd"))
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            return self._limit

    def close(self) -> None:
        self._listener.close()


def _raise_limit() -> int:
    """Descriptors that this process may have: as many as it can be allowed, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft
