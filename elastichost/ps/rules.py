"""Checks that a message is possible in this job, beyond what its type ensures. Pure.

A process that has a key is connected, but its messages are not trusted. A message that only another kind of job sends,
or whose numbers no batch of this job can have, is refused before anything is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.batches import largest_batch
from elastichost.config.job import JobSpec
from elastichost.errors import ProtocolError
from elastichost.plan import Access, ProcessId
from elastichost.wire.data import DataMessage, DensePushMsg, PullMsg, PushMsg, StepAskMsg

__all__ = ["Rules", "require_finite"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits for messages of workers.

    places: the number of workers that the arena has places for; has_dense: the dense vector lies in this arena;
    sends_gradients: dense gradients come as frames (every access except direct); on_gpu: the worker makes the step of
    the dense optimizer itself; the other fields are those of the job file.
    """

    is_sync: bool
    sends_gradients: bool
    batch_size: int
    micro_batches: int
    places: int
    has_dense: bool = False
    on_gpu: bool = False

    @classmethod
    def of(cls, job: JobSpec, access: Access, places: int, *, has_dense: bool) -> Rules:
        is_sync, of_step = job.train.mode == "sync", (job.train.batch_size, job.train.micro_batches)
        on_gpu = job.resources.model_memory == "gpu"
        return cls(is_sync, access != "direct", *of_step, places, has_dense, on_gpu)

    def check(self, sender: ProcessId, message: DataMessage) -> None:
        """Raises ProtocolError for a message that no correct worker of this job sends."""
        if sender.index >= self.places:
            raise ProtocolError(f"{sender}: the worker's index is out of range (0 to {self.places - 1})")
        match message:
            case PushMsg():
                self._check_mode(message.step, may_have_none=False)
            case PullMsg():
                self._check_mode(message.step, may_have_none=True)
            case StepAskMsg():
                self._check_mode(message.step, may_have_none=True)
            case DensePushMsg():
                self._check_mode(message.step, may_have_none=False)
                self._check_commit(message)

    def _check_mode(self, step: int, *, may_have_none: bool) -> None:
        if step and not self.is_sync:
            raise ProtocolError(f"the message names step {step}, but this job is not in sync mode")
        if self.is_sync and not step and not may_have_none:
            raise ProtocolError("the push names no step, but this job is in sync mode")

    def _check_commit(self, message: DensePushMsg) -> None:
        positions = message.stop - message.start
        if not message.samples <= positions <= message.samples + message.skipped:
            counted = f"{message.samples} samples and {message.skipped} skipped"
            raise ProtocolError(f"a commit of {counted} does not fit positions {message.start} to {message.stop}")
        if message.samples > largest_batch(self.batch_size):
            raise ProtocolError(
                f"a commit of {message.samples} samples: a batch has at most {largest_batch(self.batch_size)}"
            )
        if message.micros > self.micro_batches:
            raise ProtocolError(f"a step of {message.micros} micro-batches: this job has at most {self.micro_batches}")
        if self.sends_gradients and message.mailbox >= 0:
            raise ProtocolError("the commit names a mailbox, but this job does not use direct access")
        if message.is_applied != self.on_gpu:
            has, where = ("no vector", "host") if message.is_applied else ("a vector", "GPU")
            raise ProtocolError(f"the commit has {has}, but the dense part of this job is in memory of the {where}")


def require_finite(gradients: npt.NDArray[np.float32], whose: str) -> None:
    """Raises ProtocolError when a gradient is NaN or infinite. One sum decides; when it overflows, every element is
    checked. whose: the sender, for the message."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = bool(np.isfinite(gradients.sum())) or bool(np.isfinite(gradients).all())
    if not is_finite:
        raise ProtocolError(f"gradients of {whose} are not finite")
