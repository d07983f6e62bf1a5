"""Files of a run's directory on an agent's host: read and written in pieces, between the agent's other work."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from elastichost.errors import ProtocolError

__all__ = ["PIECE_BYTES", "below", "read_piece", "remove", "write_piece"]

# At 10 Mbit/s a fifth of a second: what else is to be said does not wait longer.
PIECE_BYTES = 256 * 1024


def below(directory: Path, name: str) -> Path:
    """The file of this name there. Raises ProtocolError for one that is not below the directory."""
    path = directory / name
    if not name or not path.resolve().is_relative_to(directory.resolve()) or path == directory:
        raise ProtocolError(f"{name!r} is no file below the run directory")
    return path


def read_piece(path: Path, offset: int) -> tuple[bytes, bool]:
    """(bytes, whether that was the last piece). Raises OSError."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(PIECE_BYTES)
        return data, offset + len(data) >= os.fstat(file.fileno()).st_size


def write_piece(path: Path, offset: int, data: bytes) -> None:
    """The first piece begins the file anew. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if offset == 0 else 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.seek(offset)
        file.write(data)


def remove(path: Path) -> None:
    """And its directory, when nothing else is in it. What is not there needs no removing."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()
