"""Who may take how much of the memory that is left on a host. Pure.

What is granted and not taken yet is *open*. Of what can be taken at most half is open while nobody is refused anything:
so the last of it can still go to whoever needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["MOST_OPEN_BYTES", "ServerShare", "Shares", "share_out"]

MOST_OPEN_BYTES = 512 << 20  # of a PS: more than a round of buckets that come from another host


class ServerShare(msgspec.Struct, frozen=True):
    """Bytes of one PS, counted since the arena was made: granted and taken. wanted: what it was refused since the last
    look, 0: nothing."""

    server: int
    granted: int
    taken: int
    wanted: int = 0

    @property
    def open(self) -> int:
        return max(0, self.granted - self.taken)


class Shares(msgspec.Struct, frozen=True):
    """granted: of each PS from now on. short: PS whose want cannot be granted now; is_full: of one of them not even if
    the others gave up what they have open."""

    granted: dict[int, int]
    short: tuple[int, ...] = ()
    is_full: bool = False


def share_out(left_bytes: int, shares: Sequence[ServerShare]) -> Shares:
    """left_bytes: what can still be taken on the host, open grants included; below zero when more is used than there
    should be. What is open afterwards is never more than that. Of several wants the smallest comes first, so that most
    are granted; what others could use in part only is not kept from it."""
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
                # Measured at the next look, it goes to who wants it: until then it may have been taken.
                opened[share.server] //= 2
    else:
        _lend_ahead([share for share in shares if share not in short], opened, left // (2 * len(shares)), free)
    granted = {share.server: share.taken + opened[share.server] for share in shares}
    return Shares(granted, tuple(share.server for share in short), len(possible) < len(short))


def _lend_ahead(shares: Sequence[ServerShare], opened: dict[int, int], most_bytes: int, free_bytes: int) -> None:
    """So that nobody has to wait for the next look: each may have so much open, and gets more when half is taken."""
    for share in shares:
        most = max(min(MOST_OPEN_BYTES, most_bytes), share.wanted)
        if opened[share.server] < max(most // 2, share.wanted):
            more = max(0, min(free_bytes, most - opened[share.server]))
            opened[share.server] += more
            free_bytes -= more


def _cut(opened: dict[int, int], left: int) -> dict[int, int]:
    """The same shares of less."""
    total = sum(opened.values())
    return {server: size * left // total for server, size in opened.items()}
