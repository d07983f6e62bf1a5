"""The bytes that the input of a worker may hold ahead: whoever wants to hold more waits until others release theirs."""

from __future__ import annotations

import threading

__all__ = ["ByteBudget"]


class ByteBudget:
    """A bound of bytes, shared by threads. `held_bytes` never exceeds the bound that was in force when it last grew.

    A lower bound frees nothing by itself: nothing more is granted until enough was released."""

    def __init__(self, limit_bytes: int) -> None:
        self._changed = threading.Condition()
        self._limit_bytes, self._held_bytes, self._most_bytes = limit_bytes, 0, 0

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def most_bytes(self) -> int:
        """The most bytes that were held at one time."""
        return self._most_bytes

    def limit(self, limit_bytes: int) -> None:
        """Sets the bound."""
        with self._changed:
            self._limit_bytes = limit_bytes
            self._changed.notify_all()

    def take(self, size_bytes: int) -> bool:
        """Takes bytes if they fit; False: they do not fit now. Raises ValueError for a negative size."""
        if size_bytes < 0:
            raise ValueError(f"size_bytes={size_bytes} is negative")
        with self._changed:
            if self._held_bytes + size_bytes > self._limit_bytes:
                return False
            self._held_bytes += size_bytes
            self._most_bytes = max(self._most_bytes, self._held_bytes)
            return True

    def release(self, size_bytes: int) -> None:
        """Gives bytes back. Raises ValueError for more than are held."""
        with self._changed:
            if not 0 <= size_bytes <= self._held_bytes:
                raise ValueError(f"{size_bytes} bytes were released, but {self._held_bytes} are held")
            self._held_bytes -= size_bytes
            self._changed.notify_all()
