"""A worker that trains leases."""

from __future__ import annotations

from typing import Any

import pytest

from elastichost.datasets.sources.control import InputControl
from elastichost.wire.facts import InputKnobs
from elastichost.worker.lease_worker import LeaseWorker
from elastichost.worker.meter import StepMeter


class _Waiting(LeaseWorker[Any, Any]):
    """A worker that waits for its peers for three seconds, in which it sends a heartbeat."""

    def __init__(self) -> None:
        """Sets only what `_wait_for_peers` uses: no process and no sockets."""
        self._meter, self._finished = StepMeter(0.0, wait_peers_s=1.0), 0
        self._clock = self

    def wait_for_peers(self, finished: int) -> float:
        _, self._meter = self._meter.beat(2.0, 0, 0, 0.0)
        return 3.0

    def leave(self) -> None:
        raise NotImplementedError

    def _build(self) -> Any:
        raise NotImplementedError

    def _open_batches(self) -> Any:
        raise NotImplementedError

    def _train(self, strategy: Any, batch: Any) -> None:
        raise NotImplementedError

    def _move(self, asked: Any) -> None:
        raise NotImplementedError

    def _take_traffic(self) -> tuple[int, int, int]:
        raise NotImplementedError


def test_waiting_for_peers_counts_after_a_heartbeat_in_between() -> None:
    """If it did not count, the fast worker would look as slow as its slow peer, which would never be replaced."""
    worker = _Waiting()
    worker._wait_for_peers()
    assert worker._meter.wait_peers_s == 3.0


@pytest.mark.parametrize(
    ("knobs", "readers", "ahead"),
    [
        (InputKnobs(decode_threads=3), 0, 1),
        (InputKnobs(decode_threads=3, prefetch_bytes=1), 0, 3),
        (InputKnobs(), 2, 2),
        (InputKnobs(decode_threads=3, prefetch_bytes=1), 2, 3),
    ],
)
def test_as_many_leases_may_wait_as_units_are_decoded_at_the_same_time(
    knobs: InputKnobs, readers: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = InputControl(knobs)
    control.readers = readers
    monkeypatch.setattr(_Waiting, "_input", control)
    assert _Waiting()._leases_ahead == ahead
