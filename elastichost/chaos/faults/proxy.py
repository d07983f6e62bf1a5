"""A proxy for ZeroMQ messages between the processes of a run: it drops, duplicates, delays, reorders, truncates and
corrupts messages, decided by a seed, and can partition roles for a time.

The processes of a run with ELASTICHOST_VIA_PROXY connect to `<socket>.via` instead of `<socket>` (`wire.sockets`). The
proxy watches the run's socket directory. For each socket there it binds the socket `.via`, and for each peer that
connects to that it opens its own connection to the real socket, with the identity of the peer.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zmq

from elastichost.chaos.faults.message_faults import Link, MessageRates, Partition, decide, delay_s, is_cut, spoil
from elastichost.wire.sockets import VIA_SUFFIX

__all__ = ["FaultProxy"]

TURN_S = 0.005
MESSAGES_PER_TURN = 256
MOST_PEERS = 4096
MOST_SOCKETS = 16_384
IDLE_S = 20.0  # the connection of a peer that is silent for longer is closed; its next message opens another one

Socket = zmq.Socket[bytes]


@dataclass(slots=True)
class _Peer:
    """One peer of a socket. dealer: its connection to the real socket; up, down: the links to and from the real socket;
    spoke_s: when its last message came."""

    dealer: Socket
    up: Link
    down: Link
    spoke_s: float = 0.0


@dataclass(slots=True)
class _Door:
    """One socket of the run. router: its `.via` socket; target: the address of the real socket; held: a heap of delayed
    messages (when due, order, whether to the real socket, identity of the peer, parts); busy_until_s: when the last
    delayed message of a link is due."""

    name: str
    router: Socket
    target: str
    peers: dict[bytes, _Peer] = field(default_factory=dict)
    held: list[tuple[float, int, bool, bytes, list[bytes]]] = field(default_factory=list)
    busy_until_s: dict[Link, float] = field(default_factory=dict)


class FaultProxy:
    """The proxy. Use as a context manager. It works in its own thread; other threads may use `partition`, `counts` and
    `failure`."""

    def __init__(self, sockets: Path, seed: int, rates: MessageRates) -> None:
        self._directory, self._seed, self._rates = sockets, seed, rates
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MOST_SOCKETS)
        self._doors: dict[str, _Door] = {}
        self._partitions: list[Partition] = []
        self._numbers: Counter[Link] = Counter()
        self._order = itertools.count()
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self.counts: Counter[tuple[str, str]] = Counter()  # (type of message, action) -> count

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._context.destroy(linger=0)

    @property
    def failure(self) -> Exception | None:
        """The error that ended the thread; None: it works. Without the proxy the result of the run means nothing."""
        return self._failure

    def partition(self, sender_role: str, receiver_role: str, seconds: float) -> None:
        """From now on, for `seconds`, no message from the one role ("worker", "server" or "supervisor") reaches the
        other."""
        now_s = time.monotonic()
        self._partitions = [*self._partitions, Partition(sender_role, receiver_role, now_s, now_s + seconds)]

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - the user of the proxy checks `failure`
            self._failure = error

    def _serve(self) -> None:
        poller = zmq.Poller()
        while not self._ending.is_set():
            self._open_doors(poller)
            ready = dict(poller.poll(int(1000 * TURN_S)))
            for door in self._doors.values():
                if door.router in ready:
                    self._take_up(door, poller)
                for identity, peer in list(door.peers.items()):
                    if peer.dealer in ready:
                        self._take_down(door, identity, peer)
                self._release(door, time.monotonic())

    def _open_doors(self, poller: zmq.Poller) -> None:
        try:
            present = {path.name for path in self._directory.iterdir() if path.is_socket()}
        except FileNotFoundError:
            return  # it does not exist yet, or was removed
        for name in [known for known in self._doors if known not in present]:
            self._close_door(self._doors.pop(name), poller)
        for name in sorted(present):
            if name.endswith(VIA_SUFFIX) or name in self._doors:
                continue
            router = self._context.socket(zmq.ROUTER)
            router.setsockopt(zmq.LINGER, 0)
            router.bind(f"ipc://{self._directory / name}{VIA_SUFFIX}")
            self._doors[name] = _Door(name, router, f"ipc://{self._directory / name}")
            poller.register(router, zmq.POLLIN)

    def _close_door(self, door: _Door, poller: zmq.Poller) -> None:
        """Closes the sockets of a door after its real socket was removed."""
        for socket in (door.router, *(peer.dealer for peer in door.peers.values())):
            poller.unregister(socket)
            socket.close()

    def _take_up(self, door: _Door, poller: zmq.Poller) -> None:
        for _ in range(MESSAGES_PER_TURN):
            try:
                identity, *parts = door.router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if identity not in door.peers:
                if len(door.peers) >= MOST_PEERS:
                    return
                self._forget_idle(door, poller)
                door.peers[identity] = self._connect(door, identity, poller)
            peer = door.peers[identity]
            peer.spoke_s = time.monotonic()
            self._pass(door, True, identity, peer.up, parts)

    def _take_down(self, door: _Door, identity: bytes, peer: _Peer) -> None:
        for _ in range(MESSAGES_PER_TURN):
            try:
                parts = peer.dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._pass(door, False, identity, peer.down, parts)

    def _forget_idle(self, door: _Door, poller: zmq.Poller) -> None:
        since_s = time.monotonic() - IDLE_S
        waited_for = {identity for _, _, _, identity, _ in door.held}
        for identity in [one for one, peer in door.peers.items() if peer.spoke_s < since_s and one not in waited_for]:
            dealer = door.peers.pop(identity).dealer
            poller.unregister(dealer)
            dealer.close()

    def _connect(self, door: _Door, identity: bytes, poller: zmq.Poller) -> _Peer:
        dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.IDENTITY, identity)
        dealer.connect(door.target)
        poller.register(dealer, zmq.POLLIN)
        client = identity.decode(errors="replace").partition("/")[0]
        server = "supervisor" if door.name == "control" else door.name
        return _Peer(dealer, Link(client, server), Link(server, client))

    # --- one message ----------------------------------------------------------------------------------------

    def _pass(self, door: _Door, is_up: bool, identity: bytes, link: Link, parts: list[bytes]) -> None:
        now_s, kind = time.monotonic(), _kind(parts)
        number = self._numbers[link]
        self._numbers[link] += 1
        if is_cut(self._partitions, link, now_s):
            self.counts[kind, "cut off"] += 1
            return
        action = decide(self._seed, link, number, kind, self._rates)
        self.counts[kind, action] += 1
        if action == "drop":
            return
        if action in ("truncate", "corrupt"):
            parts = spoil(self._seed, link, number, action, parts)
        due_s = max(now_s, door.busy_until_s.get(link, 0.0))  # a later message does not overtake a delayed one ...
        if action == "delay":
            due_s += delay_s(self._seed, link, number)
            door.busy_until_s[link] = due_s
        elif action == "reorder":
            due_s += delay_s(self._seed, link, number)  # ... but overtakes a reordered one
        for _ in range(2 if action == "duplicate" else 1):
            if due_s > now_s:
                heapq.heappush(door.held, (due_s, next(self._order), is_up, identity, parts))
            else:
                self._forward(door, is_up, identity, parts)

    def _release(self, door: _Door, now_s: float) -> None:
        while door.held and door.held[0][0] <= now_s:
            _, _, is_up, identity, parts = heapq.heappop(door.held)
            self._forward(door, is_up, identity, parts)

    def _forward(self, door: _Door, is_up: bool, identity: bytes, parts: list[bytes]) -> None:
        if is_up:
            door.peers[identity].dealer.send_multipart(parts, copy=True)
        else:
            door.router.send_multipart([identity, *parts], copy=True)


def _kind(parts: list[bytes]) -> str:
    """The type of a message: the tag in its body; "?" when it cannot be read."""
    try:
        tag = msgspec.msgpack.decode(parts[1])["type"]
    except (IndexError, KeyError, TypeError, RecursionError, UnicodeDecodeError, msgspec.DecodeError):
        return "?"
    return tag if isinstance(tag, str) else "?"
