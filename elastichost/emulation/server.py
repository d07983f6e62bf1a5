"""The loop of an emulated PS: the real loop, but its answers to workers leave when its virtual cores are done."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from elastichost.config.job import JobSpec
from elastichost.emulation.exchange import DONE
from elastichost.emulation.prices import Price
from elastichost.emulation.server_queue import ServerQueue
from elastichost.ps.frames import Outgoing
from elastichost.ps.loop import ServerLoop
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.control import ControlMessage, HeartbeatMsg, RepinMsg, RepinnedMsg
from elastichost.wire.data import DataMessage, PulledMsg, PullMsg
from elastichost.wire.sockets import ControlClient, DataClient, DataServer, Waiter

__all__ = ["EmulatedServer"]

# An answer contains the moment at which it is due, so it may leave up to this time earlier: one turn of the loop sends
# all answers of this time.
GRAIN_S = 0.01


class EmulatedServer(ServerLoop):
    """One incarnation of an emulated PS. The number of its threads is the number of its virtual cores."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        super().__init__(arguments, job)
        self._queue: ServerQueue[Outgoing] = ServerQueue(max(1, arguments.threads))
        self._held: list[tuple[float, int, Outgoing]] = []  # a heap of (when it is due, number, answer)
        self._waiting: set[tuple[bytes, int]] = set()  # (peer, number) of requests that are not answered yet
        self._answered = 0
        self._worked_s = 0.0
        self._serve = self._service.handle
        self._service.handle = self._handle_priced  # type: ignore[method-assign]
        self._tell = self._control.send
        self._control.send = self._tell_virtual  # type: ignore[method-assign]

    # --- requests with a price ------------------------------------------------------------------------------

    def _handle_priced(self, peer: bytes, envelope: Envelope[DataMessage]) -> list[Outgoing]:
        """Handles a message. The answer to a request with a price waits in the queue; other answers are returned."""
        message = envelope.message
        if not isinstance(message, PullMsg) or len(envelope.frames) < 2:
            return self._serve(peer, envelope)
        if (peer, message.request) in self._waiting:
            return []  # the worker sent it again, because the queue is long
        price, at_once = Price.decode(envelope.frames[1]), list[Outgoing]()
        for answer in self._serve(peer, envelope):
            if not isinstance(answer.message, PulledMsg):
                at_once.append(answer)
                continue
            self._queue.admit(price, answer)
            self._waiting.add((peer, message.request))
        return at_once

    def due_s(self) -> float:
        """When `answer` must be called next; infinite when no request waits."""
        held_s = self._held[0][0] if self._held else math.inf
        return min(held_s, self._queue.next_s)

    def answer(self) -> None:
        """Sends the answers that are due."""
        soon_s = time.monotonic() + GRAIN_S
        for done_s, answer in self._queue.advance(soon_s):
            self._answered += 1
            held = Outgoing(answer.peer, answer.message, (b"", DONE.pack(done_s)))
            heappush(self._held, (done_s, self._answered, held))
        while self._held and self._held[0][0] <= soon_s:
            _, _, outgoing = heappop(self._held)
            self._waiting.discard((outgoing.peer, outgoing.message.request))
            self._send([outgoing])

    def _waiter(self) -> Waiter:
        return _HoldingWaiter(self, self._control, self._data, self._snapshots.descriptor, *self._moving.clients)

    # --- virtual cores --------------------------------------------------------------------------------------

    def _handle(self, envelope: Envelope[ControlMessage]) -> None:
        match envelope.message:
            case RepinMsg(cores=cores, threads=threads):
                self._queue.resize(max(1, threads), time.monotonic())
                self._control.send(RepinnedMsg(cores))
            case _:
                super()._handle(envelope)

    def _tell_virtual(self, message: ControlMessage, frames: Sequence[Frame] = ()) -> None:
        """Sends a control message. A heartbeat gets the CPU time of the virtual cores."""
        if isinstance(message, HeartbeatMsg):
            cpu_s = message.sample.busy_s * self._queue.cores
            sample = msgspec.structs.replace(message.sample, cpu_s=cpu_s, taken_s=time.monotonic())
            message = msgspec.structs.replace(message, sample=sample)
        self._tell(message, frames)

    def _show_progress(self) -> bool:
        """Shows progress as the real PS does, but the busy time is that of the virtual cores."""
        worked_s = self._queue.worked_s(time.monotonic())
        self._meter.busy_s = max(0.0, worked_s - self._worked_s) / self._queue.cores
        if not super()._show_progress():
            return False
        self._worked_s = worked_s
        return True


class _HoldingWaiter(Waiter):
    """Also wakes the loop when an answer is due."""

    def __init__(self, server: EmulatedServer, *sources: ControlClient | DataServer | DataClient | int) -> None:
        super().__init__(*sources)
        self._server = server

    def wait(self, timeout_s: float) -> bool:
        left_s = max(0.0, self._server.due_s() - time.monotonic())
        ready = super().wait(math.ceil(1000 * min(timeout_s, left_s)) / 1000)
        self._server.answer()
        return ready
