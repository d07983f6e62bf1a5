"""Attackers of a run's sockets: connections without a key, and connections with an accepted key that send invalid data.

python -m benchmarks.hostile.attackers RATE      reads targets as JSON from stdin, and makes RATE attacks a second until
                                                 the end of stdin
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import psutil
import zmq
from zmq.utils.monitor import recv_monitor_message

from elastichost.wire.security.keys import KeyPair, Pass, present
from elastichost.wire.security.tcp_router import unforeseen

__all__ = [
    "CURVE_GREETING",
    "Target",
    "connect",
    "gates_of",
    "greeting",
    "is_let_in",
    "knock_and_go",
    "knocking",
    "stranger",
    "wait_closed",
]

GREETING_BYTES = 64
CONNECT_TIMEOUT_S = 5.0


class Target(msgspec.Struct, frozen=True):
    """A socket to attack. key: public key of the process that listens. insiders: accepted keys by incarnation. job_id:
    of the run."""

    host: str
    port: int
    key: str
    job_id: int = 0
    insiders: dict[str, KeyPair] = msgspec.field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"tcp://{self.host}:{self.port}"


def gates_of(pid: int) -> list[tuple[str, int]]:
    """The (address, port) pairs on which a process listens."""
    found = psutil.Process(pid).net_connections("tcp")
    return [(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN]


# --- below ZMTP -------------------------------------------------------------------------------------------------------


def greeting(mechanism: bytes) -> bytes:
    """The greeting of a ZMTP 3.1 client."""
    return b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


CURVE_GREETING = greeting(b"CURVE")
BEGINNINGS: tuple[bytes, ...] = (
    b"GET / HTTP/1.1\r\n\r\n",
    os.urandom(4096),
    b"\xff" + bytes(8) + b"\x7f\x03",
    greeting(b"NULL"),
    greeting(b"PLAIN") + b"\x04\x0d\x05HELLO\x01a\x01b",
    CURVE_GREETING + b"\x06" + struct.pack(">Q", 1 << 30) + bytes(1 << 16),
    CURVE_GREETING + b"\x04\xc8\x05HELLO" + bytes(194),
)


def connect(target: Target) -> socket.socket:
    return socket.create_connection((target.host, target.port), CONNECT_TIMEOUT_S)


def knock_and_go(target: Target, times: int) -> None:
    """Connects and closes `times` times."""
    for _ in range(times):
        connect(target).close()


def wait_closed(guests: Sequence[socket.socket], within_s: float) -> int:
    """The number of connections that the target did not close within `within_s` seconds."""
    poller, inside = select.poll(), {guest.fileno(): guest for guest in guests}
    for descriptor in inside:
        poller.register(descriptor, select.POLLIN)
    deadline_s = time.monotonic() + within_s
    while inside and time.monotonic() < deadline_s:
        for descriptor, _ in poller.poll(100):
            try:
                is_over = not inside[descriptor].recv(1 << 16)
            except OSError:
                is_over = True
            if is_over:
                poller.unregister(descriptor)
                del inside[descriptor]
    return len(inside)


# --- with keys --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stranger(target: Target, name: str, shown: Pass | None) -> Iterator[zmq.Socket[bytes]]:
    """A DEALER socket with this name; without keys it does not encrypt."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.IDENTITY, unforeseen(name))
        if shown is not None:
            present(shown, dealer)
        yield dealer


def is_let_in(target: Target, name: str, shown: Pass | None, within_s: float = 10.0) -> bool:
    """Whether a handshake succeeds. Raises TimeoutError if it neither succeeds nor fails in time."""
    with stranger(target, name, shown) as dealer:
        monitor = dealer.get_monitor_socket()
        try:
            dealer.connect(target.address)
            while monitor.poll(int(within_s * 1000)):
                event = recv_monitor_message(monitor)["event"]
                if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                    return True
                if event in _TURNED_AWAY:
                    return False
            raise TimeoutError(f"{target.address}: the handshake neither succeeded nor failed within {within_s:g} s")
        finally:
            dealer.disable_monitor()
            monitor.close()


_TURNED_AWAY = (
    zmq.Event.HANDSHAKE_FAILED_AUTH,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
    zmq.Event.DISCONNECTED,
    zmq.Event.CLOSED,
)


# --- a program --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Crowd:
    """The attacks of one attacker, in turn. It keeps the last few connections open."""

    target: Target
    held: list[socket.socket]

    def say_nonsense(self, number: int) -> None:
        with contextlib.suppress(OSError):
            guest = connect(self.target)
            self.held.append(guest)
            guest.sendall(BEGINNINGS[number % len(BEGINNINGS)])
        while len(self.held) > 50:
            self.held.pop(0).close()

    def come_and_go(self, _: int) -> None:
        with contextlib.suppress(OSError):
            knock_and_go(self.target, 10)


def knocking(targets: Sequence[Target], rate: float, is_over: Callable[[float], bool]) -> int:
    """Makes `rate` attacks a second on all targets in turn until `is_over` returns True; `is_over` waits for the given
    seconds. Returns the number of attacks."""
    crowds = [_Crowd(target, []) for target in targets]
    insiders = [Insider(target) for target in targets if target.insiders]
    number, began_s = 0, time.monotonic()
    try:
        while not is_over(max(0.0, began_s + number / rate - time.monotonic())):
            crowd = crowds[number % len(crowds)]
            act = (crowd.say_nonsense, crowd.come_and_go)[number // len(crowds) % 2]
            act(number)
            for insider in insiders[number % len(crowds) :: len(crowds)]:
                insider.act(number)
            number += 1
    finally:
        for crowd in crowds:
            for guest in crowd.held:
                guest.close()
        for insider in insiders:
            insider.close()
    return number


class Insider:
    """An attacker with an accepted key: it sends invalid messages and reads no answers."""

    def __init__(self, target: Target) -> None:
        incarnation, keys = next(iter(target.insiders.items()))
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.setsockopt(zmq.LINGER, 0)
        self._dealer.setsockopt(zmq.IDENTITY, unforeseen(f"{incarnation}/hostile"))
        present(Pass(keys, target.key), self._dealer)
        self._dealer.connect(target.address)

    def act(self, number: int) -> None:
        """Sends a few invalid messages."""
        with contextlib.suppress(zmq.Again):
            for _ in range(10):
                self._dealer.send_multipart([os.urandom(48), bytes(100 * (number % 100))], zmq.NOBLOCK)

    def close(self) -> None:
        self._dealer.close()
        self._context.term()


def attack(rate: float) -> None:
    """Attacks until the end of stdin."""
    os.nice(19)
    targets = msgspec.json.decode(sys.stdin.readline(), type=list[Target])

    def is_over(wait_s: float) -> bool:
        return bool(select.select([sys.stdin], [], [], wait_s)[0])

    print(knocking(targets, rate, is_over), flush=True)


if __name__ == "__main__":
    attack(float(sys.argv[1]))
