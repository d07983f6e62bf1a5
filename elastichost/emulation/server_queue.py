"""The virtual cores and the link of an emulated PS: when a request would be done. Pure."""

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
    """A queue with as many servers as the PS has cores, between the two directions of its link. Requests are served in
    the order in which they come off the link. All moments are of one clock; `advance` may be called late: what it tells
    does not depend on that."""

    cores: int
    _on_link: list[tuple[float, int, Price, Request]] = field(default_factory=list)  # a heap: when it has come
    _waiting: deque[tuple[float, Price, Request]] = field(default_factory=deque)
    _served: list[tuple[float, int, Price, Request]] = field(default_factory=list)  # a heap: when it is done
    _in_free_s: float = 0.0
    _out_free_s: float = 0.0
    _begun_s: float = 0.0  # core-seconds of all that was begun
    _number: int = 0

    def admit(self, price: Price, request: Request) -> None:
        """It was sent at `price.sent_s`."""
        came_s = price.sent_s
        if price.in_s > 0.0:
            came_s = self._in_free_s = max(came_s, self._in_free_s) + price.in_s
        self._number += 1
        heappush(self._on_link, (came_s + price.latency_s, self._number, price, request))

    @property
    def next_s(self) -> float:
        """When there is something to advance to; infinite when all is done."""
        came_s = self._on_link[0][0] if self._on_link else math.inf
        return min(came_s, self._served[0][0]) if self._served else came_s

    def advance(self, now_s: float) -> list[tuple[float, Request]]:
        """What was served up to now, each with the moment at which its answer has come back."""
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
        """From now on so many cores; what is being served is served to its end."""
        self.cores = cores
        self._begin(now_s)

    def worked_s(self, now_s: float) -> float:
        """Core-seconds of service done up to now, of all requests so far."""
        return self._begun_s - sum(max(0.0, end_s - now_s) for end_s, _, _, _ in self._served)
