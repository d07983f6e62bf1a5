"""How the dense vector travels between a worker and the dense owner: parameters one way, gradients the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.data import DataMessage, DensePushedMsg
from elastichost.worker.channels.exchange import WINDOW, half_of

if TYPE_CHECKING:  # a process that only commits (emulation) needs no torch
    from elastichost.arena.dense.store import DenseStore

__all__ = [
    "DenseParameters",
    "DenseVector",
    "GradientFrames",
    "HeldParameters",
    "InPlaceVector",
    "MappedParameters",
    "ReceivedParameters",
]

Ask = Callable[[], Envelope[DataMessage]]
Float32Array = npt.NDArray[np.float32]


class DenseVector(Protocol):
    """The dense part of a model; `worker.model.dense_vector.FlatDense` implements it. values: float32 [elements]."""

    values: Float32Array

    def loaded(self) -> None:
        """Call after writing into `values`."""
        ...

    def write_push(self, out: Float32Array) -> None:
        """Writes the gradients, then the buffer values, into `out` float32 [elements]."""
        ...


class InPlaceVector(DenseVector, Protocol):
    """A dense vector whose gradients can be written where they are needed."""

    def write_into(self, out: Float32Array) -> None:
        """Lets the next backward pass write into `out`, float32 [elements], what it can: `write_push` into the same
        array then copies only the rest."""
        ...


class DenseParameters(Protocol):
    """The source of the model's parameters.

    samples_applied: samples applied by all workers, as far as this worker has received it. The prefetch thread reads
    it, too.
    """

    samples_applied: int

    @property
    def is_sent(self) -> bool:
        """Whether the dense owner must send the parameters with the answer to each push."""
        ...

    def refresh(self, ask: Ask) -> None:
        """Copies the newest parameters that are available here into the model. ask: requests them from the dense owner;
        called when none were received yet."""
        ...

    def fetch(self, ask: Ask) -> None:
        """Copies the dense owner's newest parameters into the model."""
        ...

    def forget(self) -> None:
        """The model's copy is no longer valid: the next `refresh` copies the parameters again, newer or not."""
        ...

    def take(self, envelope: Envelope[DataMessage]) -> None:
        """Takes parameters that came with an answer. Raises ProtocolError."""
        ...


class MappedParameters:
    """Parameters that are read from the mapped arena."""

    is_sent = False

    def __init__(self, flat: DenseVector, dense: DenseStore) -> None:
        self._flat, self._dense = flat, dense
        self._version = -1
        self.samples_applied = 0

    def refresh(self, ask: Ask) -> None:
        """Implements `DenseParameters.refresh`."""
        if self._dense.version() != self._version:
            self._version = self._dense.read_into(self._flat.values)
            self._flat.loaded()
        self.samples_applied = self._dense.samples_applied()

    fetch = refresh

    def forget(self) -> None:
        """Implements `DenseParameters.forget`."""
        self._version = -1

    def take(self, envelope: Envelope[DataMessage]) -> None:
        """Implements `DenseParameters.take`."""
        raise ProtocolError(f"{envelope.sender} sent a dense vector that this worker did not request")


class ReceivedParameters:
    """Parameters that come in messages and are copied into the model at once."""

    is_sent = True

    def __init__(self, flat: DenseVector) -> None:
        self._flat = flat
        self._version = -1  # version of the parameters in the model; -1: none, or no longer valid
        self._newest: tuple[int, memoryview] | None = None  # (version, parameters) that are not in the model yet
        self.samples_applied = 0

    def refresh(self, ask: Ask) -> None:
        """Implements `DenseParameters.refresh`."""
        self._load()
        if self._version < 0:
            self.fetch(ask)

    def fetch(self, ask: Ask) -> None:
        """Implements `DenseParameters.fetch`."""
        self._note(ask())
        self._load()

    def forget(self) -> None:
        """Implements `DenseParameters.forget`."""
        self._version = -1

    def take(self, envelope: Envelope[DataMessage]) -> None:
        """Implements `DenseParameters.take`."""
        self._note(envelope)
        self._load()

    def _note(self, envelope: Envelope[DataMessage]) -> None:
        message, expected = envelope.message, self._flat.values.nbytes
        if not isinstance(message, DensePushedMsg) or not envelope.frames or envelope.frames[0].nbytes != expected:
            raise ProtocolError(f"{envelope.sender} sent no dense vector of {expected} bytes as the first frame")
        if message.version >= self._version and (self._newest is None or message.version >= self._newest[0]):
            self._newest = message.version, envelope.frames[0]
        self.samples_applied = max(self.samples_applied, message.samples_applied)

    def _load(self) -> None:
        """Copies the newest received parameters into the model."""
        if self._newest is None:
            return
        (self._version, frame), self._newest = self._newest, None
        vector: Float32Array = np.frombuffer(frame, dtype=np.float32)
        self._flat.values[:] = vector
        self._flat.loaded()


class HeldParameters(ReceivedParameters):
    """Parameters that come in messages and are held until the next `refresh`. They may come between forward and
    backward pass, and the backward pass needs the parameters of the forward pass."""

    def take(self, envelope: Envelope[DataMessage]) -> None:
        """Implements `DenseParameters.take`."""
        self._note(envelope)


class GradientFrames:
    """The vectors of the outstanding pushes, for access modes in which they travel in messages."""

    def __init__(self, elements: int) -> None:
        self._vectors = [np.zeros(elements, dtype=np.float32) for _ in range(WINDOW)]

    def write(self, flat: DenseVector, sequence: int) -> None:
        """Copies the model's gradients as the vector of the push with this sequence number."""
        flat.write_push(self._vectors[half_of(sequence)])

    def frame(self, sequence: int) -> Frame:
        """The vector of this push, as a copy: the buffer is written again while ZeroMQ may still read the frame."""
        return self._vectors[half_of(sequence)].copy()
