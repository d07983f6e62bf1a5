"""What a worker may say to a PS of this job, beyond what the types of messages say. Pure.

A key lets a process in; it does not make true what the process says. What only some other kind of job has, or what no
batch can be, is refused before anything is changed.
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
    """places: for workers, in the arena; has_dense: the dense vector lies there; sends_gradients:
    of the dense part, as every access but the direct one does; the rest as in the job file."""

    is_sync: bool
    sends_gradients: bool
    batch_size: int
    micro_batches: int
    places: int
    has_dense: bool = False

    @classmethod
    def of(cls, job: JobSpec, access: Access, places: int, *, has_dense: bool) -> Rules:
        is_sync, of_step = job.train.mode == "sync", (job.train.batch_size, job.train.micro_batches)
        return cls(is_sync, access != "direct", *of_step, places, has_dense)

    def check(self, sender: ProcessId, message: DataMessage) -> None:
        """Raises ProtocolError for a message that no worker of this job can mean."""
        if sender.index >= self.places:
            raise ProtocolError(f"{sender}: there are places for {self.places} workers")
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
            raise ProtocolError(f"step {step}: this job is not in sync mode")
        if self.is_sync and not step and not may_have_none:
            raise ProtocolError("a push of no step: this job is in sync mode")

    def _check_commit(self, message: DensePushMsg) -> None:
        positions = message.stop - message.start
        if not message.samples <= positions <= message.samples + message.skipped:
            counted = f"{message.samples} samples and {message.skipped} skipped"
            raise ProtocolError(f"{counted} of positions {message.start} to {message.stop}")
        if message.samples > largest_batch(self.batch_size):
            raise ProtocolError(f"{message.samples} samples are no batch: there are {self.batch_size} in one")
        if message.micros > self.micro_batches:
            raise ProtocolError(f"{message.micros} micro-batches: a step has at most {self.micro_batches}")
        if self.sends_gradients and message.mailbox >= 0:
            raise ProtocolError("a commit with a mailbox: this job has no direct access")


def require_finite(gradients: npt.NDArray[np.float32], whose: str) -> None:
    """One sum, and a closer look where large numbers add up to too much. Raises ProtocolError."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = bool(np.isfinite(gradients.sum())) or bool(np.isfinite(gradients).all())
    if not is_finite:
        raise ProtocolError(f"gradients of {whose} are not finite")
