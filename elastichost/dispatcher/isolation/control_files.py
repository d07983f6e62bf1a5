"""Reads and writes control files of the kernel (cgroups, resctrl). A write opens the existing file and writes once; it
never creates or truncates a file."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ControlFiles"]


class ControlFiles:
    """Operations on control files. Every method but the last two raises OSError when the kernel refuses; tests replace
    the class."""

    def read(self, path: Path) -> str:
        return path.read_text(encoding="utf-8", errors="replace")

    def write(self, path: Path, text: str) -> None:
        """Writes `text` and a newline. The newline is needed to make a list empty, because a write of no bytes does
        nothing."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)

    def make(self, directory: Path) -> None:
        directory.mkdir()

    def remove(self, directory: Path) -> None:
        """Removes a group; the kernel removes its files."""
        directory.rmdir()

    def may_write(self, path: Path) -> bool:
        return os.access(path, os.W_OK)

    def is_handed_over(self, directory: Path) -> bool:
        """Whether systemd has marked a group as delegated."""
        for attribute in ("user.delegate", "trusted.delegate"):
            try:
                if os.getxattr(directory, attribute) == b"1":
                    return True
            except OSError:
                continue
        return False
