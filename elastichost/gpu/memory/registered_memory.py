"""Memory of the host that the GPU may read and write, at the address that it has in this process.

The GPU cannot use a page before it is registered, so pages are allocated first: registering allocates holes of a file.
Nothing may free a registered page (punch a hole): later writes of the GPU to it would be lost without an error.
"""

from __future__ import annotations

from elastichost.errors import ArenaError

__all__ = ["CHUNK_BYTES", "RegisteredMemory"]

CHUNK_BYTES = 1 << 30  # registered by one call
_PORTABLE, _MAPPED = 1, 2  # flags of cudaHostRegister


class RegisteredMemory:
    """Ranges of this process' memory that are registered with the driver. `close` unregisters them."""

    def __init__(self) -> None:
        self._chunks: list[int] = []

    def register(self, address: int, size_bytes: int) -> None:
        """Registers a range of whole pages. Raises ArenaError with the driver's error, for example for a file that is
        not on tmpfs."""
        import torch

        runtime = torch.cuda.cudart()
        for first in range(address, address + size_bytes, CHUNK_BYTES):
            length = min(CHUNK_BYTES, address + size_bytes - first)
            code = int(runtime.cudaHostRegister(first, length, _PORTABLE | _MAPPED))
            if code != 0:
                raise ArenaError(
                    f"the GPU cannot use {length} bytes of the arena: cudaHostRegister returned {code}",
                    hint="the arena must lie on tmpfs (/dev/shm); set ELASTICHOST_ARENA_DIR to such a directory",
                )
            self._chunks.append(first)

    def close(self) -> None:
        """Unregisters everything."""
        import torch

        runtime = torch.cuda.cudart()
        while self._chunks:
            runtime.cudaHostUnregister(self._chunks.pop())
