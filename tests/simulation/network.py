"""Simulates the sockets of `wire.sockets`, the clock and `wait_readable`: messages come late, are lost, or come twice.

With served access, data messages (between worker and PS) may be dropped, doubled, overtaken and delayed: the protocol
must survive that. Control messages, and data messages with direct access, arrive in order, as those of ZeroMQ do. The
last messages of a process before its end may be lost. Messages are passed as structs; frames are copied, because their
sender may write into them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import Envelope
from tests.simulation.world import Actor, World, active, current

__all__ = [
    "SIMULATED_OS",
    "SIMULATED_TIME",
    "Endpoint",
    "MessageFaults",
    "Network",
    "SimControlClient",
    "SimControlServer",
    "SimDataClient",
    "SimDataServer",
    "SimWaiter",
    "wait_readable",
]


@dataclass(frozen=True)
class MessageFaults:
    """Shares of data messages that are affected. are_ordered: no message is lost or overtaken."""

    drop: float = 0.0
    double: float = 0.0
    late: float = 0.0
    latency_s: float = 5e-4
    late_s: float = 0.05
    very_late_s: float = 1.5
    are_ordered: bool = False


@dataclass(eq=False)
class _InFlight:
    sender: Actor
    sent_at_s: float
    link: object
    is_lost: bool = False


@dataclass(eq=False)
class Network:
    """All connections of one world."""

    world: World
    faults: MessageFaults
    servers: dict[str, SimDataServer] = field(default_factory=dict)  # by address
    clients: dict[bytes, SimDataClient] = field(default_factory=dict)  # by identity
    controls: dict[ProcessId, SimControlClient] = field(default_factory=dict)
    control: SimControlServer | None = None
    listeners: list[Callable[[str, str, Any], None]] = field(default_factory=list)  # get sender, receiver, message
    _flying: deque[_InFlight] = field(default_factory=deque)
    _arrives_at_s: dict[object, float] = field(default_factory=dict)  # control links: no message overtakes another one

    def overheard(self, sender: str, receiver: str, message: Any) -> None:
        """Tells the listeners that a control message leaves its sender."""
        for listener in self.listeners:
            listener(sender, receiver, message)

    def data(self, link: object, deliver: Callable[[], None]) -> None:
        """Sends one data message."""
        random, faults = self.world.random, self.faults
        if faults.are_ordered:
            self.ordered(link, deliver)
            return
        draw = random.random()
        if draw < faults.drop:
            return
        copies = 2 if draw < faults.drop + faults.double else 1
        for _ in range(copies):
            delay_s = faults.latency_s * (0.2 + random.random())
            if random.random() < faults.late or copies == 2:
                delay_s += random.random() * (faults.late_s if random.random() < 0.9 else faults.very_late_s)
            self._fly(link, delay_s, deliver)

    def ordered(self, link: object, deliver: Callable[[], None]) -> None:
        """Sends one control message."""
        random, now_s = self.world.random, self.world.now_s
        delay_s = self.faults.latency_s * (0.2 + random.random())
        if random.random() < self.faults.late:
            delay_s += random.random() * self.faults.late_s
        arrives_at_s = max(now_s + delay_s, self._arrives_at_s.get(link, 0.0) + 1e-7)
        self._arrives_at_s[link] = arrives_at_s
        self._fly(link, arrives_at_s - now_s, deliver)

    def _fly(self, link: object, delay_s: float, deliver: Callable[[], None]) -> None:
        sender = self.world.running
        if sender.is_killed:
            return
        flying = _InFlight(sender, self.world.now_s, link)
        self._flying.append(flying)
        if len(self._flying) > 64:
            self._flying.popleft()

        def arrive() -> None:
            if not flying.is_lost:
                deliver()

        self.world.later(delay_s, arrive)

    def killed(self, actor: Actor) -> None:
        """Loses the last messages of each link of a killed process, which may not have left it."""
        random, now_s = self.world.random, self.world.now_s
        for link in {id(f.link): f.link for f in self._flying if f.sender is actor}.values():
            last = [f for f in self._flying if f.sender is actor and f.link is link and f.sent_at_s == now_s]
            for flying in last[random.randint(0, len(last)) :]:
                flying.is_lost = True


def _frames(frames: Sequence[Any]) -> tuple[memoryview, ...]:
    """Copies of frames, as the receiver gets them."""
    return tuple(
        memoryview(bytes(memoryview(frame).cast("B") if memoryview(frame).nbytes else b"")) for frame in frames
    )


@dataclass(eq=False)
class Endpoint:
    """One end of a connection. socket: stands for the descriptor that can be waited on."""

    owner: Actor
    queue: deque[Any] = field(default_factory=deque)
    is_closed: bool = False

    @property
    def socket(self) -> Endpoint:
        return self

    def put(self, item: Any) -> None:
        """Delivers a message."""
        if not self.is_closed and self.owner.is_alive and not self.owner.is_killed:
            self.queue.append(item)
            active().wake(self.owner, self)

    def close(self) -> None:
        self.is_closed = True


class SimDataServer(Endpoint):
    """Stands for `wire.sockets.DataServer`."""

    outer_address = ""

    def __init__(self, address: str, job_id: int, process: ProcessId, gate: object = None) -> None:
        super().__init__(current())
        self.address, self._process, self._sequence = address, process, 0
        _network().servers[address] = self

    def receive(self) -> tuple[bytes, Envelope[Any]] | None:
        return self.queue.popleft() if self.queue else None

    def send(self, peer: bytes, message: Any, frames: Sequence[Any] = ()) -> None:
        client = _network().clients.get(peer)
        if client is None or client.is_closed:
            raise ProtocolError(f"peer {peer!r} cannot be reached")
        self._sequence += 1
        envelope = Envelope(self._process, self._sequence, message, _frames(frames))
        _network().data((self, client), lambda: client.put(envelope))


class SimDataClient(Endpoint):
    """Stands for `wire.sockets.DataClient`."""

    def __init__(self, address: str, job_id: int, process: ProcessId, channel: str) -> None:
        super().__init__(current())
        self._address, self._process, self._sequence = address, process, 0
        self._identity = f"{process}/{channel}".encode()
        assert self._identity not in _network().clients, "a ROUTER must never see an identity a second time"
        _network().clients[self._identity] = self

    def send(self, message: Any, frames: Sequence[Any] = ()) -> None:
        server = _network().servers[self._address]
        self._sequence += 1
        item = (self._identity, Envelope(self._process, self._sequence, message, _frames(frames)))
        _network().data((self, server), lambda: server.put(item))

    def receive(self) -> Envelope[Any] | None:
        return self.queue.popleft() if self.queue else None


class SimControlClient(Endpoint):
    """Stands for `wire.sockets.ControlClient`."""

    def __init__(self, address: str, job_id: int, process: ProcessId, shown: object = None) -> None:
        super().__init__(current())
        self._process, self._sequence = process, 0
        _network().controls[process] = self

    def send(self, message: Any, frames: Sequence[Any] = ()) -> None:
        self._sequence += 1
        envelope = Envelope(self._process, self._sequence, message, _frames(frames))
        network = _network()
        network.overheard(str(self._process), "supervisor", message)
        network.ordered(self, lambda: network.control.put(envelope) if network.control is not None else None)

    def receive(self) -> Envelope[Any] | None:
        return self.queue.popleft() if self.queue else None

    def flush(self, timeout_s: float) -> None:
        self.close()


class SimControlServer(Endpoint):
    """Stands for `wire.sockets.ControlServer`. others: further sources that wake the supervisor."""

    def __init__(self, owner: Actor) -> None:
        super().__init__(owner)
        self._sequence = 0
        _network().control = self

    def poll(self, timeout_s: float, extra: Iterable[Any] = (), others: Iterable[Any] = ()) -> frozenset[int]:
        sources = (self, *extra, *others)
        if not any(source.queue for source in sources):
            active().wait(sources, timeout_s)
        return frozenset()

    def receive(self) -> Envelope[Any] | None:
        return self.queue.popleft() if self.queue else None

    def send(self, process: ProcessId, message: Any, frames: Sequence[Any] = ()) -> None:
        client = _network().controls.get(process)
        if client is None or client.is_closed or not client.owner.is_alive:
            raise ProtocolError(f"peer {process} cannot be reached")
        self._sequence += 1
        envelope = Envelope(None, self._sequence, message, _frames(frames))
        _network().overheard("supervisor", str(process), message)
        _network().ordered((process,), lambda: client.put(envelope))


class SimWaiter:
    """Stands for `wire.sockets.Waiter`."""

    def __init__(self, *sources: Any) -> None:
        self._sources = sources

    def wait(self, timeout_s: float) -> bool:
        return wait_readable(self._sources, timeout_s)


def wait_readable(sockets: Iterable[Any], timeout_s: float) -> bool:
    """Stands for `wire.sockets.wait_readable`."""
    sources = tuple(sockets)
    if not any(source.queue for source in sources):
        active().wait(sources, timeout_s)
    return any(source.queue for source in sources)


def _network() -> Network:
    network = active().network
    assert isinstance(network, Network)
    return network


def _now_s() -> float:
    return active().now_s


# Stand-ins for the modules `time` and `os` in the loops.
SIMULATED_TIME = SimpleNamespace(monotonic=_now_s, perf_counter=_now_s, thread_time=_now_s)
SIMULATED_OS = SimpleNamespace(getpid=lambda: current().pid)
