"""Frames of the data conversation: received ones as checked arrays, and what is to be sent."""

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
    """A message for one peer of the data socket."""

    peer: bytes
    message: DataMessage
    frames: Sequence[Frame] = ()


def int64_frame(frames: Sequence[memoryview], count: int) -> npt.NDArray[np.int64]:
    """Frame 0 as `count` int64."""
    return np.frombuffer(_checked(frames, 0, count * 8), dtype=np.int64)


def float32_frame(frames: Sequence[memoryview], position: int, count: int) -> npt.NDArray[np.float32]:
    """A frame as `count` float32."""
    return np.frombuffer(_checked(frames, position, count * 4), dtype=np.float32)


def _checked(frames: Sequence[memoryview], position: int, size_bytes: int) -> memoryview:
    """Raises ProtocolError when the frame is absent or of another length than announced."""
    if position >= len(frames):
        raise ProtocolError(f"frame {position} is missing: {len(frames)} came")
    if frames[position].nbytes != size_bytes:
        raise ProtocolError(f"frame {position} has {frames[position].nbytes} bytes where {size_bytes} were announced")
    return frames[position]
