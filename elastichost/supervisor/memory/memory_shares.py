"""Divides the memory that is left on a host among its PS. Pure.

Rules:
- A grant that the PS has not taken yet is *open*. All open grants together are at most the memory that is left.
- Requests are granted by rising size, so that most of them are granted.
- If a request does not fit only because of open grants of other PS, those are halved at every look until it fits.
- Without such a request memory is granted ahead, up to half of what is left. The rest is for PS that request it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["MOST_OPEN_BYTES", "ServerShare", "Shares", "share_out"]

MOST_OPEN_BYTES = 512 << 20  # largest grant ahead of a PS; larger than one round of a migration from another host


class ServerShare(msgspec.Struct, frozen=True):
    """The memory of one PS in bytes. granted, taken: counted since the arena was made. wanted: size of a request that
    was refused since the last look; 0: none was."""

    server: int
    granted: int
    taken: int
    wanted: int = 0

    @property
    def open(self) -> int:
        return max(0, self.granted - self.taken)


class Shares(msgspec.Struct, frozen=True):
    """The result of `share_out`. granted: the new grant of each PS. short: PS whose request cannot be granted now.
    is_full: a request cannot be granted even if the other PS give up their open grants."""

    granted: dict[int, int]
    short: tuple[int, ...] = ()
    is_full: bool = False


def share_out(left_bytes: int, shares: Sequence[ServerShare]) -> Shares:
    """Divides the memory that is left, by the rules of this module. left_bytes: what can still be taken on the host,
    including open grants; negative if more is used than the budget. shares: of at least one PS."""
    left = max(0, left_bytes)
    opened = {share.server: share.open for share in shares}
    if sum(opened.values()) > left:
        opened = _cut(opened, left)
    free = left - sum(opened.values())
    for share in sorted(shares, key=lambda one: one.wanted):
        more = max(0, share.wanted - opened[share.server])
        if more <= free:
            opened[share.server] += more
            free -= more
    short = [share for share in shares if opened[share.server] < share.wanted]
    possible = [share for share in short if share.wanted <= left]
    if possible:
        first = min(possible, key=lambda one: one.wanted - opened[one.server])
        for share in shares:
            was_granted = share.wanted > 0 and share not in short
            if share is not first and not was_granted:
                # The freed half is granted only at the next look, because the PS may have taken it meanwhile.
                opened[share.server] //= 2
    else:
        _lend_ahead([share for share in shares if share not in short], opened, left // (2 * len(shares)), free)
    granted = {share.server: share.taken + opened[share.server] for share in shares}
    return Shares(granted, tuple(share.server for share in short), len(possible) < len(short))


def _lend_ahead(shares: Sequence[ServerShare], opened: dict[int, int], most_bytes: int, free_bytes: int) -> None:
    """Grants memory ahead, so that PS need not wait for the next look. Each PS may have most_bytes open, and gets more
    when it has less than half of that open."""
    for share in shares:
        most = max(min(MOST_OPEN_BYTES, most_bytes), share.wanted)
        if opened[share.server] < max(most // 2, share.wanted):
            more = max(0, min(free_bytes, most - opened[share.server]))
            opened[share.server] += more
            free_bytes -= more


def _cut(opened: dict[int, int], left: int) -> dict[int, int]:
    """Reduces open grants in proportion, so that their sum is `left`."""
    total = sum(opened.values())
    return {server: size * left // total for server, size in opened.items()}
