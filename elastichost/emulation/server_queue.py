"""The virtual cores and the network link of an emulated PS: compute when a request is done. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from elastichost.emulation.prices import Price

__all__ = ["ServerQueue"]

Request = TypeVar("Request")


@dataclass(slots=True)
class ServerQueue(Generic[Request]):
    """A queue for `cores` virtual cores. A request passes the inward direction of the link, then one core, then the
    outward direction of the link. Cores serve requests in the order in which they arrive from the link. All moments are
    seconds of the monotonic clock. `advance` may be called late: the moments in its result do not change."""

    cores: int
    _on_link: list[tuple[float, int, Price, Request]] = field(default_factory=list)  # a heap by arrival at the PS
    _waiting: deque[tuple[float, Price, Request]] = field(default_factory=deque)
    _served: list[tuple[float, int, Price, Request]] = field(default_factory=list)  # a heap by end of service
    _in_free_s: float = 0.0
    _out_free_s: float = 0.0
    _begun_s: float = 0.0  # core-seconds of all requests that were begun
    _number: int = 0

    def admit(self, price: Price, request: Request) -> None:
        """Adds a request that was sent at `price.sent_s`."""
        came_s = price.sent_s
        if price.in_s > 0.0:
            came_s = self._in_free_s = max(came_s, self._in_free_s) + price.in_s
        self._number += 1
        heappush(self._on_link, (came_s + price.latency_s, self._number, price, request))

    @property
    def next_s(self) -> float:
        """The moment of the next event; infinite when there is none."""
        came_s = self._on_link[0][0] if self._on_link else math.inf
        return min(came_s, self._served[0][0]) if self._served else came_s

    def advance(self, now_s: float) -> list[tuple[float, Request]]:
        """Processes all events up to `now_s`. Returns the requests that were served, each with the moment at which its
        answer reaches the worker."""
        answers: list[tuple[float, Request]] = []
        while (at_s := self.next_s) <= now_s:
            if self._served and self._served[0][0] == at_s:
                _, _, price, request = heappop(self._served)
                answers.append((self._leaves(at_s, price), request))
            else:
                _, _, price, request = heappop(self._on_link)
                self._waiting.append((at_s, price, request))
            self._begin(at_s)
        return answers

    def _begin(self, at_s: float) -> None:
        while self._waiting and len(self._served) < self.cores:
            came_s, price, request = self._waiting.popleft()
            self._number += 1
            self._begun_s += price.service_s
            heappush(self._served, (max(at_s, came_s) + price.service_s, self._number, price, request))

    def _leaves(self, at_s: float, price: Price) -> float:
        if price.out_s > 0.0:
            at_s = self._out_free_s = max(at_s, self._out_free_s) + price.out_s
        return at_s + price.latency_s

    def resize(self, cores: int, now_s: float) -> None:
        """Changes the number of cores. Requests that are being served are not interrupted."""
        self.cores = cores
        self._begin(now_s)

    def worked_s(self, now_s: float) -> float:
        """Core-seconds of service done until `now_s`, over all requests."""
        return self._begun_s - sum(max(0.0, end_s - now_s) for end_s, _, _, _ in self._served)
