"""The listening socket of a gate, and its limit on descriptors.

Each connection costs a descriptor until it is authenticated or closed, and a process without free descriptors can open
no file. So when half of the descriptors are used, a socket filter drops new connections for a while; established ones
are unaffected, and the process keeps its port.
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

# Length of the kernel's queue of new connections. If it is full, a client tries again after a second. It is long, so
# that an admitted process does not have to wait behind many others.
KNOCKING = 1024
SILENT_S = 3  # for this time the kernel does not pass a connection to the process before data arrives on it
MOST_DESCRIPTORS = 65_536
LOOK_EVERY_S = 0.1

# From asm-generic/socket.h and linux/filter.h: a filter of one instruction that drops every packet.
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_TAKE_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


class Door:
    """The listening socket for one ROUTER. address: `tcp://10.0.0.1:*` (any free port) or `tcp://[::1]:5000`."""

    def __init__(self, address: str) -> None:
        """Raises OSError when the address is not an address of this machine, or is in use."""
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
        self._listener.setblocking(False)  # so that ZeroMQ's thread does not wait for a client that has disconnected
        self.address = f"tcp://{host}:{self._listener.getsockname()[1]}"
        self._limit = _raise_limit()
        self._look_at_s = 0.0
        self.is_shut = False

    def lead_to(self, router: zmq.Socket[bytes]) -> None:
        """Binds a ROUTER to this listening socket."""
        router.setsockopt(zmq.USE_FD, os.dup(self._listener.fileno()))  # ZeroMQ closes the duplicate
        router.bind(self.address)

    def tend(self, now_s: float) -> None:
        """Drops new connections when more than half of the descriptors are used, until less than a quarter is used.
        Established connections stay; a client that connects meanwhile tries again later. Call it often."""
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
    """Raises this process' limit of descriptors to the hard limit, at most to MOST_DESCRIPTORS. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft
