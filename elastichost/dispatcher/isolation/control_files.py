"""Files through which the kernel is told things: one write each, never made, and never cut."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ControlFiles"]


class ControlFiles:
    """Every method raises OSError where the kernel refuses."""

    def read(self, path: Path) -> str:
        return path.read_text(encoding="utf-8", errors="replace")

    def write(self, path: Path, text: str) -> None:
        """With the end of a line: that alone empties a list."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)

    def make(self, directory: Path) -> None:
        directory.mkdir()

    def remove(self, directory: Path) -> None:
        """Its files go with it."""
        directory.rmdir()

    def may_write(self, path: Path) -> bool:
        return os.access(path, os.W_OK)

    def is_handed_over(self, directory: Path) -> bool:
        """The service manager has marked it as somebody else's to divide."""
        for attribute in ("user.delegate", "trusted.delegate"):
            try:
                if os.getxattr(directory, attribute) == b"1":
                    return True
            except OSError:
                continue
        return False
