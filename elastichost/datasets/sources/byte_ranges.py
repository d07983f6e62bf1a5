"""Cuts what a unit needs of a file into requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["ByteRange", "joined_ranges", "requests_of"]

ByteRange = tuple[int, int]  # [start, stop)


def joined_ranges(ranges: Iterable[ByteRange], gap_bytes: int) -> tuple[ByteRange, ...]:
    """The ranges in order, joined where no more than `gap_bytes` lie between two of them. Empty ones are left out."""
    found: list[ByteRange] = []
    for start, stop in sorted(one for one in ranges if one[0] < one[1]):
        if found and start - found[-1][1] <= gap_bytes:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)


def requests_of(ranges: Iterable[ByteRange], range_bytes: int) -> Iterator[ByteRange]:
    """The ranges in pieces of at most `range_bytes`, in order. Raises ValueError unless range_bytes >= 1."""
    if range_bytes < 1:
        raise ValueError(f"range_bytes={range_bytes} is out of range (at least 1)")
    for start, stop in ranges:
        for begin in range(start, stop, range_bytes):
            yield begin, min(begin + range_bytes, stop)
