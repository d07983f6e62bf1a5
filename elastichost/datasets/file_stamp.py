"""Size and version of a file."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FileStamp"]


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size and modification time of a file, for a URL a number that changes with the file. When either differs later,
    the file was changed."""

    path: str
    size_bytes: int
    modified_ns: int

    @property
    def has_version(self) -> bool:
        """Whether the time or number is known. A web server may give none."""
        return self.modified_ns > 0
