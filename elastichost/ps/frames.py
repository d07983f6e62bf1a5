"""Frames of data messages: received frames as arrays of a checked size, and messages to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.wire.codec import Frame
from elastichost.wire.data import DataMessage

__all__ = ["Outgoing", "float32_frame", "int64_frame"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message, with its frames, for one peer of the data socket."""

    peer: bytes
    message: DataMessage
    frames: Sequence[Frame] = ()


def int64_frame(frames: Sequence[memoryview], count: int) -> npt.NDArray[np.int64]:
    """Frame 0 as int64 [count]. Raises ProtocolError when it is missing or has another size."""
    return np.frombuffer(_checked(frames, 0, count * 8), dtype=np.int64)


def float32_frame(frames: Sequence[memoryview], position: int, count: int) -> npt.NDArray[np.float32]:
    """The frame at `position` as float32 [count]. Raises ProtocolError when it is missing or has another size."""
    return np.frombuffer(_checked(frames, position, count * 4), dtype=np.float32)


def _checked(frames: Sequence[memoryview], position: int, size_bytes: int) -> memoryview:
    """The frame. Raises ProtocolError when it is missing or its size differs from what the message announces."""
    if position >= len(frames):
        raise ProtocolError(f"frame {position} is missing: the message has {len(frames)} frames")
    if frames[position].nbytes != size_bytes:
        raise ProtocolError(f"frame {position} has {frames[position].nbytes} bytes, the message announces {size_bytes}")
    return frames[position]
