"""Counts the requests and bytes of a PS since its last heartbeat."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.wire.facts import HEARTBEAT_S, StepSample

__all__ = ["RequestMeter"]


@dataclass(slots=True)
class RequestMeter:
    """Counts since the last heartbeat. received, sent: bytes of frames; busy_s: seconds spent handling messages."""

    requests: int = 0
    busy_s: float = 0.0
    received: int = 0
    sent: int = 0

    def sample(self, rows_touched: int) -> StepSample:
        """The sample for a heartbeat."""
        return StepSample(
            seconds=HEARTBEAT_S,
            ids=rows_touched,
            bytes_sent=self.sent,
            bytes_received=self.received,
            requests=self.requests,
            busy_s=self.busy_s,
        )
