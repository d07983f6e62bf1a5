"""When a worker waits for its peers, by `train.mode`."""

from __future__ import annotations

from typing import Any

from elastichost.config.sections.schema import TrainSection
from elastichost.worker.commit.peer_clock import BoundedClock, FreeClock, peer_clock


class Asked:
    """Records calls of `LeaseCommit.wait_for_peers`."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def wait_for_peers(self, batch: int, staleness: int) -> None:
        self.calls.append((batch, staleness))


def made(mode: Any) -> tuple[Asked, Any]:
    asked: Any = Asked()
    return asked, peer_clock(TrainSection(mode=mode, staleness=3), asked)


def test_in_async_mode_no_worker_waits() -> None:
    asked, clock = made("async")
    assert isinstance(clock, FreeClock)
    assert clock.wait_for_peers(5) == 0.0
    clock.leave()
    assert asked.calls == []


def test_in_bounded_mode_a_worker_is_asked_before_each_batch_and_leaves_once() -> None:
    asked, clock = made("bounded")
    assert isinstance(clock, BoundedClock)
    clock.leave()
    assert asked.calls == [], "the worker is not on the clock yet"
    for finished in (0, 1):
        assert clock.wait_for_peers(finished) >= 0.0
    clock.leave()
    clock.leave()
    assert asked.calls == [(0, 3), (1, 3), (-1, 3)]
    clock.wait_for_peers(2)
    clock.leave()
    assert asked.calls[3:] == [(2, 3), (-1, 3)]
