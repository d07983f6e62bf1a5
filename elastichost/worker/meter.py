"""The times and counts that a worker collects between two heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastichost.wire.facts import StageSample, StepSample

if TYPE_CHECKING:  # an emulated worker uses this module too, and has no torch
    from elastichost.worker.access.rows import PreparedBatch

__all__ = ["StepMeter"]

RATE_SMOOTHING = 0.3


@dataclass(slots=True)
class StepMeter:
    """Sums since `began_s` (monotonic clock).

    rate: samples per second while there was work, smoothed over heartbeats; 0 before the first samples.
    wait_reader_s: the part of `wait_input_s` during which the reader had a lease; in the rest there was no lease.
    """

    began_s: float
    rate: float = 0.0
    steps: int = 0
    samples: int = 0
    wait_input_s: float = 0.0
    wait_reader_s: float = 0.0
    lookup_s: float = 0.0
    compute_s: float = 0.0
    push_s: float = 0.0
    wait_peers_s: float = 0.0
    loss_sum: float = 0.0
    ids: int = 0
    training_cpu_s: float | None = None
    cpu_s: float | None = None

    def count(
        self, batch: PreparedBatch, loss: float, compute_s: float, push_s: float, training_cpu_s: float | None
    ) -> None:
        """Adds a pushed batch. training_cpu_s: CPU time of the training thread for it; None: not measured."""
        self.steps += 1
        self.samples += batch.samples.size
        self.compute_s += compute_s
        self.push_s += push_s
        if training_cpu_s is not None:
            self.training_cpu_s = (self.training_cpu_s or 0.0) + training_cpu_s
        self.lookup_s += batch.lookup_s
        self.loss_sum += loss * batch.samples.size
        self.ids += len(batch.values)

    def beat(
        self,
        now_s: float,
        bytes_sent: int,
        bytes_received: int,
        read_s: float,
        stages: tuple[StageSample, ...] = (),
    ) -> tuple[StepSample, StepMeter]:
        """(the sums for this heartbeat, the meter for the time after it)."""
        seconds = max(now_s - self.began_s, 1e-6)
        rate = self.rate
        if self.samples:
            idle_s = self.wait_input_s - self.wait_reader_s  # the worker had no lease
            present = self.samples / max(seconds - idle_s, 1e-6)
            rate = present if rate == 0.0 else RATE_SMOOTHING * present + (1 - RATE_SMOOTHING) * rate
        sample = StepSample(
            steps=self.steps,
            samples=self.samples,
            seconds=seconds,
            wait_input_s=self.wait_input_s,
            read_s=read_s,
            lookup_s=self.lookup_s,
            compute_s=self.compute_s,
            push_s=self.push_s,
            training_cpu_s=self.training_cpu_s,
            wait_peers_s=self.wait_peers_s,
            loss_sum=self.loss_sum,
            ids=self.ids,
            bytes_sent=bytes_sent,
            bytes_received=bytes_received,
            taken_s=now_s,
            cpu_s=self.cpu_s,
            stages=stages,
        )
        return sample, StepMeter(now_s, rate)
