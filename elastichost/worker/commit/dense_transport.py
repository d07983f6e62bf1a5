"""How the dense vector travels between a worker and its owner: parameters one way, gradients the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.data import DataMessage, DensePushedMsg
from elastichost.worker.channels.exchange import WINDOW, half_of

if TYPE_CHECKING:  # who only commits needs no torch
    from elastichost.arena.dense.store import DenseStore

__all__ = [
    "DenseParameters",
    "DenseVector",
    "GradientFrames",
    "HeldParameters",
    "MappedParameters",
    "ReceivedParameters",
]

Ask = Callable[[], Envelope[DataMessage]]
Float32Array = npt.NDArray[np.float32]


class DenseVector(Protocol):
    """The dense part of a model, as `worker.model.dense_vector.FlatDense`. values: float32 [elements]."""

    values: Float32Array

    def loaded(self) -> None:
        """Call after writing into `values`."""
        ...

    def write_push(self, out: Float32Array) -> None:
        """Gradients, then buffer values, into float32 [elements]."""
        ...


class DenseParameters(Protocol):
    """Where the model's parameters come from. samples_applied: by all workers, as far as this one knows; the thread
    that reads ahead looks at it."""

    samples_applied: int

    @property
    def is_sent(self) -> bool:
        """They come with the answer to each push."""
        ...

    def refresh(self, ask: Ask) -> None:
        """Brings the newest that are here into the model. ask: the dense owner, if there never were any."""
        ...

    def fetch(self, ask: Ask) -> None:
        """Brings the newest that the dense owner has into the model."""
        ...

    def forget(self) -> None:
        """The model's own copy is spoilt: the next `refresh` brings it in again, newer or not."""
        ...

    def take(self, envelope: Envelope[DataMessage]) -> None:
        """They came with an answer. Raises ProtocolError."""
        ...


class MappedParameters:
    """They are read from the mapped arena."""

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
        raise ProtocolError(f"{envelope.sender} sent a dense vector that nobody has asked for")


class ReceivedParameters:
    """They come in messages, and go into the model at once."""

    is_sent = True

    def __init__(self, flat: DenseVector) -> None:
        self._flat = flat
        self._version = -1  # of what is in the model
        self._newest: tuple[int, memoryview] | None = None  # version, parameters: not in the model yet
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
            raise ProtocolError(f"{envelope.sender} sent no dense vector of {expected} bytes")
        if message.version >= self._version and (self._newest is None or message.version >= self._newest[0]):
            self._newest = message.version, envelope.frames[0]
        self.samples_applied = max(self.samples_applied, message.samples_applied)

    def _load(self) -> None:
        """Into the model."""
        if self._newest is None:
            return
        (self._version, frame), self._newest = self._newest, None
        vector: Float32Array = np.frombuffer(frame, dtype=np.float32)
        self._flat.values[:] = vector
        self._flat.loaded()


class HeldParameters(ReceivedParameters):
    """They come in messages, and wait for the next `refresh`: they may come between forward and backward, and the
    backward pass needs what the forward pass had."""

    def take(self, envelope: Envelope[DataMessage]) -> None:
        """Implements `DenseParameters.take`."""
        self._note(envelope)


class GradientFrames:
    """The vectors of the pushes that may be on the way, where they travel in messages."""

    def __init__(self, elements: int) -> None:
        self._vectors = [np.zeros(elements, dtype=np.float32) for _ in range(WINDOW)]

    def write(self, flat: DenseVector, sequence: int) -> None:
        """Copies the model's gradients: they are the push of this sequence number."""
        flat.write_push(self._vectors[half_of(sequence)])

    def frame(self, sequence: int) -> Frame:
        """A copy: the vector is written again while ZeroMQ may still be reading the frame."""
        return self._vectors[half_of(sequence)].copy()
