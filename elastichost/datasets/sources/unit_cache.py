"""Decoded units in memory that the workers of a run share: each is decoded once, by whichever worker needs it first.

The files lie in the directory of the run's arena. So they are counted with it against `resources.memory`, and are
removed with it, whoever of the run is killed. A worker maps a unit and cuts batches from it without a copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.datasets.api import Unit
from elastichost.datasets.decoded import DecodedUnit, IdColumn
from elastichost.datasets.reader import Decoder, ForwardingDecoder, Stamped
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.bounded_directory import BoundedDirectory, Claim
from elastichost.datasets.sources.control import InputControl

__all__ = ["StampedDecoder", "UnitCache"]

LOOK_S = 0.01  # between two looks at a unit that another worker decodes
ALIGNMENT_BYTES = 64
_LENGTH = struct.Struct("<Q")

Array = npt.NDArray[Any]


class StampedDecoder(Decoder, Stamped, Protocol):
    """A decoder of files."""

    def check_unchanged(self, unit: Unit) -> None:
        """Raises DataError when the file of a unit has changed since then."""
        ...


class _ArrayPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where an array lies in the file. kind: numpy's name of its type."""

    kind: str
    shape: tuple[int, ...]
    at: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """The arrays of a unit. places: of dense, labels, weights and bad rows, then keys and offsets of each column; None
    where there is none."""

    samples: int
    size_bytes: int
    places: tuple[_ArrayPlace | None, ...]


class UnitCache(ForwardingDecoder):
    """A `Decoder` that keeps what another decoder has decoded, while `InputKnobs.cache` is "memory" and within the
    bytes of `InputControl.cache_bytes`. Usable by several threads, where the other decoder is. directory: of this
    cache; it need not exist."""

    def __init__(self, decoder: StampedDecoder, settings: DataSettings, control: InputControl, directory: Path) -> None:
        super().__init__(decoder)
        self._files, self._settings, self._control, self._path = decoder, settings, control, directory
        self._lock = threading.Lock()
        self._open: tuple[BoundedDirectory, str] | None = None
        control.when_tuned(self._limit)

    def decode(self, unit: Unit) -> DecodedUnit:
        """The unit from the cache, or decoded now. Raises what the other decoder raises, and DataError when the file
        has changed."""
        if self._control.knobs.cache != "memory":
            return self._decoder.decode(unit)
        try:
            directory, group = self._opened()
            claim = self._claim(directory, group, str(unit.index))
        except OSError:
            return self._decoder.decode(unit)
        if isinstance(claim, DecodedUnit):
            self._files.check_unchanged(unit)
            return claim
        try:
            decoded = self._decoder.decode(unit)
            with contextlib.suppress(OSError):  # without its directory the cache keeps nothing
                directory.make(claim, _content_of(decoded))
        finally:
            claim.release()
        return decoded

    def _claim(self, directory: BoundedDirectory, group: str, name: str) -> DecodedUnit | Claim:
        """The unit, or the right to make it. Waits for a worker that makes it now, as long as that lives."""
        began_s = time.perf_counter()
        while True:
            if (found := _loaded(directory.find(group, name))) is not None:
                self._control.decode.wait_here(empty_s=time.perf_counter() - began_s)
                return found
            if (claim := directory.claim(group, name)) is not None:
                if (found := _loaded(directory.find(group, name))) is None:
                    return claim
                claim.release()
                return found
            time.sleep(LOOK_S)

    def _opened(self) -> tuple[BoundedDirectory, str]:
        with self._lock:
            if self._open is None:
                told = f"{self._settings}\0{self._files.stamps()}".encode()
                group = hashlib.sha256(told).hexdigest()[:32]
                directory = BoundedDirectory(self._path, self._control.cache_bytes)
                directory.use(group)
                self._open = (directory, group)
            return self._open

    def _limit(self) -> None:
        with contextlib.suppress(OSError):
            self._shrink()

    def _shrink(self) -> None:
        if self._open is not None:
            self._open[0].limit(self._control.cache_bytes if self._control.knobs.cache == "memory" else 0)


def _arrays_of(decoded: DecodedUnit) -> list[Array | None]:
    found: list[Array | None] = [decoded.dense, decoded.labels, decoded.weights, decoded.bad]
    for column in decoded.ids:
        found += [column.keys, column.offsets]
    return found


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _content_of(decoded: DecodedUnit) -> list[bytes | memoryview]:
    """The bytes of a file: length of the header, header, arrays at aligned places from its end on."""
    arrays = [None if array is None else np.ascontiguousarray(array) for array in _arrays_of(decoded)]
    places: list[_ArrayPlace | None] = []
    size = 0
    for array in arrays:
        places.append(None if array is None else _ArrayPlace(array.dtype.str, array.shape, size))
        size = _aligned(size + (0 if array is None else array.nbytes))
    header = msgspec.json.encode(_Header(decoded.samples, size, tuple(places)))
    header += b" " * (_aligned(_LENGTH.size + len(header)) - _LENGTH.size - len(header))
    content: list[bytes | memoryview] = [_LENGTH.pack(len(header)), header]
    for array in arrays:
        if array is not None and array.nbytes:
            content += [array.reshape(-1).view(np.uint8).data, bytes(_aligned(array.nbytes) - array.nbytes)]
    return content


def _loaded(descriptor: int | None) -> DecodedUnit | None:
    """The unit of an open file, which is closed; None: there is no file, or not a whole one."""
    if descriptor is None:
        return None
    try:
        size = os.fstat(descriptor).st_size
        # A private mapping: pages are shared with the other workers, and no worker can change those of another.
        mapped = mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    begin = _LENGTH.size + int(_LENGTH.unpack_from(mapped)[0])
    header = msgspec.json.decode(mapped[_LENGTH.size : begin], type=_Header)
    if begin + header.size_bytes != size:
        return None
    arrays = [None if place is None else _array_at(mapped, begin, place) for place in header.places]
    ids = tuple(
        IdColumn(cast("Array", keys), offsets) for keys, offsets in zip(arrays[4::2], arrays[5::2], strict=True)
    )
    dense, labels = cast("Array", arrays[0]), cast("Array", arrays[1])
    return DecodedUnit(header.samples, dense, labels, ids, weights=arrays[2], bad=arrays[3])


def _array_at(mapped: mmap.mmap, begin: int, place: _ArrayPlace) -> Array:
    count = int(np.prod(place.shape, dtype=np.int64))
    kind: np.dtype[Any] = np.dtype(place.kind)
    if not count:
        return np.empty(place.shape, kind)
    return np.frombuffer(mapped, dtype=kind, count=count, offset=begin + place.at).reshape(place.shape)
